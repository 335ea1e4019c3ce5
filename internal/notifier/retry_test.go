package notifier_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

// retry is what a retry by hand does to the one delivery.
func (b *bundle) retry() {
	b.Helper()
	var id string
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), "SELECT id FROM webhook_deliveries").Scan(&id))
	_, err := b.pool.DeliveryRequeue(b.Context(), db.DeliveryRequeueParams{TenantID: tenant, ID: id})
	require.NoError(b, err)
}

// TestRetryDuringAnAttempt: a retry is not lost because an attempt that began before it fails, and that attempt, the last
// of ten, does not give up a delivery that has been asked for again.
func TestRetryDuringAnAttempt(t *testing.T) {
	t.Parallel()
	for _, before := range []int{7, 9} {
		b := setup(t)
		b.answer = func(w http.ResponseWriter, n int) {
			if n == 1 {
				b.retry()
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		b.publish("ord_1")
		b.exec("UPDATE webhook_deliveries SET attempts = $1", before)
		b.runOnce(1)
		status, _, attempts, pause := b.row()
		require.Equal(t, "pending", status)
		require.Zero(t, attempts)
		require.LessOrEqual(t, pause, 0.0, "it is due now")
		b.runOnce(1)
		status, _, attempts, _ = b.row()
		require.Equal(t, "delivered", status)
		require.Equal(t, 1, attempts)
	}
}
