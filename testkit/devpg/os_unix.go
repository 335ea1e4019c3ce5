//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (a *account) mayEnter(info os.FileInfo) bool {
	stat := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case stat.Uid == a.uid:
		return mode&0o100 != 0
	case stat.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// childOf has a process run as the account, in a process group of its own:
// Ctrl-C is for us, and we decide when the server goes.
func childOf(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// startLocked starts cmd from a thread that lives until cmd has ended: the
// kernel sends the parent-death signal when the thread that forked exits, not
// when the process does, and Go ends idle threads as it pleases.
func startLocked(cmd *exec.Cmd, exited chan<- struct{}) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		result <- err
		if err == nil {
			_ = cmd.Wait() // how it ended stands in its log
			close(exited)
		}
	}()
	return <-result
}

func (p *process) signal(cmd *exec.Cmd, how string) error {
	return cmd.Process.Signal(map[string]os.Signal{
		"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT, "kill": syscall.SIGKILL,
	}[how])
}

// janitor is a shell whose standard input is a pipe from us. When we die, by
// whatever signal, the kernel closes our end, the shell's read returns, and it
// ends the server and removes the folder. It runs as the server's user, so it
// can do no more than the server could.
type janitor struct {
	cmd  *exec.Cmd
	hold io.Closer // our end of the pipe
}

// The server removes postmaster.pid as the last thing it does.
const janitorScript = `
read -r _
if pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && [ -n "$pid" ]; then
	kill -QUIT "$pid" 2>/dev/null
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ -e "$0/data/postmaster.pid" ] || break
		sleep 0.1
	done
fi
[ "$1" = keep ] || rm -rf "$0"
`

func hireJanitor(dir string, keep bool, acc *account) (*janitor, error) {
	what := "remove"
	if keep {
		what = "keep"
	}
	cmd := exec.Command("/bin/sh", "-c", janitorScript, dir, what) //nolint:noctx // it outlives us
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{"PATH=/usr/bin:/bin"}, childOf(acc)
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	return &janitor{cmd, hold}, nil
}

func (j *janitor) pid() int { return j.cmd.Process.Pid }

// dismiss is for a stop in order, after which there is nothing to tidy up.
func (j *janitor) dismiss() {
	if j == nil {
		return
	}
	_ = j.cmd.Process.Kill() // before the pipe closes, or it would begin its work
	_ = j.cmd.Wait()
	_ = j.hold.Close()
}

// endServerIn crashes a server that its owner left running in dir. A process
// id from a file may be another process's by now, so only a process that works in that
// folder counts; where the kernel cannot tell us, none does.
func endServerIn(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid <= 1 {
		return
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != filepath.Join(dir, "data") {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGQUIT)
	for range 50 {
		if !Alive(pid) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Alive reports whether a process of this machine runs.
func Alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// tryLockFile takes a lock that the kernel gives back when we die, and fails at
// once if it is held.
func tryLockFile(name string) (unlock func(), err error) {
	// in /tmp others may have put a link there
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}
	return func() {
		// In so many words: closing is not enough while a process that another
		// goroutine is just starting has a copy of the descriptor, until its exec.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		_ = file.Close()
	}, nil
}

// lockFile waits for the lock.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, err := tryLockFile(name)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
