//go:build unix

package client

import (
	"errors"
	"os"
	"syscall"
)

// lockFile excludes other processes until the file is closed or this process has exited.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrJournalInUse
	}
	return err
}

// syncFolder makes the name of a new file as durable as its content.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
