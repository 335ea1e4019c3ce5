package chaos

import "syscall"

// dieWithUs makes sure that no process outlives the harness.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
