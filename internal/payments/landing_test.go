package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
)

// TestCommitLandsLate: a COMMIT whose client is gone may still succeed, after
// everybody has looked. The phase that is run once more in its place must not be
// run on top of it.
func TestCommitLandsLate(t *testing.T) {
	t.Parallel()

	// tooEarly loses the answer of the COMMIT of a transaction that holds the
	// statement, and shows whoever reads back what was there before it.
	tooEarly := func(t *testing.T, proxy *pgproxy.Proxy, statement, before string) (happened func()) {
		cut := proxy.AfterCommit("name: " + statement + " ")
		read := proxy.Rewrite("name: KeyRead ", `recovery_point`, `'`+before+`'::text AS recovery_point`)
		return func() {
			require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
			require.Positive(t, read.Happened())
		}
	}

	t.Run("OfAPayStep", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := proxied(t, patient("one"))
		require.Equal(t, http.StatusOK, api.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		happened := tooEarly(t, proxy, "ReservationsPin", "stock_reserved")
		a := api.Post("/v1/checkouts", "k", twoTeas(visa))
		happened()
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, "completed", a.Get("status"))
		w.RequireChargedOnce(a.Get("order_id").(string))
	})

	t.Run("OfAPaymentThatWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := proxied(t, patient("one"))
		happened := tooEarly(t, proxy, "PaymentSettle", "intent_recorded")
		a := api.Pay("k", api.Order(), careful)
		happened()
		require.Equal(t, "requires_action", a.Get("status"), a)
		require.Equal(t, 1, w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.requires_action'`), "it is told once")
		w.RequireSound()
	})
}

// A phase that did not happen leaves nothing behind in the process that tried it.
func TestCommitOfRequiredActionIsLost(t *testing.T) {
	t.Parallel()
	for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).BeforeCommit, "After": (*pgproxy.Proxy).AfterCommit} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := proxied(t, patient("one"))
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
