//go:build unix

package ledger_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pause stops a process where it stands and lets it go on as if nothing had been.
func pause(t testing.TB, m *member, d time.Duration) {
	t.Helper()
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(d)
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGCONT))
}
