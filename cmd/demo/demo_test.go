package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// The tests below use the demo as anybody would: its program, from outside.

func TestDemo(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "-all")
	out, code := d.wait()
	require.Zero(t, code, out)
	for _, s := range scenes {
		require.Equal(t, 2, strings.Count(out, "  "+s.title+"\n")+strings.Count(out, "  "+s.title+"  "), "scene %q is told once and in the table once:\n%s", s.title, out)
	}
	require.NotContains(t, out, "FAILED")
	require.Contains(t, out, "charges at Stripe, per order")
	require.Regexp(t, `All \d+ scenes went as expected, all \d+ invariants hold`, out)
	require.NotContains(t, out, "\x1b", "colour is for terminals")
	d.leftNothing()
	left, err := filepath.Glob(filepath.Join(d.tmp, "payonce-demo-*"))
	require.NoError(t, err)
	require.Empty(t, left, "files")
}

// Who tries the demo for the first time should not have to wait for every scene.
func TestDemo_PlaysThreeScenesByDefault(t *testing.T) {
	t.Parallel()
	d := start(t, nil)
	out, code := d.wait()
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
	d.leftNothing()
}

// printsWhatTheReadmeShows checks that the demo prints every line of the scenes that
// the README shows, apart from times, process ids and the run's nonce.
func printsWhatTheReadmeShows(t *testing.T, out string) {
	readme, err := inventory.Read("README.md")
	require.NoError(t, err)
	shown := find(t, readme, "(?s)```text\n( 1  .*?)\nWhat happened\n")
	times, nonce, number := regexp.MustCompile(`\d+(\.\d+)? m?s\b`), regexp.MustCompile(`(key \w+-\d+)-[0-9a-f]{4}\b`), regexp.MustCompile(`\(\d+\)`)
	mask := func(line string) string {
		line = times.ReplaceAllString(line, "a while")
		line = nonce.ReplaceAllString(line, "$1")
		return strings.Join(strings.Fields(number.ReplaceAllString(line, "")), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[mask(line)] = true
	}
	for line := range strings.Lines(shown) {
		require.True(t, printed[mask(line)], "the README shows a line that the demo does not print: %s", line)
	}
}

// A demo that cannot fail shows nothing. Behind everybody's back the customer is
// charged a second time, and the demo must notice.
func TestDemo_NoticesASecondCharge(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "-run", "pays|Refunds|lost")
	stripe := d.await(`simulated at (http://\S+),`)[1]
	order := d.await(`201 open  (ord_\w+)`)[1]
	chargeAgain(t, stripe, order)
	out, code := d.wait()
	require.Equal(t, exitFailed, code, out)
	require.Contains(t, out, "FAILED  Stripe charged no order more than once")
	require.Contains(t, out, order+" was charged TWICE")
	require.Contains(t, out, "FAILED  every charge at Stripe belongs to a succeeded payment")
	log := regexp.MustCompile(`The API processes logged to (\S+)`).FindStringSubmatch(out)
	require.NotNil(t, log, out)
	text, err := os.ReadFile(log[1])
	require.NoError(t, err)
	require.Contains(t, string(text), `"msg":"serving"`)
	d.leftNothing()
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
		{"CtrlCWhileStarting", `every order is charged once|Every order is charged once`, os.Interrupt, exitInterrupted},
		{"CtrlCInAScene", `Fifty duplicates`, os.Interrupt, exitInterrupted},
		{"CtrlCWithAProcessDead", `is killed with SIGKILL`, os.Interrupt, exitInterrupted},
		{"Killed", `Fifty duplicates`, os.Kill, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, nil, "-run", "Fifty|after the charge")
			d.await(c.moment)
			require.NoError(t, d.cmd.Process.Signal(c.end))
			out, code := d.wait()
			require.Equal(t, c.code, code, out)
			d.leftNothing()
		})
	}

	// The go command dies of a signal without telling the program it runs.
	t.Run("GoRunKilled", func(t *testing.T) {
		t.Parallel()
		d := startCommand(t, nil, "go", "run", ".", "-api", programs(t).api)
		d.await(`Fifty duplicates`)
		require.NoError(t, d.cmd.Process.Kill())
		_, _ = d.wait()
		d.leftNothing()
	})
}

