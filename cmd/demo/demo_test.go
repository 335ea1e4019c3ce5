package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// The tests below use the demo as anybody would: its program, from outside.

func TestMain(m *testing.M) { demo.Main(m) }

func TestDemo(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-all")
	out, code := d.Wait()
	require.Zero(t, code, out)
	for _, s := range scenes {
		require.Equal(t, 2, strings.Count(out, "  "+s.title+"\n")+strings.Count(out, "  "+s.title+"  "),
			"scene %q is printed once and in the table once:\n%s", s.title, out)
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

// Who tries the demo for the first time should not have to wait for every scene.
func TestDemo_PlaysThreeScenesByDefault(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil)
	out, code := d.Wait()
	require.Zero(t, code, out)
	for _, s := range scenes {
		want := 0
		if s.short {
			want = 1
		}
		require.Equal(t, want, strings.Count(out, "  "+s.title+"\n"), "scene %q:\n%s", s.title, out)
	}
	require.Contains(t, out, "All 3 scenes went as expected")
	require.Contains(t, out, fmt.Sprintf("go run ./cmd/demo -all    plays all %d scenes", len(scenes)))
	require.Contains(t, out, "go run ./cmd/demo -serve  keeps it running")
	printsWhatTheReadmeShows(t, out)
	d.LeftNothing()
}

// printsWhatTheReadmeShows checks that the demo prints every line of the scenes that
// the README shows, apart from times, process ids and the run's nonce.
func printsWhatTheReadmeShows(t *testing.T, out string) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	shown := demo.Find(t, string(readme), "(?s)```text\n( 1  .*?)\nWhat happened\n") +
		demo.Find(t, string(readme), "(?s)\n(Invariants\n.*?)\nAll 3 scenes")
	times := regexp.MustCompile(`\d+(\.\d+)? m?s\b|Retry-After: \d+`)
	nonce, number := regexp.MustCompile(`\b(\w+-\d+)-[0-9a-f]{4}\b`), regexp.MustCompile(`\(\d+\)`)
	// On a busy machine some of fifty duplicates come when the first has been answered, or wait until they are told to retry.
	duplicates := regexp.MustCompile(`[ ,]*(201 payment succeeded( \(replayed\))?|202 payment processing|` +
		`409 idempotency-key-in-flight|503 unavailable)( ×\d+)?`)
	many := regexp.MustCompile(`\d+ × POST|×\d+$`)
	mask := func(line string) string {
		line = regexp.MustCompile(`\b(ord|ch)_\w+`).ReplaceAllString(line, "${1}_…")
		line = times.ReplaceAllString(line, "a while")
		line = many.ReplaceAllString(duplicates.ReplaceAllString(strings.TrimSpace(line), ""), "many")
		line = nonce.ReplaceAllString(line, "$1")
		return strings.Join(strings.Fields(number.ReplaceAllString(line, "")), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[mask(line)] = true
	}
	for line := range strings.Lines(shown) {
		require.True(t, printed[mask(line)], "the README shows a line that the demo does not print: %s\n%s", line, out)
	}
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
	require.Equal(t, exitFailed, code, out)
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
			require.Equal(t, exitFailed, code, out)
			require.Regexp(t, `FAILED scene 1: `+c.failure, out)
			d.LeftNothing()
		})
	}
}

// buildWithout builds the API with a text of some files replaced.
func buildWithout(t *testing.T, guards map[string][2]string) (program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: building an API takes ten seconds")
	}
	dir, root := t.TempDir(), findSourceTree().root.Name()
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
			require.Equal(t, c.code, code, out)
			d.LeftNothing()
		})
	}

	// A signal ends the go command, which does not pass it on to the program it runs.
	t.Run("GoRunKilled", func(t *testing.T) {
		t.Parallel()
		_, api := demo.Programs(t)
		d := demo.StartCommand(t, nil, "go", "run", ".", "-api", api)
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
				require.Zero(t, code, out)
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
			require.Zero(t, code, out)
			require.Contains(t, out, "ok  no request, webhook or event is unfinished")
		})
		t.Run("OnANamedServer", func(t *testing.T) {
			t.Parallel()
			e := demo.Start(t, []string{"DATABASE_URL=" + demo.Find(t, said, `psql '(\S+)'`)}, "-run", "pays|restored")
			out, code := e.Wait()
			require.Zero(t, code, out)
			require.Contains(t, out, "from DATABASE_URL")
			e.LeftNothing()
		})
	})

	require.NoError(t, d.Cmd.Process.Signal(os.Interrupt))
	out, code := d.Wait()
	require.Zero(t, code, out)
	d.LeftNothing()
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"now"}, {"-against", "http://a"}, {"-against", "http://a", "-simulator", "http://s"},
		{"-serve", "-against", "http://a", "-simulator", "http://s", "-key", "k"},
	} {
		var said bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, io.Discard, &said)
		require.Equal(t, exitCouldNotRun, code, args)
		require.Len(t, strings.Split(strings.TrimSpace(said.String()), "\n"), 1, "one line says what is wrong: %s",
			&said)
	}
}
