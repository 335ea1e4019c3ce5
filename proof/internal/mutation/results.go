package mutation

import (
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
	// ResultsFile is what the runs on this machine have found: each test with the mutants that it killed, and those that no
	// test killed. The next run tries the same tests first, which is faster, and needs none of it.
	ResultsFile = "out/mutants/results.txt"
	// EquivalentFile lists mutants that no test can tell from the source, with the
	// reason.
	EquivalentFile = "proof/internal/mutation/equivalent.txt"
	// SurvivorsFile lists mutants that a test could kill and none does, with what is not tested.
	SurvivorsFile = "proof/internal/mutation/survivors.txt"

	// shareLeast is the part of a package's mutants that must be killed or equivalent.
	shareLeast = 0.95

	notKilled = "no test"
	hangs     = " does not end in "
	runLine   = "# all of them: %s, commit %s, in %s"
	preamble  = "# Which test kills which mutant, and which no test kills. Written by `go run -C proof ./mutants`.\n"
)

// Kill is the test that kills a mutant, and how.
type Kill struct {
	Test
	Hangs time.Duration // it does not end within this time, rather than fail; 0 if it fails
}

func (k Kill) String() string {
	if k.Hangs > 0 {
		return k.Test.String() + hangs + k.Hangs.String()
	}
	return k.Test.String()
}

// killFrom reads what String has written.
func killFrom(text string) (Kill, error) {
	test, within, slow := strings.Cut(text, hangs)
	pkg, name, ok := strings.Cut(test, " ")
	if !ok {
		return Kill{}, fmt.Errorf("no test: %q", text)
	}
	k := Kill{Test: Test{pkg, name}}
	if !slow {
		return k, nil
	}
	var err error
	k.Hangs, err = time.ParseDuration(within)
	return k, err
}

// Lists are what people have written about mutants, by their IDs.
type Lists struct {
	Equivalent map[string]string // the reason
	Survivors  map[string]string // what is not tested
}

// ReadLists reads both lists.
func ReadLists(root string) (l Lists, err error) {
	if l.Equivalent, err = readEquivalent(root); err != nil {
		return l, err
	}
	l.Survivors, err = readSurvivors(root)
	return l, err
}

// Have is whether one of the lists has a mutant.
func (l Lists) Have(id string) bool { return l.Equivalent[id] != "" || l.Survivors[id] != "" }

// readEquivalent reads lines of a mutant, a tab and a sentence.
func readEquivalent(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(EquivalentFile)))
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, "\t")
		if !ok || !isSentence(reason) {
			return nil, fmt.Errorf("%s: want the mutant, a tab and a sentence: %q", EquivalentFile, line)
		}
		if reasons[id] != "" {
			return nil, fmt.Errorf("%s: %q stands there twice", EquivalentFile, id)
		}
		reasons[id] = reason
	}
	return reasons, nil
}

// readSurvivors reads sentences, each with the mutants below it that it is about, after a tab.
func readSurvivors(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(SurvivorsFile)))
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	sentence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, indented := strings.CutPrefix(line, "\t")
		switch {
		case !indented && !isSentence(line):
			return nil, fmt.Errorf("%s: want a sentence that says what is not tested: %q", SurvivorsFile, line)
		case !indented:
			sentence = line
		case sentence == "":
			return nil, fmt.Errorf("%s: %q has no sentence above it", SurvivorsFile, id)
		case reasons[id] != "":
			return nil, fmt.Errorf("%s: %q stands there twice", SurvivorsFile, id)
		default:
			reasons[id] = sentence
		}
	}
	return reasons, nil
}

func isSentence(text string) bool { return len(strings.Fields(text)) >= 4 }

// Wrong says what is wrong with the lists, given the mutants that exist: an entry for none, or two for one; a name of the
// schema or a predicate of a query that no test kills; a package of which too few are killed even if all others are.
func (l Lists) Wrong(all []Mutant) (wrong []string) {
	kind := map[string]Kind{}
	for _, m := range all {
		kind[m.ID] = m.Kind
	}
	for id := range l.Equivalent {
		if kind[id] == "" {
			wrong = append(wrong, fmt.Sprintf("%s is listed in %s and does not exist", id, EquivalentFile))
		}
		if l.Survivors[id] != "" {
			wrong = append(wrong, fmt.Sprintf("%s is listed in both files", id))
		}
	}
	for id := range l.Survivors {
		switch kind[id] {
		case "":
			wrong = append(wrong, fmt.Sprintf("%s is listed in %s and does not exist", id, SurvivorsFile))
		case Catalogue, SQL:
			wrong = append(wrong, fmt.Sprintf("%s is listed in %s: each name of the schema and each predicate needs a test", id, SurvivorsFile))
		case Go:
		}
	}
	slices.Sort(wrong)
	_, packages := tallies(all, l, func(id string) bool { return l.Survivors[id] == "" })
	return append(wrong, tooFew(packages)...)
}

