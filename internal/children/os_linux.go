package children

import "syscall"

// dieWithUs has the kernel kill the process when we die, without waiting for the
// keeper's turn.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
