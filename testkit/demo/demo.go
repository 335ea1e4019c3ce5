// Package demo runs the demo as a user does: its program, from outside. The tests
// of cmd/demo and those that look at its console in a browser, which are in
// another module, share it.
package demo

import (
	"bufio"
	"context"
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

	"example.com/payonce/testkit/demo/tags"
	"example.com/payonce/testkit/process"
)

var built struct {
	once      sync.Once
	remove    []func()
	demo, api string
	err       error
}

// Main runs a package's tests and removes what was built for them. It is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	Remove()
	os.Exit(code)
}

// Remove removes what was built, for a TestMain that has more to clean up.
func Remove() {
	for _, remove := range built.remove {
		remove()
	}
}

// Programs builds the demo, and the API once for all demos.
func Programs(t *testing.T) (demo, api string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the demo takes ten seconds")
	}
	built.once.Do(func() {
		build := func(pkg string, flags ...string) (program string) {
			if built.err == nil { // Not t.Context(): the programs are for the tests that follow, too.
				var remove func()
				program, remove, built.err = process.BuildShared(context.Background(), pkg, flags...)
				built.remove = append(built.remove, remove)
			}
			return program
		}
		built.demo, built.api = build("cmd/demo"), build("cmd/api", "-tags", tags.API)
	})
	require.NoError(t, built.err)
	return built.demo, built.api
}

// Demo is a running demo. It leads a session: every process it starts is found
// there, and none may be left at the end.
type Demo struct {
	Cmd *exec.Cmd
	Tmp string // its folder for temporary files

	t    *testing.T
	done chan struct{}
	free func() // releases its slot

	mu    sync.Mutex
	out   strings.Builder
	lines chan struct{} // closed and replaced with every line
}

// Start starts the demo.
func Start(t *testing.T, env []string, args ...string) *Demo {
	t.Helper()
	demo, api := Programs(t)
	return StartCommand(t, env, demo, append([]string{"-api", api}, args...)...)
}

// slots keep a small machine usable. A demo that serves keeps its slot while others
// play against it, so there are two at least.
var slots = make(chan struct{}, max(2, runtime.NumCPU()))

// StartCommand starts the demo by another command, such as go run.
func StartCommand(t *testing.T, env []string, name string, args ...string) *Demo {
	t.Helper()
	slots <- struct{}{}
	command := exec.Command(name, args...) //nolint:noctx // tests end it in several ways
	d := &Demo{t: t, Cmd: command, Tmp: t.TempDir(), done: make(chan struct{}), lines: make(chan struct{})}
	d.free = sync.OnceFunc(func() { <-slots })
	t.Cleanup(d.free)
	d.Cmd.Env = append(append(os.Environ(), "DATABASE_URL=", "TMPDIR="+d.Tmp), env...)
	d.Cmd.SysProcAttr = newSession()
	r, w, err := os.Pipe() // not Cmd.StdoutPipe: Wait would wait for every process that holds it
	require.NoError(t, err)
	d.Cmd.Stdout, d.Cmd.Stderr = w, w
	require.NoError(t, d.Cmd.Start())
	require.NoError(t, w.Close())
	go d.read(r)
	t.Cleanup(func() { _ = d.Cmd.Process.Kill(); <-d.done })
	return d
}

func (d *Demo) read(r io.Reader) {
	defer close(d.done)
	for in := bufio.NewScanner(r); in.Scan(); {
		d.mu.Lock()
		d.out.WriteString(in.Text() + "\n")
		close(d.lines)
		d.lines = make(chan struct{})
		d.mu.Unlock()
	}
}

// Output is what the demo has printed so far.
func (d *Demo) Output() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.String()
}

// end is how the output ends, for the message of a test.
func (d *Demo) end() string { return process.LastLines(d.Output(), 40) }

// Await returns what a pattern matched in the output, as soon as it does.
func (d *Demo) Await(pattern string) []string {
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
			require.FailNow(d.t, "the demo ended before it printed "+pattern, d.end())
		case <-ctx.Done():
			require.FailNow(d.t, "the demo did not print "+pattern, d.end())
		}
	}
}

// Wait waits until the demo has exited, and returns its output and exit code.
func (d *Demo) Wait() (string, int) {
	d.t.Helper()
	select {
	case <-d.done: // the pipe is closed: no process holds it any more
	case <-time.After(3 * time.Minute):
		require.FailNow(d.t, "the demo did not exit", d.end())
	}
	_ = d.Cmd.Wait() // the exit code says it
	d.free()
	return d.Output(), d.Cmd.ProcessState.ExitCode()
}

// LeftNothing checks that no process of the demo's session is alive.
func (d *Demo) LeftNothing() {
	d.t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		d.t.Log("no /proc here: not checked which processes are left")
		return
	}
	var left []string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if left = d.Members(); len(left) == 0 {
			return
		}
	}
	require.Empty(d.t, left, "processes")
}

// Members lists the processes of the demo's session, each with its state: ") S ".
func (d *Demo) Members() (members []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 3 && fields[3] == strconv.Itoa(d.Cmd.Process.Pid) && fields[0] != "Z" {
			members = append(members, string(text[:strings.IndexByte(string(text), ')')+1])+" "+fields[0]+" ")
		}
	}
	return members
}

// ChargeAgain charges a customer for an order a second time, at the simulator,
// with the shop's Stripe key: the service does not take part.
func ChargeAgain(t *testing.T, stripe, order string) {
	t.Helper()
	// Which tenant has the order is in the first intent's metadata.
	intent := func() []string {
		list := call(t, http.MethodGet, stripe+"/v1/payment_intents?limit=1", nil)
		return regexp.MustCompile(`"tenant_id":\s*"(\w+)"`).FindStringSubmatch(list)
	}
	require.Eventually(t, func() bool { return intent() != nil }, time.Minute, 20*time.Millisecond)
	made := call(t, http.MethodPost, stripe+"/v1/payment_intents", url.Values{
		"amount": {"1250"}, "currency": {"usd"}, "metadata[tenant_id]": {intent()[1]}, "metadata[order_id]": {order},
		"automatic_payment_methods[enabled]": {"true"}, "automatic_payment_methods[allow_redirects]": {"never"},
	})
	id := Find(t, made, `"id":\s*"(pi_\w+)"`)
	confirm := url.Values{"payment_method": {"pm_card_visa"}}
	call(t, http.MethodPost, stripe+"/v1/payment_intents/"+id+"/confirm", confirm)
}

func call(t *testing.T, method, address string, form url.Values) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
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

// Events opens the stream of events of a console, as a page does that has last seen an id. It sends each line.
func Events(t *testing.T, url, lastID string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", nil)
	require.NoError(t, err)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// Find returns the first group of a pattern in a text that must have it.
func Find(t *testing.T, text, pattern string) string {
	t.Helper()
	got := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, got, "%s in:\n%s", pattern, process.LastLines(text, 40))
	return got[1]
}
