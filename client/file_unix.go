//go:build unix

package client

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps other processes out until the file is closed, or this process is gone.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrJournalInUse
	}
	return err
}

// syncFolder makes a file's name as durable as what is in it.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
