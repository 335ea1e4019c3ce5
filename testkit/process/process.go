package process

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	ReadyWithin = time.Minute      // on a machine that does other things, too
	StopWithin  = 30 * time.Second // the API gives requests in flight 25
	AnyPort     = "127.0.0.1:0"
)

// Child is a process of ours: a real one, so that it can really be killed.
type Child struct {
	Name    string
	Program string
	Args    []string
	Env     []string // all of it: nothing of our own environment is inherited
	Group   *Group
	Log     *Log
	Says    string // what it logs when it serves, as the msg of a line of JSON; "serving" if empty

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd is gone
}

// Served is where a child says that it serves, in the one line of its log that
// we read.
type Served struct {
	Addr      string
	AdminAddr string `json:"admin_addr"`
}

// ErrEnded says that a process ended while we waited for it.
var ErrEnded = errors.New("ended at once")

// PID is the process's id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the process is gone.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Start returns when the process says that it serves. More is further environment.
func (c *Child) Start(ctx context.Context, more ...string) (Served, error) {
	cmd := exec.Command(c.Program, c.Args...) //nolint:noctx // Stop ends it, in its turn
	cmd.Env = append(append([]string{}, c.Env...), more...)
	cmd.SysProcAttr = c.Group.member()
	said := &listener{name: c.Name, log: c.Log, says: cmp.Or(c.Says, "serving"), serves: make(chan Served, 1)}
	cmd.Stderr = said
	exited := make(chan struct{})
	if err := startFromLastingThread(cmd, func() { close(exited) }); err != nil {
		return Served{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	c.cmd, c.exited = cmd, exited
	select {
	case at := <-said.serves:
		return at, nil
	case <-exited:
		return Served{}, fmt.Errorf("%s %w: %s", c.Name, ErrEnded, said.lastLine())
	case <-ctx.Done():
		return Served{}, errors.Join(fmt.Errorf("%s does not start: %w", c.Name, ctx.Err()), c.Kill())
	}
}

// Signal sends one to the process, if it is still there.
func (c *Child) Signal(s os.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.Name, err)
	}
	return nil
}

// Kill ends the process as a power cut would: no signal handler runs, nothing is
// flushed, its connections are closed by the kernel.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.Name, err)
	}
	<-c.exited
	return nil
}

// Stop asks politely, and says if that was not enough. A child that was never
// started, or was killed, is stopped already.
func (c *Child) Stop() error {
	if c.cmd == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have been left stopped
	select {
	case <-c.exited:
		return nil
	case <-time.After(StopWithin):
		return errors.Join(fmt.Errorf("%s did not stop within %s of SIGTERM", c.Name, StopWithin), c.Kill())
	}
}

// API is an API process. Its addresses are known once it has started.
type API struct {
	Child
	URL   string
	Admin string // host:port
}

// Start starts the process where it listened before; the first time, and if
// another process took that port meanwhile, where there is room. It returns when the
// process is ready.
func (p *API) Start(ctx context.Context, more ...string) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	at, err := Served{}, errors.New("")
	if p.URL != "" {
		at, err = p.Child.Start(ctx,
			append(more, "HTTP_ADDR="+strings.TrimPrefix(p.URL, "http://"), "ADMIN_ADDR="+p.Admin)...)
		if err != nil && !strings.Contains(err.Error(), ": cannot listen: ") {
			return err
		}
	}
	if err != nil {
		at, err = p.Child.Start(ctx, append(more, "HTTP_ADDR="+AnyPort, "ADMIN_ADDR="+AnyPort)...)
		if err != nil {
			return err
		}
	}
	p.URL, p.Admin = "http://"+at.Addr, at.AdminAddr
	return p.awaitReady(ctx)
}

// Sample reads one series from the process's metrics, labels and all, as in
// `payonce_inbox_events_total{consumer="stripe",result="applied"}`. One that is
// not there yet is zero.
func (p *API) Sample(ctx context.Context, series string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, lines.Err()
}

func (p *API) awaitReady(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.exited:
			return fmt.Errorf("%s %w, before it was ready", p.Name, ErrEnded)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.Name, ctx.Err())
		}
	}
}
