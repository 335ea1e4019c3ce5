//go:build unix

package stripesim

import (
	"os"
	"syscall"
)

// lockFile takes the journal for this process alone. The kernel lets go when
// the process ends, also if it is killed.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
