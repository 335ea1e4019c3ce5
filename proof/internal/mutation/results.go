package mutation

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// ResultsFile is what the last run has recorded: each test with the mutants that it
	// killed, and the survivors.
	ResultsFile = "proof/internal/mutation/results.txt"
	// EquivalentFile lists mutants that no test can tell from the source, with the
	// reason.
	EquivalentFile = "proof/internal/mutation/equivalent.txt"

	survivors   = "no test"
	hangsSuffix = " hangs"
	tookLine    = "# run %s took %s"
	fileLine    = "# tried with %s %s"
	preamble    = "# Which test kills which mutant, and which no test kills: `go run -C proof ./mutants -write`.\n"
)

// Kill is the test that kills a mutant, and how.
type Kill struct {
	Test
	Hangs bool // it does not end with the mutant, rather than fail
}

// Recorded is what is known of the mutants by their IDs.
type Recorded struct {
	KilledBy   map[string]Kill
	Survived   map[string]bool
	Equivalent map[string]string        // the reason
	Took       map[string]time.Duration // of the last recorded run: all, catalogue
	Files      map[string]string        // with which the mutants were tried: their hashes
}

// ReadRecorded reads both lists.
func ReadRecorded(root string) (*Recorded, error) {
	r := &Recorded{KilledBy: map[string]Kill{}, Survived: map[string]bool{}, Equivalent: map[string]string{},
		Took: map[string]time.Duration{}, Files: map[string]string{}}
	results, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(ResultsFile)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := r.parse(string(results)); err != nil {
		return nil, err
	}
	reasons, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(EquivalentFile)))
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(reasons)))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, "\t")
		if !ok || len(strings.Fields(reason)) < 4 {
			return nil, fmt.Errorf("%s: want the mutant, a tab and a sentence: %q", EquivalentFile, line)
		}
		if r.Equivalent[id] != "" {
			return nil, fmt.Errorf("%s: %q stands there twice", EquivalentFile, id)
		}
		r.Equivalent[id] = reason
	}
	return r, lines.Err()
}

func (r *Recorded) parse(results string) error {
	var by Kill
	survived := false
	for line := range strings.Lines(results) {
		line = strings.TrimSuffix(line, "\n")
		var run, took string
		if n, _ := fmt.Sscanf(line, tookLine, &run, &took); n == 2 {
			r.Took[run], _ = time.ParseDuration(took)
		}
		var hash, file string
		if n, _ := fmt.Sscanf(line, fileLine, &hash, &file); n == 2 {
			r.Files[file] = hash
		}
		switch id, indented := strings.CutPrefix(line, "\t"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case !indented:
			survived = line == survivors
			test, hangs := strings.CutSuffix(line, hangsSuffix)
			pkg, name, ok := strings.Cut(test, " ")
			if !ok {
				return fmt.Errorf("%s: no test: %q", ResultsFile, line)
			}
			by = Kill{Test{pkg, name}, hangs}
		case survived:
			r.Survived[id] = true
		default:
			r.KilledBy[id] = by
		}
	}
	return nil
}

// Add takes the results of a run. all are the mutants that exist: what is
// recorded of others is dropped.
func (r *Recorded) Add(results []Result, all []Mutant) {
	for _, res := range results {
		delete(r.KilledBy, res.ID)
		delete(r.Survived, res.ID)
		if res.Verdict == Killed {
			r.KilledBy[res.ID] = Kill{res.By, res.Hung}
		} else if r.Equivalent[res.ID] == "" {
			r.Survived[res.ID] = true
		}
	}
	exists := map[string]bool{}
	for _, m := range all {
		exists[m.ID] = true
	}
	maps.DeleteFunc(r.KilledBy, func(id string, _ Kill) bool { return !exists[id] })
	maps.DeleteFunc(r.Survived, func(id string, _ bool) bool { return !exists[id] })
}

// Write writes the results.
func (r *Recorded) Write(root string) error {
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(ResultsFile)), []byte(r.text()), 0o644)
}

func (r *Recorded) text() string {
	var b strings.Builder
	b.WriteString(preamble)
	for _, run := range slices.Sorted(maps.Keys(r.Took)) {
		fmt.Fprintf(&b, tookLine+"\n", run, r.Took[run])
	}
	for _, file := range slices.Sorted(maps.Keys(r.Files)) {
		fmt.Fprintf(&b, fileLine+"\n", r.Files[file], file)
	}
	by := map[string][]string{}
	for id, kill := range r.KilledBy {
		title := kill.String()
		if kill.Hangs {
			title += hangsSuffix
		}
		by[title] = append(by[title], id)
	}
	group := func(title string, ids []string) {
		slices.Sort(ids)
		b.WriteString("\n" + title + "\n\t" + strings.Join(ids, "\n\t") + "\n")
	}
	for _, title := range slices.Sorted(maps.Keys(by)) {
		group(title, by[title])
	}
	if len(r.Survived) > 0 {
		group(survivors, slices.Collect(maps.Keys(r.Survived)))
	}
	return b.String()
}

// Stale says what is wrong with the lists, given the mutants that exist and
// whether a test does: a mutant of which nothing is recorded, a reason for one
// that does not exist or that a test kills.
func (r *Recorded) Stale(all []Mutant, testExists func(Test) bool) (wrong []string) {
	exists := map[string]bool{}
	for _, m := range all {
		exists[m.ID] = true
		by, killed := r.KilledBy[m.ID]
		switch {
		case killed && r.Equivalent[m.ID] != "":
			wrong = append(wrong, fmt.Sprintf("%s is listed as equivalent, but %s kills it", m.ID, by))
		case killed && !testExists(by.Test):
			wrong = append(wrong, fmt.Sprintf("%s was killed by %s, which does not exist", m.ID, by))
		case !killed && r.Equivalent[m.ID] == "" && !r.Survived[m.ID]:
			wrong = append(wrong, fmt.Sprintf("%s was never tried", m.ID))
		}
	}
	for id := range r.Equivalent {
		if !exists[id] {
			wrong = append(wrong, fmt.Sprintf("%s is listed as equivalent and does not exist", id))
		}
	}
	slices.Sort(wrong)
	return wrong
}
