package mutation

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// little is a service with two guards and one more condition, its tests, those of a package that depends on it, and those
// of the module beside.
var little = map[string]string{
	"go.mod": "module example.com/payonce\n\ngo 1.26\n",
	"internal/compare/compare.go": `package compare

func Paid(n int) bool {
	if n > 10 {
		return true
	}
	return false
}

func Late(n int) bool {
	if n > 10 {
		return true
	}
	return false
}

func Seldom(n int) bool {
	if n > 10 {
		return true
	}
	return false
}

func Unseen(n int) int {
	if n > 10 {
		n++
	}
	return n
}
`,
	"internal/compare/compare_test.go": `package compare

import (
	"testing"
	"time"
)

func TestMain(m *testing.M) { m.Run() }

func TestElsewhere(t *testing.T) { t.Parallel() }

func TestPaid(t *testing.T) {
	t.Parallel()
	t.Run("Sub", func(t *testing.T) {
		t.Parallel()
		if !Paid(11) || Paid(1) {
			t.Fatal("paid")
		}
	})
}

func TestLooksAway(t *testing.T) { time.Sleep(20*time.Millisecond); Unseen(11); Late(11); Seldom(11) }
`,
	"internal/payments/payments.go": "package payments\n\nimport \"example.com/payonce/internal/compare\"\n\nfunc Late(n int) bool { return compare.Late(n) }\n",
	"internal/payments/payments_test.go": `package payments_test

import (
	"testing"

	"example.com/payonce/internal/payments"
)

func TestLate(t *testing.T) {
	if !payments.Late(11) || payments.Late(1) {
		t.Fatal("late")
	}
}
`,
	"internal/broker/broker.go":        "package broker\n",
	"internal/broker/broker_test.go":   "package broker\n\nimport \"testing\"\n\nfunc TestIsRedAndTouchesNothing(t *testing.T) { t.Fatal() }\n",
	"proof/go.mod":                     "module example.com/payonce/proof\n\ngo 1.26\n\nrequire example.com/payonce v0.0.0\n\nreplace example.com/payonce => ../\n",
	"proof/night/compare/doc.go":       "package compare_test\n",
	"proof/night/starter/made_test.go": "package starter\n\nimport \"testing\"\n\nfunc TestIsRedAndIsNotRun(t *testing.T) { t.Fatal() }\n",
	"proof/night/compare/each_test.go": `package compare_test

import (
	"testing"

	"example.com/payonce/internal/compare"
)

func TestEach(t *testing.T) {
	for n := range 100 {
		if compare.Seldom(n) != (n >= 11) {
			t.Fatal(n)
		}
	}
}
`,
}

// TestRunner builds and runs a little service: its package's own tests come first, then those of a package that depends
// on it, and at last those of proof/night, for which the switches are laid into a module that is replaced.
func TestRunner(t *testing.T) {
	built, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	t.Setenv("GOCACHE", strings.TrimSpace(string(built)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // of what tests reach
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, text := range little {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	b := &Build{Root: root, dir: t.TempDir()}
	n := 0
	b.Mutants, b.replace, err = goMutants(root, b.dir, func() int { n++; return n })
	require.NoError(t, err)
	require.Len(t, b.Mutants, 8)
	require.NoError(t, b.addSwitch(b.replace))
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
	runner := func() *Runner {
		r, err := NewRunner(b, env, regexp.MustCompile(""))
		require.NoError(t, err)
		r.AtOnce, r.Progress = 2, t.Logf
		return r
	}
	inPackage, dependent, enumerated := Test{"internal/compare", "TestPaid"}, Test{"internal/payments", "TestLate"}, Test{"proof/night/compare", "TestEach"}
	outcome := func(results []Result) (by []Test, verdicts []Verdict) {
		for _, r := range results {
			by, verdicts = append(by, r.By.Test), append(verdicts, r.Verdict)
		}
		return by, verdicts
	}
	wantBy := []Test{inPackage, inPackage, dependent, dependent, enumerated, enumerated, {}, {}}
	want := []Verdict{Killed, Killed, Killed, Killed, Killed, Killed, Survived, Survived}

	results, err := runner().RunByPackage(t.Context(), b.Mutants)
	require.NoError(t, err)
	by, verdicts := outcome(results)
	require.Equal(t, wantBy, by)
	require.Equal(t, want, verdicts)
	require.Equal(t, 1, results[7].Tried+results[6].Tried, "only TestLooksAway reaches it, and only where it is false")

	late := runner()
	late.Within = time.Nanosecond
	results, err = late.RunByPackage(t.Context(), b.Mutants[6:])
	require.NoError(t, err)
	_, verdicts = outcome(results)
	require.Equal(t, []Verdict{Left, Left}, verdicts, "the time is over")

	hinted := runner()
	hinted.Hints = map[string]Kill{b.Mutants[4].ID: {Test: enumerated}}
	results, err = hinted.RunByPackage(t.Context(), b.Mutants[4:5])
	require.NoError(t, err)
	require.Equal(t, Kill{Test: enumerated}, results[0].By)

	_, err = runner().Run(t.Context(), b.Mutants)
	require.ErrorIs(t, err, errNotGreen, "a test that is red without a mutant shows nothing")
	require.NoError(t, os.Remove(filepath.Join(root, "internal/broker/broker_test.go")))
	for range 2 { // the second one knows from the cache what the tests reach
		require.NoError(t, b.writeOverlay(b.replace))
		b.some = false
		results, err = runner().Run(t.Context(), b.Mutants)
		require.NoError(t, err)
		by, verdicts = outcome(results)
		require.Equal(t, wantBy, by)
		require.Equal(t, want, verdicts)
	}
	require.NoError(t, b.writeOverlay(b.replace))
	b.some = false
	listed := runner()
	listed.Budget = func(string) time.Duration { return time.Nanosecond }
	results, err = listed.Run(t.Context(), b.Mutants[4:5])
	require.NoError(t, err)
	_, verdicts = outcome(results)
	require.Equal(t, []Verdict{Unknown}, verdicts, "TestLooksAway took longer, so TestEach, which kills it, is not tried")
	looksAway := Test{"internal/compare", "TestLooksAway"}
	for hangs, want := range map[time.Duration]Verdict{0: Survived, time.Millisecond: Killed} {
		hinted := runner()
		hinted.Hints = map[string]Kill{b.Mutants[6].ID: {looksAway, hangs}}
		results, err = hinted.Run(t.Context(), b.Mutants[6:7])
		require.NoError(t, err)
		require.Equal(t, want, results[0].Verdict, "it does not end within %s, as before", hangs)
		require.Equal(t, hangs, results[0].By.Hangs)
	}
	results, err = late.Run(t.Context(), b.Mutants)
	require.NoError(t, err)
	_, verdicts = outcome(results)
	require.Equal(t, slices.Repeat([]Verdict{Left}, len(b.Mutants)), verdicts, "the time is over")
}

func TestRank(t *testing.T) {
	t.Parallel()
	files := []string{"internal/payments/cancel.go", "db/queries/payments.sql"}
	require.Equal(t, 0, rank("internal/payments/cancel_test.go", files))
	require.Equal(t, 1, rank("internal/payments/cancel_swallow_test.go", files))
	require.Equal(t, 1, rank("internal/postgres/queries_payments_test.go", files))
	require.Equal(t, 2, rank("internal/payments/refund_test.go", files))
}
