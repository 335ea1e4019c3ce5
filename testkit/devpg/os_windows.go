package devpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

func (a *account) mayEnter(os.FileInfo) bool { return true }

func childOf(*account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func diesWithUs(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

func startLocked(cmd *exec.Cmd, exited chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(exited)
	}()
	return nil
}

// signal asks pg_ctl, which knows the named pipe that stands in for signals.
func (p *process) signal(cmd *exec.Cmd, how string) error {
	if how == "kill" {
		return cmd.Process.Kill()
	}
	return exec.Command(p.bin.path("pg_ctl"), "stop", "-W", "-m", how, "-D", filepath.Join(p.dir, "data")).Run()
}

// janitor does not exist here; doc.go says what follows from it.
type janitor struct{}

func hireJanitor(string, bool, *account) (*janitor, error) { return &janitor{}, nil }

func (*janitor) pid() int { return 0 }

func (*janitor) dismiss() {}

func inMemory(string, uint64) bool { return false }

// endServerIn does nothing: a process id from a file may be another process's by now.
func endServerIn(string) {}

// Alive reports whether a process of this machine runs.
func Alive(pid int) bool {
	p, err := os.FindProcess(pid) // opens the process, so it knows
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}

func tryLockFile(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	const exclusiveNow = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(file.Fd()), exclusiveNow, 0, 1, 0,
		new(windows.Overlapped)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, err := tryLockFile(name)
		if !errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
