package mutation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecorded(t *testing.T) {
	t.Parallel()
	by := Kill{Test: Test{"internal/a", "TestX"}}
	r := &Recorded{KilledBy: map[string]Kill{"m1": by, "gone": by}, Survived: map[string]bool{"m2": true, "m4": true}}
	all := []Mutant{{ID: "m1"}, {ID: "m2"}, {ID: "m3"}, {ID: "m4"}, {ID: "m5"}}
	r.Add([]Result{{Mutant: all[1], Verdict: Killed, By: Kill{by.Test, 90 * time.Second}}, {Mutant: all[2], Verdict: Survived},
		{Mutant: all[3], Verdict: Left}, {Mutant: all[4]}}, all)
	r.Last = Night{"2026-11-29", "01234567, and what was not committed", 90 * time.Minute}
	require.Equal(t, preamble+"# all of them: 2026-11-29, commit 01234567, and what was not committed, in 1h30m0s\n\n"+
		"internal/a TestX\n\tm1\n\ninternal/a TestX does not end in 1m30s\n\tm2\n\nno test\n\tm3\n\tm4\n", r.text())

	file := filepath.Join(t.TempDir(), "out", "results.txt")
	empty, err := ReadRecorded(file)
	require.NoError(t, err, "nothing depends on a record")
	require.Empty(t, empty.KilledBy)
	require.NoError(t, r.Write(file))
	again, err := ReadRecorded(file)
	require.NoError(t, err)
	require.Equal(t, r, again)
}

