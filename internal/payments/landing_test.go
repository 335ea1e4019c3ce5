package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestCommitLandsLate: a COMMIT whose client is gone may still succeed, after
// everybody has looked. The phase that is run once more in its place must not be
// run on top of it.
func TestCommitLandsLate(t *testing.T) {
	t.Parallel()

	t.Run("OfAPaymentThatWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := world.ProxiedAnew(t, world.LocalOptions{Name: "one"})
		happened := world.CommitLandsLate(t, proxy, "PaymentSettle", "intent_recorded")
		a := api.Pay("k", api.Order(), careful)
		happened()
		require.Equal(t, "requires_action", a.Get("status"), a)
		require.Equal(t, 1, w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.requires_action'`),
			"it is told once")
		w.RequireSound()
	})
}

// A phase that did not happen leaves nothing behind in the process that tried it.
func TestCommitOfRequiredActionIsLost(t *testing.T) {
	t.Parallel()
	for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).BeforeCommit,
		"After": (*pgproxy.Proxy).AfterCommit} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := world.ProxiedAnew(t, world.LocalOptions{Name: "one"})
			order := api.Order()
			cut := arm(proxy, "name: PaymentSettle ")
			a := api.Pay("k", order, careful)
			require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
			require.Equal(t, "requires_action", a.Get("status"), a)
			require.Equal(t, "requires_action", w.Text(`SELECT status FROM payments`), "what the client was told is so")
			require.Equal(t, "action_required", w.RecoveryPoint("k"))
			w.RequireSound()
		})
	}
}