func TestServe(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "-serve", "-run", "pays|expired")
	d.await(`Ctrl-C ends it`)
	said := d.said()

	// What -serve runs is a system that runs elsewhere.
	against := find(t, said, `(?m)^  API A +(http://\S+)$`) + "," + find(t, said, `(?m)^  API B +(http://\S+)$`)
	simulator := find(t, said, `its records at (\S+)/effects`)

	t.Run("WhileItServes", func(t *testing.T) {
		t.Run("TheLinesForCurlWork", func(t *testing.T) {
			t.Parallel()
			lines := regexp.MustCompile(`(?m)^curl .*$`).FindAllString(said, -1)
			require.Len(t, lines, 3)
			curl := func(line string) string {
				out, err := exec.Command("sh", "-c", line).Output() // curl is what the lines are for: without it this fails
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
		})

		t.Run("TheDocsAndTheOperatorsPageAreThere", func(t *testing.T) {
			t.Parallel()
			for _, page := range []string{`Docs +(\S+)`, `Operator +(\S+)`} {
				res, err := http.Get(find(t, said, page))
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusOK, res.StatusCode, page)
			}
		})

		t.Run("AgainstWithAKey", func(t *testing.T) {
			t.Parallel()
			for range 2 { // with one tenant twice: the keys must not meet
				e := start(t, nil, "-run", "Fifty|lost|after the charge", "-against", against, "-simulator", simulator, "-key", find(t, said, `API key +(\S+)`))
				out, code := e.wait()
				require.Zero(t, code, out)
				require.Contains(t, out, "Fifty duplicates")
				require.NotContains(t, out, "kill -9")
			}
		})
		t.Run("AgainstWithTheDatabase", func(t *testing.T) {
			t.Parallel()
			dsn := find(t, said, `psql '(\S+)'`)
			e := start(t, []string{"DATABASE_URL=" + dsn, "DEMO_AGAINST=" + against, "DEMO_SIMULATOR=" + simulator}, "-all")
			out, code := e.wait()
			require.Zero(t, code, out)
			require.Contains(t, out, "ok  no request, webhook or event is unfinished")
		})
		t.Run("OnANamedServer", func(t *testing.T) {
			t.Parallel()
			e := start(t, []string{"DATABASE_URL=" + find(t, said, `psql '(\S+)'`)}, "-run", "pays|restored")
			out, code := e.wait()
			require.Zero(t, code, out)
			require.Contains(t, out, "from DATABASE_URL")
			e.leftNothing()
		})
	})

	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	out, code := d.wait()
	require.Zero(t, code, out)
	d.leftNothing()
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"now"}, {"-against", "http://a"}, {"-against", "http://a", "-simulator", "http://s"}, {"-serve", "-against", "http://a", "-simulator", "http://s", "-key", "k"},
	} {
		var said bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, io.Discard, &said)
		require.Equal(t, exitCouldNotRun, code, args)
		require.Len(t, strings.Split(strings.TrimSpace(said.String()), "\n"), 1, "one line says what is wrong: %s", &said)
	}
}

// chargeAgain is somebody with the shop's Stripe key who does not know of us.
func chargeAgain(t *testing.T, stripe, order string) {
	post := func(path string, form url.Values) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, stripe+path, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.SetBasicAuth("sk_test_payonce", "")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, string(body))
		return string(body)
	}
	// Whose order it is, Stripe knows from the first intent.
	intent := func() []string {
		return regexp.MustCompile(`"tenant_id":\s*"(\w+)"`).FindStringSubmatch(get(t, stripe+"/v1/payment_intents?limit=1"))
	}
	require.Eventually(t, func() bool { return intent() != nil }, time.Minute, 20*time.Millisecond)
	made := post("/v1/payment_intents", url.Values{"amount": {"1250"}, "currency": {"usd"}, "metadata[tenant_id]": {intent()[1]}, "metadata[order_id]": {order},
		"automatic_payment_methods[enabled]": {"true"}, "automatic_payment_methods[allow_redirects]": {"never"}})
	id := find(t, made, `"id":\s*"(pi_\w+)"`)
	post("/v1/payment_intents/"+id+"/confirm", url.Values{"payment_method": {visa}})
}

func get(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.SetBasicAuth("sk_test_payonce", "")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

func find(t *testing.T, text, pattern string) string {
	got := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, got, "%s in:\n%s", pattern, text)
	return got[1]
}

// ---- the demo as a process ---------------------------------------------------

var built struct {
	once      sync.Once
	dir       string
	demo, api string
	err       error
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(code)
}

