package demo_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/demo"
	"example.com/payonce/testkit/process"
)

// The exit codes of the demo.
const (
	exitFailed      = 1
	exitInterrupted = 130
)

func TestMain(m *testing.M) { demo.Main(m) }

// titles are those of the scenes, from the list that the demo plays.
func titles(t *testing.T) (all []string) {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "cmd/demo/scenes.go"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t\ttitle: +"(.*)",$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	require.Greater(t, len(all), 20, "the list was not found")
	return all
}

func TestDemo(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-all")
	out, code := d.Wait()
	require.Zero(t, code, process.LastLines(out, 40))
	for _, title := range titles(t) {
		require.Equal(t, 2, strings.Count(out, "  "+title+"\n")+strings.Count(out, "  "+title+"  "),
			"scene %q is printed once and in the table once:\n%s", title, process.LastLines(out, 40))
	}
	require.NotContains(t, out, "FAILED")
	require.Contains(t, out, "charges at Stripe, per order")
	require.Regexp(t, `All \d+ scenes went as expected, all \d+ invariants hold`, out)
	require.NotContains(t, out, "\x1b", "colour is for terminals")
	d.LeftNothing()
	left, err := filepath.Glob(filepath.Join(d.Tmp, "payonce-demo-*"))
	require.NoError(t, err)
	require.Empty(t, left, "files")
}

// A demo that cannot fail shows nothing. The test charges the customer a second time
// at Stripe, and the demo must notice.
func TestDemo_NoticesASecondCharge(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-run", "pays|Refunds|lost")
	stripe := d.Await(`simulated at (http://\S+),`)[1]
	order := d.Await(`201 open  (ord_\w+)`)[1]
	demo.ChargeAgain(t, stripe, order)
	out, code := d.Wait()
	require.Equal(t, exitFailed, code, process.LastLines(out, 40))
	require.Contains(t, out, "FAILED  Stripe charged no order more than once")
	require.Contains(t, out, order+" was charged TWICE")
	require.Contains(t, out, "FAILED  every charge at Stripe belongs to a succeeded payment")
	log := regexp.MustCompile(`The API processes logged to (\S+)`).FindStringSubmatch(out)
	require.NotNil(t, log, out)
	text, err := os.ReadFile(log[1])
	require.NoError(t, err)
	require.Contains(t, string(text), `"msg":"serving"`)
	d.LeftNothing()
}

// Each scene fails if what it shows is taken out of the service: an API without one guard of each is built, and played.
func TestDemo_NoticesAMissingGuard(t *testing.T) {
	t.Parallel()
	api := buildWithout(t, map[string][2]string{
		// A capture that is taken over is looked up at Stripe.
		"internal/payments/capture.go": {
			"\t\t\treturn s.settleCapture(ctx, c, p, call, end, stripe.FromRead(intent))",
			`return s.captureRefused(ctx, c, p, call, end, stripe.Outcome{Effect: stripe.Refused, ErrorCode: "provider_error"})`,
		},
		// A payment is called canceled when its intent is canceled at Stripe.
		"internal/payments/cancel.go": {
			`intent, out, err := s.CancelIntent(ctx, c, p)`,
			`intent, out, err := stripe.Intent{ID: *p.IntentID, Status: stripe.IntentCanceled}, stripe.Outcome{}, error(nil)`,
		},
		// Only a dispute that was won gives the money back, and says so.
		"internal/disputes/apply.go": {`return "dispute.lost"`, `return "dispute.won"`},
	})
	for _, c := range []struct{ scene, failure string }{
		{"An authorization is released", `0\.00 EUR was released of ord_\w+, expected 26\.00 EUR`},
		{"Two disputes", `the events of dsp_\w+ end with dispute\.won, expected dispute\.lost`},
		{"kill -9 in the middle of a capture", `expected 200 succeeded, got 402 payment-failed`},
	} {
		t.Run(c.scene, func(t *testing.T) {
			t.Parallel()
			program, _ := demo.Programs(t)
			d := demo.StartCommand(t, nil, program, "-api", api, "-run", c.scene)
			out, code := d.Wait()
			require.Equal(t, exitFailed, code, process.LastLines(out, 40))
			require.Regexp(t, `FAILED scene 1: `+c.failure, out)
			d.LeftNothing()
		})
	}
}

// buildWithout builds the API with a text of some files replaced.
func buildWithout(t *testing.T, guards map[string][2]string) (program string) {
	t.Helper()
	dir := t.TempDir()
	root, err := process.Root()
	require.NoError(t, err)
	replace := map[string]string{}
	for file, guard := range guards {
		path := filepath.Join(root, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), guard[0]), "the guard is no longer in %s: %s", file, guard[0])
		replace[path] = filepath.Join(dir, filepath.Base(file))
		changed := strings.Replace(string(text), guard[0], guard[1], 1)
		require.NoError(t, os.WriteFile(replace[path], []byte(changed), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	program = filepath.Join(dir, "service")
	require.NoError(t, process.Build(t.Context(), "cmd/api", program, "-tags", "faults", "-overlay", file))
	return program
}

// However the demo ends, what it started ends with it.
func TestDemo_LeavesNobodyBehind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		moment string // a line to wait for
		end    os.Signal
		code   int
	}{
		{"CtrlCWhileStarting", `every order is charged once|Every order is charged once`, os.Interrupt,
			exitInterrupted},
		{"CtrlCInAScene", `Fifty duplicates`, os.Interrupt, exitInterrupted},
		{"CtrlCWithAProcessDead", `is killed with SIGKILL`, os.Interrupt, exitInterrupted},
		{"Killed", `Fifty duplicates`, os.Kill, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := demo.Start(t, nil, "-run", "Fifty|after the charge")
			d.Await(c.moment)
			require.NoError(t, d.Cmd.Process.Signal(c.end))
			out, code := d.Wait()
			require.Equal(t, c.code, code, process.LastLines(out, 40))
			d.LeftNothing()
		})
	}

	// A signal ends the go command, which does not pass it on to the program it runs.
	t.Run("GoRunKilled", func(t *testing.T) {
		t.Parallel()
		_, api := demo.Programs(t)
		root, err := process.Root()
		require.NoError(t, err)
		d := demo.StartCommand(t, nil, "go", "run", "-C", filepath.Join(root, "cmd/demo"), ".", "-api", api)
		d.Await(`Fifty duplicates`)
		require.NoError(t, d.Cmd.Process.Kill())
		_, _ = d.Wait()
		d.LeftNothing()
	})
}

