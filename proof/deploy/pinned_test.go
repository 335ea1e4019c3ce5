package deploy_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const pinnedFile = "../../docker-compose.pinned.yml"

// pinned is a full version and what the registry calls its bytes: 17.11@sha256:…, nonroot@sha256:…
var pinned = regexp.MustCompile(`^(\S+):([^:@\s]+)@(sha256:[0-9a-f]{64})$`)

// TestPinned holds docker-compose.pinned.yml to docker-compose.yml and Dockerfile: with it no image is taken by its tag.
func TestPinned(t *testing.T) {
	t.Parallel()
	plain, project := load(t), load(t, composeFile, pinnedFile)
	digests := map[string]string{}
	requirePin := func(t *testing.T, named, pin string) {
		t.Helper()
		parts := pinned.FindStringSubmatch(pin)
		require.NotNil(t, parts, "%s is not pinned: %q", named, pin)
		name, tag, _ := strings.Cut(named, ":")
		require.Equal(t, name, parts[1], "another image in the place of %s", named)
		if tag != "latest" && tag != parts[2] {
			require.True(t, strings.HasPrefix(parts[2], tag+"."), "%s is not a version of %s", parts[2], named)
		}
		require.NotEqual(t, "latest", parts[2], named)
		if before, ok := digests[name]; ok {
			require.Equal(t, before, parts[3], "%s has two digests", name)
		}
		digests[name] = parts[3]
	}
	for name, service := range plain.Services {
		if service.Build == nil {
			requirePin(t, service.Image, project.Services[name].Image)
		}
	}

	// A base image is an argument, with the tag as its default.
	file := text(t, dockerfile)
	bases := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ARG ([A-Z]+_IMAGE)=(\S+)$`).FindAllStringSubmatch(file, -1) {
		bases[m[1]] = m[2]
	}
	stages := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^FROM (.*)$`).FindAllStringSubmatch(file, -1) {
		from, stage, named := strings.Cut(strings.TrimPrefix(m[1], "--platform=$BUILDPLATFORM "), " AS ")
		require.True(t, named, m[0])
		argument := strings.TrimSuffix(strings.TrimPrefix(from, "${"), "}")
		require.True(t, stages[from] || bases[argument] != "", "%s: an image that is no argument cannot be pinned", m[0])
		stages[stage] = true
	}
	for name, service := range project.Services {
		if service.Build == nil {
			continue
		}
		for argument, base := range bases {
			pin := service.Build.Args[argument]
			require.NotNil(t, pin, "%s is built from %s by its tag", name, base)
			requirePin(t, base, *pin)
		}
		require.Subset(t, slices.Collect(maps.Keys(bases)), without(service.Build.Args, "GOPROXY"),
			"%s: a pin of what no stage is built from", name)
	}
}

func without(arguments types.MappingWithEquals, name string) []string {
	names := slices.Collect(maps.Keys(arguments))
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}
