package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
)

// TestDoctorSaysForWhomACommitWaits: an operator sees whether a failover may lose what was acknowledged.
func TestDoctorSaysForWhomACommitWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		commit, standbys string
		status           verdict
		says             string
	}{
		{"on", "", healthy, "a failover may lose the last ones"},
		{"on", "ANY 1 (a, b)", healthy, "a commit waits for a standby (synchronous_standby_names = ANY 1 (a, b))"},
		{"remote_apply", "a", healthy, "remote_apply; a commit waits for a standby"},
		{"remote_write", "a", warning, "has it in memory"},
		{"local", "a", warning, "does not wait"},
		{"off", "a", bad, "turn it on"},
	} {
		var d diagnosis
		writable(&d, postgres.Facts{Fsync: true, FullPageWrites: true, SynchronousCommit: c.commit, Standbys: c.standbys})
		last := d.checks[len(d.checks)-1]
		require.Equal(t, "database.synchronous_commit", last.ID)
		require.Equal(t, c.status, last.Status, c)
		require.Contains(t, last.Detail, c.says)
	}
}
