package http_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnAPIKeyWaitsForAMigration: a migration may hold the tables of the API keys for a moment, until its commit is on a
// busy disk. A request whose key is looked up then waits, and is not refused.
func TestAnAPIKeyWaitsForAMigration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	tx, err := b.pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE tenants, api_keys IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	ended := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { ended <- tx.Commit(t.Context()) })
	require.Equal(t, http.StatusOK, other.get("/v1/orders").status)
	require.NoError(t, <-ended)
}
