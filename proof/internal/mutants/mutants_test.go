package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// TestTable holds the mutants to the source without running any: each still
// applies and is Go or SQL, its test exists where it says, and the page shows it
// as it is.
func TestTable(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	tests, err := inventory.FindTests()
	require.NoError(t, err)
	for i, m := range All {
		require.Equal(t, "M"+strconv.Itoa(i+1), m.ID)
		require.True(t, tests.Has(m.Test.Package, asRun(m.Test.Name)), "%s: %s has no %s", m.ID, m.Test.Package, m.Test.Name)
		source, err := inventory.Read(m.Test.file())
		require.NoError(t, err)
		top, _, _ := strings.Cut(m.Test.Name, "/")
		require.Contains(t, source, "func "+top+"(", m.ID)
		require.NotEmpty(t, m.Test.Says, "%s: red from anything is not enough", m.ID)

		dir := t.TempDir()
		_, err = m.overlay(root, dir)
		require.NoError(t, err)
		mutated, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range mutated {
			_, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err, m.ID)
		}
	}
	require.Len(t, All, 30)
}

func TestPage(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read(Page)
	require.NoError(t, err)
	shown, err := Rows(page)
	require.NoError(t, err)
	var want []string
	for _, m := range All {
		want = append(want, m.row())
	}
	require.Equal(t, want, shown, "%s shows other mutants: go run -C proof ./mutants -write", Page)
}

// TestVerdict: a run that shows nothing must never look like one that does.
func TestVerdict(t *testing.T) {
	t.Parallel()
	m := Mutant{Test: Test{Name: "TestX/a sub", Says: "paid once"}}
	for name, c := range map[string]struct {
		ran  outcome
		want Verdict
	}{
		"TheNamedTestNamesThePromise": {outcome{true, true, 0, "x_test.go:1: paid\n\t   once\n    --- FAIL: " +
			"TestX/a_sub (0.01s)\n"}, Red},
		"NobodyComplains":   {outcome{true, false, 0, "    --- PASS: TestX/a_sub (0.01s)\nPASS\n"}, Survived},
		"NoTestHasThatName": {outcome{true, false, 0, "testing: warning: no tests to run\nPASS\n"}, NotRun},
		"TheTestIsSkipped":  {outcome{true, false, 0, "    --- SKIP: TestX/a_sub (0.01s)\nPASS\n"}, NotRun},
		"ItIsNotGo":         {outcome{false, false, 0, "undefined: x"}, NotCompiled},
		"ItComplainsOfSomethingElse": {outcome{true, true, 0, "connection refused\n    --- FAIL: TestX/a_sub " +
			"(0.01s)\n"}, RedOtherwise},
		"AnotherTestComplains": {outcome{true, true, 0, "paid once\n    --- FAIL: TestX/another (0.01s)\n    --- " +
			"PASS: TestX/a_sub (0.01s)\n"}, RedOtherwise},
		"TheWholeProcessDied": {outcome{true, true, 0, "paid once\npanic: test timed out"}, RedOtherwise},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, m.verdict(c.ran))
		})
	}
}

// TestRunner runs a guard, its test and three mutants of it, for real.
func TestRunner(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module guarded\n\ngo 1.24\n",
		"lock/lock.go": "package lock\n\nfunc Locked() bool { return true }\n",
		"lock/lk_test.go": "package lock\n\nimport \"testing\"\n\nfunc TestLock(t *testing.T) {\n\tt.Run(\"Holds\", " +
			"func(t *testing.T) {\n\t\tif !Locked() {\n\t\t\tt.Fatal(\"the door is open\")\n\t\t}\n\t})\n}\n",
		// The other module's test sees the guard from outside.
		"proof/go.mod": "module guarded/proof\n\ngo 1.24\n\nrequire guarded v0.0.0\n\nreplace guarded => ../\n",
		"proof/lock/lk_test.go": "package lock_test\n\nimport (\n\t\"testing\"\n\n\t\"guarded/lock\"\n)\n\nfunc " +
			"TestDoor(t *testing.T) {\n\tif !lock.Locked() {\n\t\tt.Fatal(\"the door is open to the other module\")\n\t}\n}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	test := Test{"lock", "lk_test.go", "TestLock/Holds", "the door is open"}
	mutant := func(with string) Mutant {
		return Mutant{Edits: []Edit{{"lock/lock.go", "return true", with}}, Test: test}
	}
	all := []Mutant{mutant("return false"), mutant("return 1 < 2"), mutant("return"), {Edits: []Edit{{"lock/lock." +
		"go", "no such text", ""}}, Test: test}}
	outside := mutant("return false")
	outside.Test = Test{"proof/lock", "lk_test.go", "TestDoor", "the door is open to the other module"}
	all = append(all, outside)
	r := Runner{Root: root, AtOnce: 2, Progress: t.Logf, Env: []string{"GOWORK=off", "GOFLAGS="}}
	require.NoError(t, r.Sound(t.Context(), all))
	var verdicts []Verdict
	for _, result := range r.Run(t.Context(), all) {
		verdicts = append(verdicts, result.Verdict)
	}
	require.Equal(t, []Verdict{Red, Survived, NotCompiled, NotApplied, Red}, verdicts)
	text, err := os.ReadFile(filepath.Join(root, "lock", "lock.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), "return true", "the source was touched")

	broken := all[:1:1]
	broken[0].Test.Name = "TestLock/IsNotThere"
	require.ErrorIs(t, r.Sound(t.Context(), broken), errSound)
}

func TestWrite(t *testing.T) {
	t.Parallel()
	page := "before\n" + tableBegin + tableEnd + "after\n"
	m := Mutant{ID: "M1", Guard: "a guard", Breaks: "I1", Test: Test{"p", "p_test.go", "TestX/a sub", "paid once"}}
	written, err := Write(page, []Result{{Mutant: m, Verdict: Red, Took: 1234 * time.Millisecond}})
	require.NoError(t, err)
	require.Contains(t, written, "| M1 | a guard | I1 | [`TestX/a_sub`](../p/p_test.go) | “paid once” | 1.2 s |\n")
	rows, err := Rows(written)
	require.NoError(t, err)
	require.Equal(t, []string{m.row()}, rows)
	again, err := Write(written, []Result{{Mutant: m, Verdict: Red, Took: time.Second}})
	require.NoError(t, err)
	require.Equal(t, strings.Replace(written, "1.2 s", "1.0 s", 1), again)
	_, err = Write(page, []Result{{Mutant: m, Verdict: Survived}})
	require.Error(t, err)
	_, err = Write("a page without a place", nil)
	require.ErrorIs(t, err, errNoPlace)
}
