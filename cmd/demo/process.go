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
	readyWithin = 30 * time.Second // on a machine that does other things, too
	stopWithin  = 5 * time.Second  // nothing is in flight any more when we stop
	anyPort     = "127.0.0.1:0"
)

// process is the API's real program in a process of its own, so that it can
// really be killed, and started again under the same address.
type process struct {
	door
	admin   string // host:port
	program string
	env     []string
	group   *keeper
	logs    *logFile

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd is gone
	status error         // how it ended, once exited is closed
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// start starts the process where it listened before; the first time, and if
// somebody took that port meanwhile, where there is room.
func (p *process) start(ctx context.Context, more ...string) error {
	if p.url != "" {
		err := p.startAt(ctx, strings.TrimPrefix(p.url, "http://"), p.admin, more)
		if err == nil || !strings.Contains(err.Error(), "cannot be listened on") {
			return err
		}
	}
	return p.startAt(ctx, anyPort, anyPort, more)
}

func (p *process) startAt(ctx context.Context, public, private string, more []string) error {
	// A context would kill it when the demo is called off; stop does that, in order.
	cmd := exec.Command(p.program, "serve") //nolint:noctx // see above
	cmd.Env = append(append(p.env, "HTTP_ADDR="+public, "ADMIN_ADDR="+private), more...)
	cmd.SysProcAttr = p.group.member()
	said := &serving{name: p.name, logs: p.logs, at: make(chan [2]string, 1)}
	cmd.Stderr = said
	exited := make(chan struct{})
	if err := startFromLastingThread(cmd, func(err error) { p.status = err; close(exited) }); err != nil {
		return fmt.Errorf("start API process %s: %w", p.name, err)
	}
	p.cmd, p.exited = cmd, exited

	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case at := <-said.at:
		p.url, p.admin = "http://"+at[0], at[1]
		return p.awaitReady(ctx)
	case <-exited:
		return fmt.Errorf("API process %s ended at once: %s", p.name, said.lastLine())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("API process %s does not start: %w", p.name, ctx.Err()), p.kill())
	}
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
			return fmt.Errorf("API process %s ended before it was ready", p.name)
		case <-ctx.Done():
			return fmt.Errorf("API process %s is not ready: %w", p.name, ctx.Err())
		}
	}
}

// kill ends the process as a power cut would: no signal handler runs, nothing is
// flushed, no connection is closed but by the kernel.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill API process %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// stop asks politely, and says if the process did not leave in good order.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have been killed in a scene that failed
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("API process %s did not stop within %s of SIGTERM", p.name, stopWithin), p.kill())
	}
	return nil
}

// serving copies what a process logs, and listens for where it serves.
type serving struct {
	name string
	logs *logFile
	at   chan [2]string // public and admin address, once

	mu   sync.Mutex
	rest []byte // an unfinished line
	last string
}

func (s *serving) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		s.rest, s.last = rest, string(line)
		s.logs.line(s.name, s.last)
		var said struct {
			Msg, Addr string
			AdminAddr string `json:"admin_addr"`
		}
		if json.Unmarshal(line, &said) == nil && said.Msg == "serving" {
			select {
			case s.at <- [2]string{said.Addr, said.AdminAddr}:
			default:
			}
		}
	}
}

func (s *serving) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// logFile gets what the API processes log. It is kept if something went wrong.
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
	_, _ = fmt.Fprintf(l.file, "%s %s\n", from, text) // a full disk must not end the demo
}

func (l *logFile) close(keep bool) error {
	err := l.file.Close()
	if !keep {
		err = errors.Join(err, os.Remove(l.name))
	}
	return err
}