func TestServe(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-serve", "-run", "pays|expired")
	d.Await(`Ctrl-C ends it`)
	said := d.Output()

	// What -serve runs is a system that runs elsewhere.
	against := demo.Find(t, said, `(?m)^  API A +(http://\S+)$`) + "," + demo.Find(t, said,
		`(?m)^  API B +(http://\S+)$`)
	simulator := demo.Find(t, said, `its records at (\S+)/effects`)

	t.Run("WhileItServes", func(t *testing.T) {
		t.Run("TheLinesForCurlWork", func(t *testing.T) {
			t.Parallel()
			lines := regexp.MustCompile(`(?m)^curl .*$`).FindAllString(said, -1)
			require.Len(t, lines, 3)
			curl := func(line string) string {
				out, err := exec.Command("sh", "-c",
					line).Output() // curl is what the lines are for: without it this fails
				require.NoError(t, err, line)
				return string(out)
			}
			first := curl(lines[0])
			require.Contains(t, first, "201 Created")
			again := curl(lines[0])
			require.Contains(t, again, "Idempotent-Replayed: true")
			require.Equal(t, first[strings.Index(first, "{"):], again[strings.Index(again, "{"):])
			require.Contains(t, curl(lines[1]), "422 Unprocessable")
			require.Contains(t, curl(lines[2]), `"status":"paid"`)
			export := regexp.MustCompile(`(?m)^export API=.*$`).FindString(said)
			require.Contains(t, curl(export+`; curl -i -H "Authorization: Bearer $API_KEY" "$API/v1/orders"`), "200 OK")
			api := strings.Split(against, ",")[0]
			export = regexp.MustCompile(`(?m)^export PAYONCE_API_KEY=.*$`).FindString(said)
			for _, url := range []string{
				export + `; curl -i -H "Authorization: Bearer $PAYONCE_API_KEY" ` + api + "/v1/orders",
				export + `; curl -i -H "Authorization: Bearer $PAYONCE_OTHER_API_KEY" ` + api + "/v1/orders",
				export + `; curl -i "$STRIPESIM_ADMIN/effects"`,
			} {
				require.Contains(t, curl(url), "200 OK")
			}
		})

		t.Run("TheDocsAndTheOperatorsPageAreThere", func(t *testing.T) {
			t.Parallel()
			for _, page := range []string{`Docs +(\S+)`, `Operator +(\S+)`} {
				res, err := http.Get(demo.Find(t, said, page))
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusOK, res.StatusCode, page)
			}
		})

		t.Run("AgainstWithAKey", func(t *testing.T) {
			t.Parallel()
			for range 2 { // with one tenant twice: the keys must not meet
				e := demo.Start(t, nil, "-run", "Fifty|lost|after the charge", "-against", against, "-simulator",
					simulator, "-key", demo.Find(t, said, `API key +(\S+)`))
				out, code := e.Wait()
				require.Zero(t, code, process.LastLines(out, 40))
				require.Contains(t, out, "Fifty duplicates")
				require.NotContains(t, out, "kill -9")
			}
		})
		t.Run("AgainstWithTheDatabase", func(t *testing.T) {
			t.Parallel()
			dsn := demo.Find(t, said, `psql '(\S+)'`)
			e := demo.Start(t,
				[]string{"DATABASE_URL=" + dsn, "DATA_KEY=" + demo.Find(t, said, `DATA_KEY=([^,\s]+)`),
					"DEMO_AGAINST=" + against, "DEMO_SIMULATOR=" + simulator}, "-all")
			out, code := e.Wait()
			require.Zero(t, code, process.LastLines(out, 40))
			require.Contains(t, out, "ok  no request, webhook or event is unfinished")
		})
		t.Run("OnANamedServer", func(t *testing.T) {
			t.Parallel()
			e := demo.Start(t, []string{"DATABASE_URL=" + demo.Find(t, said, `psql '(\S+)'`)}, "-run", "pays|restored")
			out, code := e.Wait()
			require.Zero(t, code, process.LastLines(out, 40))
			require.Contains(t, out, "from DATABASE_URL")
			e.LeftNothing()
		})
	})

	require.NoError(t, d.Cmd.Process.Signal(os.Interrupt))
	out, code := d.Wait()
	require.Zero(t, code, process.LastLines(out, 40))
	d.LeftNothing()
}
