package reconcile_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestObjectThatIsNotRepairedIsADiscrepancy: nothing was wrong with the intent, so that the reason is all there is to
// say about it.
func TestObjectThatIsNotRepairedIsADiscrepancy(t *testing.T) {
	t.Parallel()
	b, today := yesterdays(t)
	abandoned := b.OrphanIntent(b.API.Order(), world.Unconfirmed)
	today()
	b.Exec(`UPDATE orders SET status = 'canceled', version = 2`)
	b.Exec(`ALTER TABLE stripe_call_rows ADD CONSTRAINT refuses_every_call CHECK (false) NOT VALID`)
	runOnly(b, "days")
	_, err := b.Reconciler.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, "status_mismatch "+abandoned.ID+" 0 usd", b.Discrepancies())
	detail := b.Text(`SELECT detail FROM discrepancies`)
	require.Regexp(t, "^not repaired: .*refuses_every_call", detail)
}

// TestParkedKeyThatCannotBeExpeditedIsSaid: its payment's intent was paid, and the payment's key is parked.
func TestParkedKeyThatCannotBeExpeditedIsSaid(t *testing.T) {
	t.Parallel()
	b, proxy := newProxied(t)
	order := b.API.Order()
	b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
	require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, "pm_card_visa").Status)
	b.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp(), next_attempt_at = 'infinity',
		leased_until = '-infinity' WHERE key = 'k'`)
	proxy.Fail("name: KeyExpedite ", 1)
	runOnly(b, "recent")
	_, err := b.Reconciler.RunOnce(t.Context())
	require.ErrorContains(t, err, pgproxy.FailureText("name: KeyExpedite"))
	require.Empty(t, b.Discrepancies(), "it was not parked in silence")
}

// TestOnlyKeysThatWereExpeditedAreCounted: a process holds this one, and will find out.
func TestOnlyKeysThatWereExpeditedAreCounted(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
	require.Equal(t, http.StatusAccepted, b.API.Pay("k", b.API.Order(), "pm_card_visa").Status)
	b.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 hour' WHERE key = 'k'`)
	expedited := func() float64 { return b.API.Series("payonce_reconciled_total", "expedited") }
	b.Reconcile()
	require.Zero(t, expedited())
	b.Exec(`UPDATE idempotency_keys SET leased_until = '-infinity', next_attempt_at = clock_timestamp() + interval '1 hour'
		WHERE key = 'k'`)
	b.Reconcile()
	require.Positive(t, expedited())
}

// TestIntentOfARegisteredOperationIsNeverAbandoned: only its operation knows whether it will be confirmed.
func TestIntentOfARegisteredOperationIsNeverAbandoned(t *testing.T) {
	t.Parallel()
	b, today := yesterdays(t)
	b.OrphanIntent(b.API.Order(), world.Unconfirmed, byTip)
	today()
	tip := payments.Registered{Charges: func(context.Context, *db.Queries, []compare.OrderRef) ([]compare.Charge, error) {
		return nil, nil
	}}
	service := payments.New(b.API.Pool, b.API.Keys, b.API.Gateway, nil, payments.Options{
		Registered: map[string]payments.Registered{"tip": tip},
	})
	b.Reconciler = reconcile.New(b.API.Pool, b.API.Gateway, service, reconcile.Options{}) // It logs and measures nothing.
	b.Exec(`UPDATE orders SET status = 'canceled', version = 2`)
	b.Reconcile()
	require.Zero(t, b.Count(`SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'`))

	b.OrphanIntent(b.API.Order())
	b.Reconcile()
	require.Equal(t, 1, b.Count(`SELECT count(*) FROM payments WHERE status = 'succeeded'`), "and it repairs the rest")
}

// TestIntentThatIsSkippedIsLogged: the run goes on to those behind it, and says nothing else about it.
func TestIntentThatIsSkippedIsLogged(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	b := world.NewBooks(t)
	b.Reconciler = reconcile.New(b.API.Pool, b.API.Gateway, b.API.Payments,
		reconcile.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	_, intent := declined(b)
	runOnly(b, "confirmable")
	_, err := b.Reconciler.RunOnce(t.Context())
	require.NoError(t, err)
	require.Empty(t, log.String())
	b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
	runOnly(b, "confirmable")
	_, err = b.Reconciler.RunOnce(t.Context())
	require.NoError(t, err)
	require.Contains(t, log.String(), intent)
}

// TestWindowOfAnOutageIsReadAgainSoon, and from its beginning.
func TestWindowOfAnOutageIsReadAgainSoon(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	b.Sim.Inject(stripesim.Fault{Op: "intent.list", Kind: stripesim.Reset})
	b.RequireWindowDueIn("recent", 10*time.Second, func() {
		_, err := b.Reconciler.RunOnce(t.Context())
		require.Error(t, err)
	})
}
