//go:build !unix

package process

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
)

// Group needs process groups and signals.
type Group struct{}

// NewGroup says no.
func NewGroup(string) (*Group, error) {
	return nil, errors.New("processes are ended as Unix does it: run this in WSL, or in a container")
}

func (*Group) member() *syscall.SysProcAttr { return nil }

// Dismiss ends nothing.
func (*Group) Dismiss() {}

// Pause has no counterpart here.
func (c *Child) Pause() error { return errors.ErrUnsupported }

// Resume has none either.
func (c *Child) Resume() error { return errors.ErrUnsupported }

func startFromLastingThread(cmd *exec.Cmd, exited func()) error {
	err := cmd.Start()
	if err == nil {
		go func() {
			_ = cmd.Wait()
			exited()
		}()
	}
	return err
}

// lock has no counterpart here.
func ours(fs.FileInfo) bool { return true }

func lock(context.Context, string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
