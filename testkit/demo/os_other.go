//go:build !unix

package demo

import "syscall"

func newSession() *syscall.SysProcAttr { return nil }
