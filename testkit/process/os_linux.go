package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithUs has the kernel kill the process when we die, without waiting for the
// keeper's turn.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// standsStill reports whether every thread of a process is stopped: the signal
// reaches them one by one.
func standsStill(pid int) bool {
	stats, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that has just ended
		}
		_, state, _ := strings.Cut(string(stat), ") ") // behind the command's name
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
