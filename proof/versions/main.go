// Command versions runs the service and its former version side by side on one database.
//
//	go run -C proof ./versions [-former v0.1.0] [-duration 60s] [-seed N]
//	make versions
//
// The former version is the last one with a tag; before the first tag it is the commit named in the file former. Under
// traffic the processes are replaced one after the other, forward, back and forward again, with the migration in between;
// then processes of both are killed. It exits 0 only if no request failed that may not, each version finished what the
// other began, each replays the other's responses byte for byte, and every invariant holds; 1 if not, 2 if it could not
// run. Everything that it starts is its own, on loopback, and ends with it.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos"
	"example.com/payonce/testkit/process"
)

func main() { chaos.Main("versions", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := chaos.Config{
		Seed: rand.Uint64N(1_000_000), Processes: 4, Clients: 8, Tenants: 2,
		Log: func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) },
	}
	fail := func(err error) int {
		_, _ = fmt.Fprintln(stderr, "versions:", err)
		return chaos.CouldNot
	}
	flags := flag.NewFlagSet("versions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&c.Duration, "duration", 30*time.Second, "how long both versions run, beside what it takes to replace them")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "the traffic and the faults")
	former := flags.String("former", "", "the commit or tag of the former version")
	if err := flags.Parse(args); err != nil {
		return chaos.CouldNot
	}
	if flags.NArg() > 0 || c.Duration < time.Second {
		return fail(errors.New("it takes at least a second, and no argument"))
	}
	dir, err := os.MkdirTemp("", "payonce-versions-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := build(ctx, &c, dir, *former); err != nil {
		return fail(err)
	}
	report, err := chaos.RunVersions(ctx, c)
	if err != nil {
		return fail(err)
	}
	early, err := writtenTooEarly(report.Points)
	if err != nil {
		return fail(err)
	}
	report.Violations = append(report.Violations, early...)
	report.Print(stdout)
	if !report.OK() {
		return chaos.Violated
	}
	return 0
}

// build builds both versions in dir.
func build(ctx context.Context, c *chaos.Config, dir, former string) (err error) {
	root, err := process.Root()
	if err != nil {
		return err
	}
	if former == "" {
		if former, err = lastVersion(ctx, root); err != nil {
			return err
		}
	}
	c.Log("building %s and what is here", former)
	source := filepath.Join(dir, "former")
	if err := checkOut(ctx, root, former, source); err != nil {
		return err
	}
	theirs, err := os.ReadFile(filepath.Join(source, "proof/versions/forms.txt"))
	if err == nil && string(theirs) != formerForms {
		return fmt.Errorf("former_forms.txt is not what %s has as forms.txt: copy it", former)
	}
	c.Program, c.Former = filepath.Join(dir, "api"), filepath.Join(dir, "api-former")
	return errors.Join(chaos.BuildAt(ctx, source, c.Former), chaos.Build(ctx, c.Program))
}

// untagged is the commit that is the former version as long as no commit before this one has a tag.
//
//go:embed former
var untagged string

// lastVersion is the last tag before this commit.
func lastVersion(ctx context.Context, root string) (string, error) {
	tag, err := git(ctx, root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if err == nil {
		return strings.TrimSpace(string(tag)), nil
	}
	if !strings.Contains(err.Error(), "No names found") && !strings.Contains(err.Error(), "No tags can describe") {
		return "", fmt.Errorf("find the last version: %w", err)
	}
	return strings.TrimSpace(untagged), nil
}

// checkOut writes the files of a commit into a folder.
func checkOut(ctx context.Context, root, commit, dir string) error {
	files, err := git(ctx, root, "archive", "--format=tar", commit)
	if err != nil {
		return fmt.Errorf("the former version must be in this clone's history (git fetch --unshallow): %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	tar := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	tar.Stdin = bytes.NewReader(files)
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", commit, err, out)
	}
	return nil
}

func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
