//go:build unix && !linux

package process

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
)

func dieWithUs(*syscall.SysProcAttr) {} // the keeper alone sees to it

func standsStill(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p",
		strconv.Itoa(pid)).Output() //nolint:noctx // it is there or it is not, at once
	return err == nil && bytes.HasPrefix(bytes.TrimSpace(state), []byte("T"))
}
