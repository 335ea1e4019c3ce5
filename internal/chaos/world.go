package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/db/devpg"
	"example.com/payonce/internal/stripesim"
)

// Times of the system under test. They are short so that a minute of chaos is
// days of production; their relations are those of the defaults.
const (
	stripeTimeout = 400 * time.Millisecond
	lease         = 1500 * time.Millisecond
)

const webhookSecret = "whsec_chaos"

// world is the system under test and everything around it.
type world struct {
	dir    string
	pg     *devpg.Server
	dbURL  string
	pool   *db.Pool // the harness's own, for judgement
	sim    *stripesim.Sim
	stripe *httptest.Server
	apis   []*process
	tenant []tenantOf
}

type tenantOf struct {
	ID  string `json:"tenant_id"`
	Key string `json:"api_key"`
}

// build compiles the service with its crash seam.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "api")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", binary, "example.com/payonce/cmd/api")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the api: %w\n%s", err, out)
	}
	return binary, nil
}

func start(ctx context.Context, c Config) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "payonce-chaos"); err != nil {
		return w, err
	}
	binary, err := build(ctx, w.dir)
	if err != nil {
		return w, err
	}
	if w.pg, err = devpg.Start(ctx, devpg.Options{Durable: true, MaxConnections: 200, Log: c.Log, Only: devpg.FromLocal}); err != nil {
		return w, err
	}
	w.dbURL = w.pg.URL
	if w.pool, err = db.Open(ctx, w.dbURL, db.Options{Name: "chaos", MaxConn: 4}); err != nil {
		return w, err
	}
	if _, err := w.pool.Migrate(ctx); err != nil {
		return w, err
	}
	if w.sim, err = stripesim.New(stripesim.Options{
		Keys: []string{"sk_test_chaos"}, Store: filepath.Join(w.dir, "stripe.jsonl"), WebhookSecret: webhookSecret,
	}); err != nil {
		return w, err
	}
	w.stripe = httptest.NewServer(w.sim.Handler())
	for i := range c.Processes {
		p := &process{
			name: fmt.Sprintf("api-%d", i+1), binary: binary, dir: w.dir,
			env: []string{
				"DATABASE_URL=" + w.dbURL, "STRIPE_SECRET_KEY=sk_test_chaos", "STRIPE_API_BASE=" + w.stripe.URL, "STRIPE_WEBHOOK_SECRET=" + webhookSecret,
				"STRIPE_TIMEOUT=" + stripeTimeout.String(), "IDEMPOTENCY_LEASE=" + lease.String(), "STRIPE_RPS=0", "RATE_LIMIT_RPS=0",
				"BROKER_URL=embedded:" + filepath.Join(w.dir, fmt.Sprintf("broker-%d", i+1)), "LOG_LEVEL=info",
			},
		}
		if err := p.start(ctx); err != nil {
			return w, err
		}
		w.apis = append(w.apis, p)
	}
	for range c.Tenants {
		t, err := newTenant(ctx, binary, w.dbURL)
		if err != nil {
			return w, err
		}
		w.tenant = append(w.tenant, t)
	}
	return w, w.ready(ctx, 20*time.Second)
}

func newTenant(ctx context.Context, binary, url string) (t tenantOf, err error) {
	cmd := exec.CommandContext(ctx, binary, "tenant", "create", "chaos")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("create a tenant: %w", err)
	}
	return t, json.Unmarshal(out, &t)
}

// ready waits until every process answers.
func (w *world) ready(ctx context.Context, within time.Duration) error {
	deadline := time.Now().Add(within)
	for _, p := range w.apis {
		for !p.isReady(ctx) {
			if time.Now().After(deadline) || ctx.Err() != nil {
				return fmt.Errorf("%s is not ready: %s", p.name, p.lastLog())
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func (w *world) stop() {
	for _, p := range w.apis {
		p.kill()
	}
	if w.stripe != nil {
		w.stripe.CloseClientConnections()
		w.stripe.Close()
	}
	if w.sim != nil {
		_ = w.sim.Close()
	}
	if w.pool != nil {
		w.pool.Close()
	}
	if w.pg != nil {
		_ = w.pg.Stop()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

// process is one API process, which keeps its addresses over restarts.
type process struct {
	name, binary, dir string
	env               []string

	mu      sync.Mutex
	addr    string
	admin   string
	cmd     *exec.Cmd
	exited  chan struct{}
	stopped bool // by SIGSTOP
}

func (p *process) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == "" {
		var err error
		if p.addr, err = freeAddress(ctx); err != nil {
			return err
		}
		if p.admin, err = freeAddress(ctx); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, p.binary, "serve")
	cmd.Env = append(os.Environ(), append(p.env, "HTTP_ADDR="+p.addr, "ADMIN_ADDR="+p.admin)...)
	cmd.Stderr, cmd.Stdout = log, log
	cmd.SysProcAttr = dieWithUs()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.exited, p.stopped = cmd, make(chan struct{}), false
	go func(exited chan struct{}) {
		_ = cmd.Wait() // How it ended is the fault's business.
		close(exited)
	}(p.exited)
	return nil
}

// signal sends a signal to the process if it runs, and says whether it did.
func (p *process) signal(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
	}
	p.stopped = sig == syscall.SIGSTOP
	return p.cmd.Process.Signal(sig) == nil
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() {
	if p.signal(syscall.SIGKILL) {
		p.wait(5 * time.Second)
	}
}

func (p *process) wait(within time.Duration) bool {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	select {
	case <-exited:
		return true
	case <-time.After(within):
		return false
	}
}

func (p *process) running() bool { return p.signal(0) }

func (p *process) isReady(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// metric reads a sum over all series of one counter.
func (p *process) metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return parseMetrics(res.Body)
}

func (p *process) lastLog() string {
	b, err := os.ReadFile(filepath.Join(p.dir, p.name+".log"))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), errors.Join(l.Close())
}
