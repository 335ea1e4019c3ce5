package mutation

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecorded(t *testing.T) {
	t.Parallel()
	by := Kill{Test: Test{"internal/a", "TestX"}}
	r := &Recorded{KilledBy: map[string]Kill{"m1": by, "gone": by}, Survived: map[string]bool{"m2": true},
		Equivalent: map[string]string{"m3": "it is the same anyway"}}
	all := []Mutant{{ID: "m1"}, {ID: "m2"}, {ID: "m3"}, {ID: "m4"}}
	exists := func(Test) bool { return true }
	require.Equal(t, []string{"m4 was never tried"}, r.Stale(all, exists))

	r.Add([]Result{{Mutant: all[1], Verdict: Killed, By: by.Test, Hung: true}, {Mutant: all[2], Verdict: Survived},
		{Mutant: all[3], Verdict: Unknown}}, all)
	require.Empty(t, r.Stale(all, exists))
	r.Took = map[string]time.Duration{"all": 90 * time.Minute}
	r.Files = map[string]string{"internal/a/a.go": "0123"}
	require.Equal(t, preamble+"# run all took 1h30m0s\n# tried with 0123 internal/a/a.go\n\ninternal/a TestX\n\tm1\n\ninternal/a TestX hangs\n\tm2\n\nno test\n\tm4\n", r.text())
	again := &Recorded{KilledBy: map[string]Kill{}, Survived: map[string]bool{}, Equivalent: r.Equivalent,
		Took: map[string]time.Duration{}, Files: map[string]string{}}
	require.NoError(t, again.parse(r.text()))
	require.Equal(t, r, again)

	require.Equal(t, []string{"m1 was killed by internal/a TestX, which does not exist",
		"m2 was killed by internal/a TestX, which does not exist"}, r.Stale(all, func(Test) bool { return false }))
	r.Equivalent["m1"] = "a test shows otherwise, though"
	r.Equivalent["m9"] = "nobody knows any more"
	require.Equal(t, []string{"m1 is listed as equivalent, but internal/a TestX kills it",
		"m9 is listed as equivalent and does not exist"}, r.Stale(all, exists))
}

// TestChanged: what has changed since a mutant was tried is known by the files, whenever the results are committed.
func TestChanged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	write("internal/a/a.go", "package a")
	write("internal/a/a_test.go", "package a\nfunc TestA(t *testing.T) {}\n")
	write("internal/b/b.go", "package b")
	write("internal/b/b_test.go", "package b\nfunc TestB(t *testing.T) {}\nfunc TestC(t *testing.T) {}\n")
	all := []Mutant{{ID: "a1", File: "internal/a/a.go"}, {ID: "a2", File: "internal/a/a.go"},
		{ID: "b1", File: "internal/b/b.go"}, {ID: "b2", File: "internal/b/b.go"}}
	r := &Recorded{KilledBy: map[string]Kill{"a1": {Test: Test{"internal/a", "TestA"}},
		"a2": {Test: Test{"internal/b", "TestB"}}, "b1": {Test: Test{"internal/b", "TestC"}}}, Equivalent: map[string]string{"b2": "it is the same anyway"}}
	changed := func() []string {
		list, err := r.Changed(root, all)
		require.NoError(t, err)
		var names []string
		for _, m := range list {
			names = append(names, m.ID)
		}
		return names
	}
	require.Equal(t, []string{"a1", "a2", "b1", "b2"}, changed(), "nothing was tried")
	require.NoError(t, r.Note(root, all, all))
	require.Empty(t, changed())
	r.Survived = map[string]bool{"b2": true}
	require.Empty(t, changed(), "no test is expected to kill it")
	delete(r.Equivalent, "b2")
	require.Equal(t, []string{"b2"}, changed(), "a test may since have been written")
	r.Survived, r.Equivalent["b2"] = nil, "it is the same anyway"

	write("internal/b/b_test.go", "package b\nfunc TestB(t *testing.T) { t.Parallel() }\nfunc TestC(t *testing.T) {}\n")
	require.Equal(t, []string{"a2", "b1"}, changed(), "they are killed by tests in that file")
	require.NoError(t, r.Note(root, all[1:2], all))
	require.Equal(t, []string{"a2", "b1"}, changed(), "not all of its mutants were tried")
	require.NoError(t, r.Note(root, all[1:3], all))
	require.Empty(t, changed())

	write("internal/a/a.go", "package a // changed")
	require.Equal(t, []string{"a1", "a2"}, changed())
	delete(r.KilledBy, "b1")
	require.Equal(t, []string{"a1", "a2", "b1"}, changed(), "nothing is known of it")
	require.NoError(t, os.Remove(filepath.Join(root, "internal/b/b.go")))
	require.Equal(t, []string{"a1", "a2", "b1", "b2"}, changed())
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := &Recorded{KilledBy: map[string]Kill{"a": {Test: Test{"p", "TestX"}}, "c": {Test: Test{"p", "TestX"}}},
		Survived: map[string]bool{"d": true}, Equivalent: map[string]string{"b": "it is the same anyway"}}
	table := r.Table([]Mutant{{ID: "a", Kind: Catalogue}, {ID: "b", Kind: Catalogue}, {ID: "d", Kind: Catalogue}})
	require.Contains(t, table, "| 3 | 1 | 1 | 1 | 66.7 % |", "an equivalent mutant is no survivor")
	page, err := WriteTable("before\n"+pageBegin+"old\n"+pageEnd+"after\n", table)
	require.NoError(t, err)
	require.Equal(t, "before\n"+pageBegin+table+pageEnd+"after\n", page)
	_, err = WriteTable("no place", table)
	require.ErrorIs(t, err, errNoPlace)
}

// TestCandidates: the tests that reach a mutant, and of those the cheap and
// specific ones first.
func TestCandidates(t *testing.T) {
	t.Parallel()
	test := func(pkg, name string, took time.Duration, reached ...int) Measured {
		return Measured{Test: Test{pkg, name}, Took: took, Reached: reached}
	}
	r := Runner{measured: []Measured{
		test("p", "TestSlow", 9*time.Second, 1), test("p", "TestElsewhere", time.Second, 2),
		test("p", "TestQuick", time.Second, 1),
		test("q", "TestOther", 2*time.Second, 1), test("r", "TestUnrelated", time.Second),
	}, score: []float64{9, 1, 1, 2, 1}}
	names := func(list []Measured) (names []string) {
		for _, m := range list {
			names = append(names, m.Name)
		}
		return names
	}
	found := r.candidates(Mutant{Kind: Go, reach: []int{1}})
	require.Equal(t, []string{"TestQuick", "TestOther", "TestSlow"}, names(found))

	now, took, rest := together(found, 5*time.Second)
	require.Equal(t, []string{"TestQuick"}, names(now), "one process has the tests of one package")
	require.Equal(t, time.Second, took)
	require.Equal(t, []string{"TestOther", "TestSlow"}, names(rest))
	now, _, rest = together(found, time.Minute)
	require.Equal(t, []string{"TestQuick", "TestSlow"}, names(now))
	require.Equal(t, []string{"TestOther"}, names(rest))
}