// programs builds the demo, and the API once for all demos of this test run.
func programs(t *testing.T) (p struct{ demo, api string }) {
	if testing.Short() {
		t.Skip("-short: the demo takes ten seconds")
	}
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "payonce-demo-test-")
		if built.err != nil {
			return
		}
		built.demo, built.api = filepath.Join(built.dir, "demo"), filepath.Join(built.dir, "service")
		for _, args := range [][]string{{"-o", built.demo, "."}, {"-tags", "faults", "-o", built.api, apiPackage}} {
			if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
				built.err = fmt.Errorf("%w: %s", err, out)
			}
		}
	})
	require.NoError(t, built.err)
	p.demo, p.api = built.demo, built.api
	return p
}

// demo is a running demo. It leads a session of its own, in which everything it
// starts must be found, and at the end must not.
type demo struct {
	t    *testing.T
	cmd  *exec.Cmd
	tmp  string
	done chan struct{}
	free func() // gives its slot back

	mu    sync.Mutex
	out   strings.Builder
	lines chan struct{} // closed and replaced with every line
}

func start(t *testing.T, env []string, args ...string) *demo {
	p := programs(t)
	return startCommand(t, env, p.demo, append([]string{"-api", p.api}, args...)...)
}

// slots keep a small machine usable. One that serves keeps its own while others
// play against it, so there are two at least.
var slots = make(chan struct{}, max(2, runtime.NumCPU()))

func startCommand(t *testing.T, env []string, name string, args ...string) *demo {
	t.Helper()
	slots <- struct{}{}
	d := &demo{t: t, cmd: exec.Command(name, args...), tmp: t.TempDir(), done: make(chan struct{}), lines: make(chan struct{})}
	d.free = sync.OnceFunc(func() { <-slots })
	t.Cleanup(d.free)
	d.cmd.Env = append(append(os.Environ(), "DATABASE_URL=", "TMPDIR="+d.tmp), env...)
	d.cmd.SysProcAttr = newSession()
	r, w, err := os.Pipe() // not cmd.StdoutPipe: Wait would wait for everybody who holds it
	require.NoError(t, err)
	d.cmd.Stdout, d.cmd.Stderr = w, w
	require.NoError(t, d.cmd.Start())
	require.NoError(t, w.Close())
	go d.listen(r)
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.done })
	return d
}

func (d *demo) listen(r io.Reader) {
	defer close(d.done)
	for in := bufio.NewScanner(r); in.Scan(); {
		d.mu.Lock()
		d.out.WriteString(in.Text() + "\n")
		close(d.lines)
		d.lines = make(chan struct{})
		d.mu.Unlock()
	}
}

func (d *demo) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.String()
}

// await returns what a pattern matched, as soon as it does.
func (d *demo) await(pattern string) []string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	for re := regexp.MustCompile(pattern); ; {
		d.mu.Lock()
		text, more := d.out.String(), d.lines
		d.mu.Unlock()
		if got := re.FindStringSubmatch(text); got != nil {
			return got
		}
		select {
		case <-more:
		case <-d.done:
			require.FailNow(d.t, "it ended without "+pattern, d.said())
		case <-ctx.Done():
			require.FailNow(d.t, "it never says "+pattern, d.said())
		}
	}
}

// wait returns what it said and its exit code.
func (d *demo) wait() (string, int) {
	d.t.Helper()
	select {
	case <-d.done: // the pipe is closed: nobody holds it any more
	case <-time.After(3 * time.Minute):
		require.FailNow(d.t, "it does not end", d.said())
	}
	_ = d.cmd.Wait() // the exit code says it
	d.free()
	return d.said(), d.cmd.ProcessState.ExitCode()
}

// leftNothing checks that nobody of the demo's session is alive.
func (d *demo) leftNothing() {
	d.t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		d.t.Log("no /proc here: not checked who is left behind")
		return
	}
	var left []string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if left = membersOf(d.cmd.Process.Pid); len(left) == 0 {
			return
		}
	}
	require.Empty(d.t, left, "processes")
}

// membersOf lists the processes of a session, each with its state.
func membersOf(session int) (members []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 3 && fields[3] == strconv.Itoa(session) && fields[0] != "Z" {
			members = append(members, string(text[:strings.IndexByte(string(text), ')')+1])+" "+fields[0]+" ")
		}
	}
	return members
}
