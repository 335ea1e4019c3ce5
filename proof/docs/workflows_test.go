package docs_test

import (
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/payonce/proof/internal/inventory"
)

type workflow struct {
	On   map[string]any
	Jobs map[string]struct {
		TimeoutMinutes string `yaml:"timeout-minutes"`
		Permissions    map[string]string
		Strategy       struct {
			Matrix struct {
				Include []struct {
					Step    string
					Minutes int
				}
			}
		}
		Steps []struct{ Uses, Run string }
	}
}

var (
	stepDefined = regexp.MustCompile(`(?m)^step_(\w+)\(\)`)
	listed      = regexp.MustCompile(`(?m)^(steps|beside|nightly|tagged)\+?=\(([^)]*)\)`)
)

// runnerOfCI is the text of CI's steps, of the gate and of the night.
func runnerOfCI(t *testing.T) (all string) {
	t.Helper()
	for _, file := range []string{".ci/run", ".ci/night.sh"} {
		text, err := inventory.Read(file)
		require.NoError(t, err)
		all += text
	}
	return all
}

// namesIn are the steps of a list, in which a plus joins those that run side by side.
func namesIn(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == '+' })
}

// TestWorkflows holds the workflows to .ci/run: they run its steps and nothing
// else, every step is run by one of them, and no job may run for ever.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	runner := runnerOfCI(t)
	defined, lists := map[string]bool{}, map[string][]string{}
	for _, m := range stepDefined.FindAllStringSubmatch(runner, -1) {
		defined[m[1]] = true
	}
	for _, m := range listed.FindAllStringSubmatch(runner, -1) {
		lists[m[1]] = append(lists[m[1]], namesIn(m[2])...)
	}
	inLists := map[string]bool{}
	for _, step := range slices.Concat(lists["steps"], lists["beside"], lists["nightly"], lists["tagged"]) {
		require.True(t, defined[step], "%s is listed, and there is no step of that name", step)
		inLists[step] = true
	}
	require.Len(t, defined, len(inLists), "a step that is in no list is run by nobody")

	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	ran := map[string]map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		ran[name] = map[string]bool{}
		text, err := inventory.Read(".github/workflows/" + name)
		require.NoError(t, err)
		for _, image := range regexp.MustCompile(`\bpostgres:\d\S*`).FindAllString(text, -1) {
			require.Regexp(t, `^postgres:\d+\.\d+@sha256:[0-9a-f]{64}"$`, image, "%s: an image by its tag", name)
		}
		for _, line := range regexp.MustCompile(`(?m)^.*\buses:.*$`).FindAllString(text, -1) {
			require.Regexp(t, `@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, line, "%s: which version is it?", name)
		}
		var w workflow
		require.NoError(t, yaml.Unmarshal([]byte(text), &w), name)
		require.NotEmpty(t, w.On, name)
		for job, j := range w.Jobs {
			require.NotEmpty(t, j.TimeoutMinutes, "%s: %s may run for ever", name, job)
			for _, one := range j.Strategy.Matrix.Include {
				if one.Step != "" {
					ran[name][one.Step] = true
					require.Positive(t, one.Minutes, "%s: %s may run for ever", name, one.Step)
				}
			}
			signs := j.Permissions["id-token"] != ""
			for _, s := range j.Steps {
				require.False(t, signs && (s.Run != "" || strings.Contains(s.Uses, "/checkout@")),
					"%s: %s signs, so it runs nothing of the repository", name, job)
				require.NotEqual(t, s.Uses == "", s.Run == "", "%s: %s", name, job)
				if s.Uses != "" {
					require.Regexp(t, `^actions/[a-z/-]+@[0-9a-f]{40}$`, s.Uses, "%s: a tag can be moved, a commit cannot", name)
					continue
				}
				words := strings.Fields(s.Run)
				require.Equal(t, ".ci/run", words[0], "%s: %s: %s", name, job, s.Run)
				if strings.Contains(s.Run, "${{") {
					require.Equal(t, ".ci/run ${{ matrix.step }}", s.Run)
					continue
				}
				for _, step := range words[1:] {
					ran[name][step] = true
				}
			}
		}
		for step := range ran[name] {
			require.True(t, defined[step], "%s: .ci/run has no step %s", name, step)
		}
	}
	for _, step := range slices.Concat(lists["steps"], lists["beside"]) {
		require.True(t, ran["ci.yml"][step], "CI does not run %s", step)
	}
	for _, step := range lists["nightly"] {
		require.True(t, ran["nightly.yml"][step], "nobody runs %s at night", step)
	}
	for _, step := range lists["tagged"] {
		require.True(t, ran["release.yml"][step], "a tag does not run %s", step)
	}
}

// TestGoOfWorkflows: the workflows name one version of Go, that of the images, and each module and tool can be built with
// it. A go.mod names the oldest that will do, and a tool may need a later one.
func TestGoOfWorkflows(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	pinned, err := inventory.Read("docker-compose.pinned.yml")
	require.NoError(t, err)
	image := regexp.MustCompile(`GO_IMAGE: golang:([0-9.]+)@`).FindStringSubmatch(pinned)
	require.NotNil(t, image)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		named := regexp.MustCompile(`go-version: ([0-9.]+)`).FindAllStringSubmatch(string(text), -1)
		require.Len(t, named, strings.Count(string(text), "uses: actions/setup-go@"), file)
		for _, m := range named {
			require.Equal(t, image[1], m[1], file)
		}
	}
	modules, err := filepath.Glob(filepath.Join(root, "tools/*.mod"))
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	for _, file := range append(modules, filepath.Join(root, "go.mod"), filepath.Join(root, "proof/go.mod")) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		needs := regexp.MustCompile(`(?m)^go ([0-9.]+)$`).FindStringSubmatch(string(text))
		require.NotNil(t, needs, file)
		require.LessOrEqual(t, version.Compare("go"+needs[1], "go"+image[1]), 0, "%s needs Go %s", file, needs[1])
	}
}
