package devpg

import "syscall"

// diesWithUs has the kernel crash the server when we die, at once and without
// waiting for the janitor to be scheduled.
func diesWithUs(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGQUIT
	return attr
}

// inMemory reports whether dir is in memory, on a file system that has so many
// bytes left.
func inMemory(dir string, room uint64) bool {
	const tmpfs = 0x01021994 // statfs(2)
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Type == tmpfs && fs.Bavail*uint64(fs.Bsize) >= room
}
