package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/payonce/internal/postgres"
)

// version and commit are set with -ldflags "-X main.version=… -X main.commit=…" where the program is built without its
// repository, as in a container. Otherwise the Go command records them.
var version, commit string

// unknownCommit is the commit of a build that recorded none.
const unknownCommit = "unknown"

// buildInfo is what this program was made from.
type buildInfo struct {
	version string // of the module, or (devel)
	commit  string // with +changes if the working tree had some; or unknownCommit
	goes    string // the version of Go
	schema  string // the last migration that this program has
}

func readBuildInfo() buildInfo {
	b := buildInfo{version: version, commit: commit, schema: fmt.Sprint(postgres.SchemaVersion())}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.goes = info.GoVersion
		b.version = cmp.Or(b.version, info.Main.Version)
		if b.commit == "" {
			b.commit = commitOf(info.Settings)
		}
	}
	b.version, b.commit = cmp.Or(b.version, "(devel)"), cmp.Or(b.commit, unknownCommit)
	return b
}

func commitOf(settings []debug.BuildSetting) (commit string) {
	changed := false
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if commit != "" && changed {
		commit += "+changes"
	}
	return commit
}

// register adds the metric payonce_build_info, which is always 1.
func (b buildInfo) register(r prometheus.Registerer) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "payonce_build_info",
		Help: "What this process was built from, in the labels; always 1."},
		[]string{"version", "commit", "go", "schema"})
	gauge.WithLabelValues(b.version, b.commit, b.goes, b.schema).Set(1)
	r.MustRegister(gauge)
}

// printVersion prints what this program was built from. It needs no setting.
func printVersion(_ context.Context, cli cli, args []string) error {
	if err := arguments(args); err != nil {
		return err
	}
	b := readBuildInfo()
	if b.commit == unknownCommit {
		_, _ = fmt.Fprintln(cli.stderr, "the commit is unknown: `go run` records it with -buildvcs=true only, `go build` in a "+
			"clone of the repository; an image is given it by the build argument COMMIT")
	}
	_, err := fmt.Fprintf(cli.stdout, "version  %s\ncommit   %s\ngo       %s\nschema   %s\n",
		b.version, b.commit, b.goes, b.schema)
	return err
}
