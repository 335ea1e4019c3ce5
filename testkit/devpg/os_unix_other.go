//go:build unix && !linux

package devpg

import "syscall"

// diesWithUs leaves it to the janitor: only Linux has a parent-death signal.
func diesWithUs(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

func inMemory(string, uint64) bool { return false }