func TestLists(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	read := func(equivalent, survivors string) (Lists, error) {
		for name, text := range map[string]string{EquivalentFile: equivalent, SurvivorsFile: survivors} {
			path := filepath.Join(root, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		return ReadLists(root)
	}
	lists, err := read("# comment\nm1\tIt is the same anyway.\n", "# comment\n\nNo test waits so long.\n\tm2\n\tm3\n\nNobody ever saw it.\n\tm4\n")
	require.NoError(t, err)
	require.Equal(t, Lists{map[string]string{"m1": "It is the same anyway."},
		map[string]string{"m2": "No test waits so long.", "m3": "No test waits so long.", "m4": "Nobody ever saw it."}}, lists)
	for _, bad := range [][2]string{{"m1\n", ""}, {"m1\tthe same\n", ""}, {"m1\tIt is the same anyway.\nm1\tIt is the same anyway.\n", ""},
		{"", "\tm2\n"}, {"", "too short\n\tm2\n"}, {"", "No test waits so long.\n\tm2\n\tm2\n"}} {
		_, err := read(bad[0], bad[1])
		require.Error(t, err, "%q", bad)
	}

	all := []Mutant{{ID: "m1", Kind: SQL}, {ID: "m2", Kind: SQL}, {ID: "m3", Kind: Catalogue}}
	for range 39 {
		all = append(all, Mutant{Kind: Go, Unit: "payments"})
	}
	all = append(all, Mutant{ID: "g1", Kind: Go, Unit: "payments"})
	lists.Survivors = map[string]string{"g1": "No test waits so long."}
	require.Empty(t, lists.Wrong(all))
	lists.Survivors["m2"], lists.Survivors["m3"], lists.Survivors["m1"], lists.Survivors["gone"] = "x", "x", "x", "x"
	lists.Equivalent["gone as well"] = "x"
	require.Len(t, lists.Wrong(all), 6)
	few := Lists{Survivors: map[string]string{"g1": "No test waits so long."}}
	require.Equal(t, []string{"of the conditions of payments 94.7 % are killed or equivalent, less than 95 %"}, few.Wrong(all[len(all)-19:]))
}

// TestJudge: a mutant that survives every test is red unless a list has it, and one that was left is not.
func TestJudge(t *testing.T) {
	t.Parallel()
	of := func(id string, v Verdict) Result { return Result{Mutant: Mutant{ID: id}, Verdict: v} }
	lists := Lists{Equivalent: map[string]string{"e1": "x", "e2": "x"}, Survivors: map[string]string{"s1": "x", "s2": "x"}}
	j := lists.Classify([]Result{of("e1", Survived), of("e2", Killed), of("s1", Survived), of("s2", Killed), of("k", Killed),
		of("new", Survived), of("undecided", Unknown), of("left", Left), of("never", "")})
	ids := func(list []Result) (ids []string) {
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		return ids
	}
	require.Equal(t, []int{2, 1, 1}, []int{j.Killed, j.Equivalent, j.Known})
	require.Equal(t, []string{"new", "undecided"}, ids(j.New))
	require.Equal(t, []string{"left", "never"}, ids(j.Left))
	require.Equal(t, []string{"e2"}, ids(j.Misplaced))
	require.Equal(t, []string{"s2"}, ids(j.Better))
}

// TestChangesSince: git says which lines differ, committed or not.
func TestChangesSince(t *testing.T) {
	root := t.TempDir()
	t.Setenv(BaseVar, "")
	run := func(args ...string) {
		t.Helper()
		_, err := git(t.Context(), root, append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		require.NoError(t, err)
	}
	write := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	run("init", "-q", "-b", "main")
	query := "package db\n\nconst orderGet = `-- name: OrderGet :one\nSELECT * FROM orders WHERE id = $1 AND %s\n`\n"
	write("internal/a/a.go", "1\n2\n3\n4\n5\n6\n")
	write("internal/a/gone.go", "1\n")
	write("db/orders.sql.go", fmt.Sprintf(query, "open"))
	write("db/schema.sql", "CREATE TABLE x (\n    CONSTRAINT a CHECK (true)\n);\n")
	run("add", "-A")
	run("commit", "-q", "-m", "one")
	c, err := ChangesSince(t.Context(), root, "")
	require.NoError(t, err)
	require.True(t, c.Touch("internal/a/a.go", 1, 1), "without a commit before, everything has changed")
	write("internal/a/a.go", "1\ntwo\n3\n4\n5\n6\n")
	run("commit", "-q", "-a", "-m", "two")
	write("internal/a/a.go", "1\ntwo\n3\n4\n6\n7\n")
	run("rm", "-q", "internal/a/gone.go")
	write("internal/a/a_test.go", "package a\nfunc TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) {}\n")
	write("db/orders.sql.go", fmt.Sprintf(query, "status = 'open'"))
	write("db/schema.sql", "CREATE TABLE x (\n    CONSTRAINT a CHECK (true),\n    CONSTRAINT b CHECK (true)\n);\n")

	t.Setenv(BaseVar, "HEAD")
	c, err = ChangesSince(t.Context(), root, "")
	require.NoError(t, err)
	require.False(t, c.Touch("internal/a/a.go", 2, 2), "changed in the last commit, not since")
	t.Setenv(BaseVar, "")
	c, err = ChangesSince(t.Context(), root, "")
	require.NoError(t, err)
	require.True(t, c.Touch("internal/a/a.go", 2, 2))
	require.True(t, c.Touch("internal/a/a.go", 1, 9))
	require.False(t, c.Touch("internal/a/a.go", 3, 3))
	require.True(t, c.Touch("internal/a/a.go", 4, 4), "what stood below it is gone")
	require.True(t, c.Touch("internal/a/a.go", 6, 6))
	require.False(t, c.Has("internal/a/gone.go"))
	require.Equal(t, []string{"internal/a/a_test.go"}, c.TestFiles())

	b := &Build{Root: root, Mutants: []Mutant{
		{ID: "a2", Kind: Go, File: "internal/a/a.go", Line: 2, to: 2}, {ID: "a3", Kind: Go, File: "internal/a/a.go", Line: 3, to: 3},
		{ID: "schema: x without a", Kind: Catalogue, File: "db/schema.sql"}, {ID: "schema: x without b", Kind: Catalogue, File: "db/schema.sql"},
		{ID: "orderGet: AND id = $1 left out", Kind: SQL, query: "orderGet", source: "db/orders.sql.go"},
		{ID: "orderGet: AND status = 'open' left out", Kind: SQL, query: "orderGet", source: "db/orders.sql.go"},
	}}
	changed, err := b.Changed(t.Context(), c)
	require.NoError(t, err)
	var ids []string
	for _, m := range changed {
		ids = append(ids, m.ID)
	}
	// The comma behind a is on its line.
	require.Equal(t, []string{"a2", "schema: x without a", "schema: x without b", "orderGet: AND status = 'open' left out"}, ids)

	r := &Recorded{KilledBy: map[string]Kill{"a2": {Test: Test{"internal/b", "TestA"}}, "a3": {Test: Test{"internal/a", "TestA"}}}}
	killed, err := r.KilledIn(root, c.TestFiles(), b.Mutants)
	require.NoError(t, err)
	require.Equal(t, b.Mutants[1:2], killed)
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := &Recorded{KilledBy: map[string]Kill{"a": {Test: Test{"p", "TestX"}}, "c": {Test: Test{"p", "TestX"}}},
		Survived: map[string]bool{"d": true}, Last: Night{"2026-11-29", "01234567", time.Hour}}
	table := r.Table([]Mutant{{ID: "a", Kind: Catalogue}, {ID: "b", Kind: Catalogue}, {ID: "d", Kind: Catalogue}},
		Lists{Equivalent: map[string]string{"b": "it is the same anyway"}})
	require.Contains(t, table, "| 3 | 1 | 1 | 1 | 66.7 % |", "an equivalent mutant is no survivor")
	require.Contains(t, table, "the run of 2026-11-29 at commit 01234567, which took 1h0m0s")
	page, err := WriteTable("before\n"+pageBegin+"old\n"+pageEnd+"after\n", table)
	require.NoError(t, err)
	require.Equal(t, "before\n"+pageBegin+table+pageEnd+"after\n", page)
	_, err = WriteTable("no place", table)
	require.ErrorIs(t, err, errNoPlace)
}

// TestMeasured: what was reached belongs to the test whose name package testing wrote last.
func TestMeasured(t *testing.T) {
	t.Parallel()
	output := "\x16=== RUN   TestA\n\x16=== RUN   TestA/sub\n    \x16--- PASS: TestA/sub (0.10s)\n\x16--- PASS: TestA (0.25s)\n" +
		"no line end\x16=== RUN   TestB\n\x16--- PASS: TestB (1.00s)\n" +
		// Of a test whose subtests run in parallel, package testing counts only what the test did before them.
		"\x16--- PASS: TestC (0.00s)\n\x16    --- PASS: TestC/a (0.01s)\n\x16        --- PASS: TestC/a/b (20.00s)\n" +
		"\x16        --- PASS: TestC/a/c (5.00s)\n\x16    --- PASS: TestC/d (30.00s)\n"
	all, err := measuredOf("internal/a", []string{"TestA", "TestB", "TestC"}, output, "- 9\nTestA 7\nTestB 3\nTestA 2\nTestA 7\n")
	require.NoError(t, err)
	require.Equal(t, []Measured{{Test{"internal/a", "TestA"}, 250 * time.Millisecond, []int{2, 7, 9}},
		{Test{"internal/a", "TestB"}, time.Second, []int{3, 9}}, {Test{"internal/a", "TestC"}, 55 * time.Second, []int{9}}}, all)
	_, err = measuredOf("internal/a", nil, "", "TestA x\n")
	require.Error(t, err)
}

// TestCandidates: the tests that reach a mutant, and of those the cheap and
// specific ones first.
func TestCandidates(t *testing.T) {
	t.Parallel()
	test := func(pkg, name string, took time.Duration, reached ...int) Measured {
		return Measured{Test: Test{pkg, name}, Took: took, Reached: reached}
	}
	all := []Measured{
		test("p", "TestSlow", 9*time.Second, 1), test("p", "TestElsewhere", time.Second, 2),
		test("p", "TestQuick", time.Second, 1),
		test("q", "TestOther", 2*time.Second, 1), test("r", "TestUnrelated", time.Second),
		test("proof/night/p", "TestEach", time.Millisecond, 1),
	}
	names := func(list []Measured) (names []string) {
		for _, m := range list {
			names = append(names, m.Name)
		}
		return names
	}
	found := (&Runner{}).candidates(Mutant{Kind: Go, reach: []int{1}}, all)
	require.Equal(t, []string{"TestQuick", "TestOther", "TestSlow", "TestEach"}, names(found), "the night's tests come last")
	found = found[:3]

	now, took, rest := together(found, 5*time.Second)
	require.Equal(t, []string{"TestQuick"}, names(now), "one process has the tests of one package")
	require.Equal(t, time.Second, took)
	require.Equal(t, []string{"TestOther", "TestSlow"}, names(rest))
	now, _, rest = together(found, time.Minute)
	require.Equal(t, []string{"TestQuick", "TestSlow"}, names(now))
	require.Equal(t, []string{"TestOther"}, names(rest))
}
