package mutation

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"example.com/payonce/proof/internal/inventory"
)

// Changed are the mutants that have to be tried again since the results were
// recorded: those of which nothing is recorded, those whose file has changed, and
// those whose test is in a file that has. Git knows which files: what was
// committed since, and what is not committed yet.
func Changed(ctx context.Context, root string, all []Mutant, r *Recorded) ([]Mutant, error) {
	out, err := command(ctx, root, nil, "git", "log", "-1", "--format=%H", "--", ResultsFile).Output()
	since := strings.TrimSpace(string(out))
	if err != nil || since == "" {
		return nil, fmt.Errorf("find the commit that recorded %s, which a shallow clone does not have: %q, %w",
			ResultsFile, since, err)
	}
	diff, err := command(ctx, root, nil, "git", "diff", "--name-only", since).Output()
	if err != nil {
		return nil, fmt.Errorf("compare with %s: %w", since, err)
	}
	files := map[string]bool{}
	for line := range strings.Lines(string(diff)) {
		files[strings.TrimSpace(line)] = true
	}
	tests := map[Test]bool{}
	for file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := inventory.Read(file)
		if err != nil {
			continue // the file was removed, and its tests with it
		}
		for line := range strings.Lines(source) {
			if name, ok := strings.CutPrefix(line, "func Test"); ok {
				name, _, _ = strings.Cut(name, "(")
				tests[Test{path.Dir(file), "Test" + name}] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m Mutant) bool {
		by, killed := r.KilledBy[m.ID]
		known := killed || r.Survived[m.ID] || r.Equivalent[m.ID] != ""
		return known && !files[m.File] && !tests[by]
	}), nil
}
