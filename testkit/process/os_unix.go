//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Group is a process group with a keeper, a shell that outlives us for a moment.
// Its standard input is a pipe from us: when we die, by whatever signal, the
// kernel closes our end, read returns, and the keeper removes our folder and
// kills its group, which is our children and itself.
//
// A group of their own also keeps Ctrl-C from the children: it is for us, and we
// decide in which order they go.
type Group struct {
	cmd  *exec.Cmd
	hold io.Closer
}

const keeperScript = `
read -r _
sleep 0.2
rm -rf "$0"
kill -KILL 0
`

// NewGroup hires the keeper of a folder of ours and of the children that join.
func NewGroup(dir string) (*Group, error) {
	cmd := exec.Command("/bin/sh", "-c", keeperScript, dir) //nolint:noctx // it outlives us
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return &Group{cmd, hold}, nil
}

// member is how to start a process that ends when we do.
func (g *Group) member() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
	dieWithUs(attr)
	return attr
}

// Dismiss ends the keeper once there is nothing left to keep.
func (g *Group) Dismiss() {
	_ = g.cmd.Process.Kill() // before the pipe closes, or it would begin its work
	_ = g.cmd.Wait()
	_ = g.hold.Close()
}

// Pause stops the process where it is, as an overloaded host or a debugger would:
// its connections stay open without a response. It returns when the
// process stands still, which is a while after the signal was sent.
func (c *Child) Pause() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < stillWithin; time.Sleep(time.Millisecond) {
		if standsStill(c.PID()) {
			return nil
		}
	}
	return fmt.Errorf("%s does not stand still", c.Name)
}

const stillWithin = 5 * time.Second

// Resume lets it go on, none the wiser. One that is gone is left alone.
func (c *Child) Resume() error { return c.signal(syscall.SIGCONT) }

func (c *Child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.Name, err)
	}
	return nil
}

// lock waits until no other process has the file.
// ours reports whether a file is this user's.
func ours(info fs.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && int(stat.Uid) == os.Getuid()
}

func lock(ctx context.Context, name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startFromLastingThread starts cmd from a thread that lives until cmd has
// ended: Linux sends the parent-death signal when the thread that forked exits,
// and Go ends idle threads as it pleases.
func startFromLastingThread(cmd *exec.Cmd, exited func()) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is no news: we ended it, or its log says why
			exited()
		}
	}()
	return <-started
}
