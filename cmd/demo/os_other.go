//go:build !unix

package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// keeper needs process groups and signals.
type keeper struct{}

func hireKeeper(string) (*keeper, error) {
	return nil, errors.New("the demo kills processes as Unix does: run it in WSL, or as `docker compose --profile demo run --rm demo`")
}

func (*keeper) member() *syscall.SysProcAttr { return nil }

func (*keeper) dismiss() {}

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