func tooFew(packages map[string]*tally) (wrong []string) {
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if t := packages[pkg]; t.share() < shareLeast {
			wrong = append(wrong, fmt.Sprintf("of the conditions of %s %.1f %% are killed or equivalent, less than %.0f %%", pkg,
				100*t.share(), 100*shareLeast))
		}
	}
	return wrong
}

// Recorded is what runs have found about the mutants, by their IDs.
type Recorded struct {
	KilledBy map[string]Kill
	Survived map[string]bool
	Last     Night // the last run of all mutants
}

// Night is a run of all mutants.
type Night struct {
	Day    string // 2006-01-02
	Commit string
	Took   time.Duration
}

// ReadRecorded reads what runs have found. A file that is not there says nothing.
func ReadRecorded(file string) (*Recorded, error) {
	r := &Recorded{KilledBy: map[string]Kill{}, Survived: map[string]bool{}}
	results, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := r.parse(string(results)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func (r *Recorded) parse(results string) error {
	var by Kill
	survived := false
	for line := range strings.Lines(results) {
		line = strings.TrimSuffix(line, "\n")
		switch id, indented := strings.CutPrefix(line, "\t"); {
		case line == "":
		case strings.HasPrefix(line, "#"):
			r.Last.parse(line)
		case line == notKilled:
			survived = true
		case !indented:
			var err error
			if by, err = killFrom(line); err != nil {
				return err
			}
			survived = false
		case survived:
			r.Survived[id] = true
		default:
			r.KilledBy[id] = by
		}
	}
	return nil
}

// parse reads the line of the last run of all mutants, and ignores others.
func (n *Night) parse(line string) {
	text, ok := strings.CutPrefix(line, "# all of them: ")
	if !ok {
		return
	}
	day, rest, _ := strings.Cut(text, ", commit ")
	at := strings.LastIndex(rest, ", in ")
	if at < 0 {
		return
	}
	took, err := time.ParseDuration(rest[at+len(", in "):])
	if err == nil {
		*n = Night{day, rest[:at], took}
	}
}

// Add takes the results of a run; one without a verdict is ignored. all are the mutants that exist: what is
// recorded of others is dropped.
func (r *Recorded) Add(results []Result, all []Mutant) {
	for _, res := range results {
		switch res.Verdict {
		case Killed:
			r.KilledBy[res.ID] = res.By
			delete(r.Survived, res.ID)
		case Survived, Unknown:
			r.Survived[res.ID] = true
			delete(r.KilledBy, res.ID)
		case Left:
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
func (r *Recorded) Write(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(r.text()), 0o644)
}

func (r *Recorded) text() string {
	var b strings.Builder
	b.WriteString(preamble)
	if r.Last.Day != "" {
		fmt.Fprintf(&b, runLine+"\n", r.Last.Day, r.Last.Commit, r.Last.Took)
	}
	by := map[string][]string{}
	for id, kill := range r.KilledBy {
		by[kill.String()] = append(by[kill.String()], id)
	}
	group := func(title string, ids []string) {
		slices.Sort(ids)
		b.WriteString("\n" + title + "\n\t" + strings.Join(ids, "\n\t") + "\n")
	}
	for _, title := range slices.Sorted(maps.Keys(by)) {
		group(title, by[title])
	}
	if len(r.Survived) > 0 {
		group(notKilled, slices.Collect(maps.Keys(r.Survived)))
	}
	return b.String()
}

// Classified are the mutants of a run by what the lists say of them.
type Classified struct {
	Killed, Equivalent, Known int
	Left                      []Result // were not tried on every test, for lack of time
	New                       []Result // no test kills them, and no list has them
	Misplaced                 []Result // are listed as equivalent, and a test kills them
	Better                    []Result // are listed as survivors, and a test kills them
}

// Classify compares the results of a run with the lists: which mutants survive that no list names, which a list names wrongly.
func (l Lists) Classify(results []Result) (j Classified) {
	for _, r := range results {
		equivalent, known := l.Equivalent[r.ID] != "", l.Survivors[r.ID] != ""
		switch {
		case r.Verdict == Killed && equivalent:
			j.Misplaced = append(j.Misplaced, r)
		case r.Verdict == Killed:
			j.Killed++
			if known {
				j.Better = append(j.Better, r)
			}
		case equivalent:
			j.Equivalent++
		case known:
			j.Known++
		case r.Verdict == Left || r.Verdict == "":
			j.Left = append(j.Left, r)
		default:
			j.New = append(j.New, r)
		}
	}
	return j
}
