package notifier_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/notifier"
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

// TestShutdownIsNotTheEndpointsFailure: an attempt that ends because the process does is no failure of the endpoint.
func TestShutdownIsNotTheEndpointsFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, stop := context.WithCancel(t.Context())
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	b.answer = func(w http.ResponseWriter, n int) {
		if n == 1 {
			stop()
			<-released
		}
	}
	b.publish("ord_1")
	b.exec("UPDATE webhook_deliveries SET attempts = 9")
	b.exec("UPDATE webhook_endpoints SET failing_since = now() - interval '73 hours'")
	_, _ = b.notifier.RunOnce(ctx) // it may not lease any more
	require.Zero(t, b.count("SELECT count(*) FROM webhook_endpoints WHERE disabled_at IS NOT NULL"))
	status, _, attempts, pause := b.row()
	require.Equal(t, "pending", status)
	require.Equal(t, 9, attempts)
	require.LessOrEqual(t, pause, 0.0)
}

// TestDeliveredWhileDisabled: a delivery that arrives after its endpoint was disabled is listed as delivered.
func TestDeliveredWhileDisabled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.answer = func(w http.ResponseWriter, _ int) {
		_, err := b.pool.EndpointDisable(b.Context(),
			db.EndpointDisableParams{TenantID: tenant, ID: notifier.OperatorEndpoint(tenant)})
		require.NoError(b, err)
		_, err = notifier.New(b.pool, notifier.Options{AllowPrivate: true}).RunOnce(b.Context())
		require.NoError(b, err)
		w.WriteHeader(http.StatusNoContent)
	}
	b.publish("ord_1")
	b.runOnce(1)
	require.Equal(t, []string{"delivered"}, b.statuses())
}

// TestRequeueLeavesADisabledEndpointsDeliveries: they would be skipped, and not be requeued when it is enabled.
func TestRequeueLeavesADisabledEndpointsDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.answer = func(w http.ResponseWriter, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
		}
	}
	b.publish("ord_1")
	b.runOnce(1)
	for _, want := range []int64{0, 1} {
		n, err := notifier.Requeue(t.Context(), b.pool.Queries, tenant)
		require.NoError(t, err)
		require.Equal(t, want, n)
		b.runOnce(int(want))
		_, err = b.pool.EndpointEnable(t.Context(),
			db.EndpointEnableParams{TenantID: tenant, ID: notifier.OperatorEndpoint(tenant)})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"delivered"}, b.statuses())
}
