package world

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

// binary is the real program, with the seam for crash tests. It is built when the first test wants it, once for all
// packages of a run.
var binary = sync.OnceValues(func() (string, error) {
	path, remove, err := process.BuildShared(context.Background(), "cmd/api", "-tags", tags())
	removeProgram = remove
	return path, err
})

// tags are the build tags of the program: the seam's, and those of the test, which may need a broker that a tag links.
func tags() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-tags" {
				return "faults," + setting.Value
			}
		}
	}
	return "faults"
}

var removeProgram = func() {}

func removeBinary() { removeProgram() }

// Process is the real program, running.
type Process struct {
	Client
	Admin string // address of /metrics
	world *World
	cmd   *exec.Cmd
	named string        // its sessions in the database
	done  chan struct{} // closed when it has exited

	mu  sync.Mutex
	log []string
}

// Command is the program with its environment, not started. Settings are
// "NAME=value" and win over the world's.
func (w *World) Command(args []string, settings ...string) *exec.Cmd {
	w.T.Helper()
	return w.command(w.sessionName(), args, settings...)
}

func (w *World) command(session string, args []string, settings ...string) *exec.Cmd {
	w.T.Helper()
	path, err := binary()
	require.NoError(w.T, err)
	cmd := exec.Command(path, args...) //nolint:noctx // it ends when the test says, or with us
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")},
		w.settings(session, settings...)...)
	cmd.Dir = w.T.TempDir()
	return cmd
}

// Getenv looks up the settings of the program, for a test that calls a command in its own process. Settings are
// "NAME=value" and win over the world's.
func (w *World) Getenv(settings ...string) func(name string) string {
	w.T.Helper()
	values := map[string]string{}
	for _, setting := range w.settings(w.sessionName(), settings...) {
		name, value, _ := strings.Cut(setting, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

// ShortTimes are settings of a Process that loses a lease within the test: it is killed, stopped, or cut off. A busy machine
// may use such times up, so no client of such a process may expect the final answer to its first request.
func ShortTimes(more ...string) []string {
	return append([]string{"STRIPE_TIMEOUT=" + ShortStripeTimeout.String(), "IDEMPOTENCY_LEASE=" + ShortLease.String()}, more...)
}

func (w *World) settings(session string, more ...string) []string {
	return append([]string{
		"DATABASE_URL=" + w.urlFor(session), "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		"STRIPE_SECRET_KEY=" + stripesim.DefaultKey, "STRIPE_API_BASE=" + w.StripeURL,
		"STRIPE_WEBHOOK_SECRET=" + WebhookSecret,
		"STRIPE_TIMEOUT=" + StripeTimeout.String(), "IDEMPOTENCY_LEASE=" + Lease.String(), "STRIPE_RPS=0",
		"RATE_LIMIT_RPS=0", "DATA_KEY=" + DataKey,
		"BROKER_URL=embedded:" + filepath.Join(w.T.TempDir(), "broker"),
	}, more...)
}

// sessionName is a name for one process's sessions, by which the database tells
// processes apart.
func (w *World) sessionName() string { return fmt.Sprintf("process %d", w.sessions.Add(1)) }

// urlFor is the database's URL with that name.
func (w *World) urlFor(session string) string {
	return withParameter(w.T, w.asService(), "application_name", session)
}

// asService is the way to the database that a service in production has: as the role that owns nothing.
func (w *World) asService() string { return devpg.As(w.URL, "payonce_service") }

// forTests is asService for a server in this process. What a test calls directly, and not through the API, has no
// tenant in its context, so it is for all.
func (w *World) forTests() string {
	return withParameter(w.T, w.asService(), "payonce.tenants", "*")
}

func withParameter(t testing.TB, dsn, name, value string) string {
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Process starts the service and returns when it serves.
func (w *World) Process(settings ...string) *Process {
	w.T.Helper()
	name := w.sessionName()
	p := &Process{world: w, named: name, cmd: w.command(name, []string{"serve"}, settings...),
		done: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(w.T, err)
	require.NoError(w.T, p.cmd.Start())
	w.T.Cleanup(p.Kill)
	serving := make(chan [2]string, 1)
	go p.read(stderr, serving)
	select {
	case addrs := <-serving:
		p.Client, p.Admin = newClient(w.T, "http://"+addrs[0], w.Tenant), "http://"+addrs[1]
	case <-p.done:
		require.FailNow(w.T, "the service did not start", p.end())
	case <-time.After(Patience):
		require.FailNow(w.T, "the service does not say that it serves", p.end())
	}
	return p
}

// read keeps what the process logs, until it has exited.
func (p *Process) read(stderr io.Reader, serving chan<- [2]string) {
	defer close(p.done)
	defer func() { _ = p.cmd.Wait() }()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		p.mu.Lock()
		p.log = append(p.log, line)
		p.mu.Unlock()
		var entry struct {
			Msg       string
			Addr      string
			AdminAddr string `json:"admin_addr"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
			serving <- [2]string{entry.Addr, entry.AdminAddr}
		}
	}
}

// Log is all that the process has logged.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// end is how the log ends, for the message of a test.
func (p *Process) end() string { return process.LastLines(p.Log(), 40) }

// RequireLogged requires that the log has a text. A test that fails prints the end of the log, and where all of it is.
func (p *Process) RequireLogged(text string) {
	p.world.T.Helper()
	require.True(p.world.T, strings.Contains(p.Log(), text), "the log lacks %q, and ends with\n%s", text, p.end())
}

// RequireNotLogged requires that the log does not have a text.
func (p *Process) RequireNotLogged(text string, why ...string) {
	p.world.T.Helper()
	require.False(p.world.T, strings.Contains(p.Log(), text), "the log has %q (%s), and ends with\n%s", text,
		strings.Join(why, " "), p.end())
}

// Signal sends one.
func (p *Process) Signal(s syscall.Signal) {
	p.world.T.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.world.T, err)
	}
}

// Kill is kill -9, and waits for the end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Buried waits until the database has ended the sessions of a process that is
// dead. Until then a last statement may be on its way, such as one that takes a
// lease.
func (p *Process) Buried() {
	p.world.T.Helper()
	p.world.Until("the database knows that "+p.named+" is dead", func() bool {
		return p.world.Count(`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1
			AND datname = current_database()`, p.named) == 0
	})
}

// Freeze and Thaw stop the process where it is, and let it go on.
func (p *Process) Freeze() { p.Signal(syscall.SIGSTOP) }

// Thaw ends a Freeze.
func (p *Process) Thaw() { p.Signal(syscall.SIGCONT) }

// Wait returns how the process ended: its exit status, or -1 for a signal.
func (p *Process) Wait(within time.Duration) int {
	p.world.T.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		require.FailNow(p.world.T, "the process does not end", p.end())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Frozen reports whether the process has been stopped.
func (p *Process) Frozen() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ") // behind the command's name
	return strings.HasPrefix(state, "T")
}

// Metric is the sum of a metric's samples, over all labels.
func (p *Process) Metric(name string) (sum float64) {
	p.world.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/metrics", nil)
	require.NoError(p.world.T, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(p.world.T, err)
	defer func() { _ = res.Body.Close() }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); base == name {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(p.world.T, err)
			sum += n
		}
	}
	return sum
}
