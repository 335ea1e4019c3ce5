package devpg

import "syscall"

// diesWithUs has the kernel crash the server when we die, at once and without
// waiting for the janitor to be scheduled.
func diesWithUs(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGQUIT
	return attr
}
