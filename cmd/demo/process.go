package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = time.Minute      // on a machine that does other things, too
	stopWithin  = 30 * time.Second // the API gives requests in flight 25
	anyPort     = "127.0.0.1:0"
)

// child is a process of ours: a real one, so that it can really be killed.
type child struct {
	name    string
	program string
	args    []string
	env     []string // all of it: nothing of our own environment is inherited
	group   *keeper
	logs    *logFile

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd is gone
}

// served is where a child says that it serves, in the one line of its log that
// we read.
type served struct {
	Addr      string
	AdminAddr string `json:"admin_addr"`
}

// errEnded says that a process ended while we waited for it.
var errEnded = errors.New("ended at once")

func (c *child) pid() int { return c.cmd.Process.Pid }

// start returns when the process serves.
func (c *child) start(ctx context.Context, more ...string) (served, error) {
	cmd := exec.Command(c.program, c.args...) //nolint:noctx // stop ends it, in its turn
	cmd.Env = append(append([]string{}, c.env...), more...)
	cmd.SysProcAttr = c.group.member()
	said := &listener{name: c.name, logs: c.logs, serves: make(chan served, 1)}
	cmd.Stderr = said
	exited := make(chan struct{})
	if err := startFromLastingThread(cmd, func() { close(exited) }); err != nil {
		return served{}, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.cmd, c.exited = cmd, exited
	select {
	case at := <-said.serves:
		return at, nil
	case <-exited:
		return served{}, fmt.Errorf("%s %w: %s", c.name, errEnded, said.lastLine())
	case <-ctx.Done():
		return served{}, errors.Join(fmt.Errorf("%s does not start: %w", c.name, ctx.Err()), c.kill())
	}
}

// kill ends the process as a power cut would: no signal handler runs, nothing is
// flushed, its connections are closed by the kernel.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.name, err)
	}
	<-c.exited
	return nil
}

// stop asks politely, and says if that was not enough.
func (c *child) stop() error {
	if c.cmd == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // a scene that failed may have left it dead
	select {
	case <-c.exited:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("%s did not stop within %s of SIGTERM", c.name, stopWithin), c.kill())
	}
}

// process is an API process.
type process struct {
	child
	door
	admin string // host:port
}

// start starts the process where it listened before; the first time, and if
// somebody took that port meanwhile, where there is room.
func (p *process) start(ctx context.Context, more ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	at, err := served{}, errors.New("")
	if p.url != "" {
		at, err = p.child.start(ctx, append(more, "HTTP_ADDR="+strings.TrimPrefix(p.url, "http://"), "ADMIN_ADDR="+p.admin)...)
		if err != nil && !strings.Contains(err.Error(), "cannot be listened on") {
			return err
		}
	}
	if err != nil {
		at, err = p.child.start(ctx, append(more, "HTTP_ADDR="+anyPort, "ADMIN_ADDR="+anyPort)...)
		if err != nil {
			return err
		}
	}
	p.url, p.admin = "http://"+at.Addr, at.AdminAddr
	return p.awaitReady(ctx)
}

func (p *process) awaitReady(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
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
			return fmt.Errorf("%s %w, before it was ready", p.child.name, errEnded)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.child.name, ctx.Err())
		}
	}
}

// listener copies what a process logs, and hears where it serves.
type listener struct {
	name   string
	logs   *logFile
	serves chan served

	mu   sync.Mutex
	rest []byte // an unfinished line
	last string
}

func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.rest, l.last = rest, string(line)
		l.logs.line(l.name, l.last)
		var said struct {
			Msg string
			served
		}
		if json.Unmarshal(line, &said) == nil && said.Msg == "serving" {
			select {
			case l.serves <- said.served:
			default:
			}
		}
	}
}

func (l *listener) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// logFile gets what all processes log. It is kept if something went wrong.
type logFile struct {
	name string
	mu   sync.Mutex
	file *os.File
}

func newLogFile() (*logFile, error) {
	file, err := os.CreateTemp("", "payonce-demo-*.log")
	if err != nil {
		return nil, err
	}
	return &logFile{name: file.Name(), file: file}, nil
}

func (l *logFile) line(from, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.file, "%s: %s\n", from, text) // a full disk must not end the demo
}

func (l *logFile) close(keep bool) error {
	err := l.file.Close()
	if !keep {
		err = errors.Join(err, os.Remove(l.name))
	}
	return err
}
