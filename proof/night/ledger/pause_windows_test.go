package ledger_test

import (
	"testing"
	"time"
)

// pause cannot stop a process here; it is killed instead.
func pause(t testing.TB, m *member, d time.Duration) {
	t.Helper()
	m.kill()
	time.Sleep(d)
	m.start(t)
}
