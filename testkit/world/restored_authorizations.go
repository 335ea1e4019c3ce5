package world

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// RequireAuthorizationsAreRestored restores a database from before most of its authorizations, and requires that the
// reconciler reads how each has ended from Stripe, which releases money as regime says. No money is taken twice, and what
// was released is no refund.
func RequireAuthorizationsAreRestored(t *testing.T, regime stripesim.ReleaseRegime) {
	t.Helper()
	b := NewBooks(t)
	require.NoError(t, b.Sim.SetReleaseRegime(regime))
	known, knownPayments := map[string]string{}, map[string]string{}
	authorize := func(name string) {
		a := b.API.Authorize("pay-"+known[name], known[name], "pm_card_visa")
		require.Equal(t, http.StatusCreated, a.Status, a)
		knownPayments[name] = a.ID()
	}
	for _, name := range []string{"held", "captured", "part", "half", "refunded", "known captured", "known canceled"} {
		known[name] = b.API.Order()
	}
	authorize("known captured")
	authorize("known canceled")
	snapshot := b.CopyDatabase()
	for _, name := range []string{"held", "captured", "part", "half", "refunded"} {
		authorize(name)
	}
	capture := func(name string, minor int64) {
		a := b.API.Capture("capture-"+known[name], knownPayments[name], minor)
		require.Equal(t, http.StatusOK, a.Status, a)
	}
	capture("captured", 0)
	capture("part", 400)
	capture("half", 500)
	capture("refunded", 700)
	capture("known captured", 600)
	require.Equal(t, http.StatusCreated, b.API.Post("/v1/payments/"+knownPayments["refunded"]+"/refunds", "refund",
		`{"amount":300}`).Status)
	require.Equal(t, http.StatusOK, b.API.CancelPayment("cancel", knownPayments["known canceled"]).Status)
	b.RequireClean()
	charges := b.Sim.ChargeCount("")

	r := BooksOn(b.OnDatabase(snapshot))
	require.NotZero(t, r.Audit().Offends()["I8e"])
	r.Reconcile()
	r.API.Complete()
	r.Reconcile()
	const adopted, paid = "; payment.created payment.succeeded; ", "order.created order.paid"
	for name, want := range map[string]string{
		"held":     "authorized, authorized 0 0; payment.created payment.authorized; order.created order.authorized",
		"captured": "paid, succeeded 1000 0" + adopted + paid,
		"part":     "paid, succeeded 400 0" + adopted + paid,
		"half":     "paid, succeeded 500 0" + adopted + paid,
		"refunded": "partially_refunded, succeeded 700 300" + adopted + paid,
		"known captured": "paid, succeeded 600 0; payment.created payment.authorized payment.succeeded; " +
			"order.created order.authorized order.paid",
		"known canceled": "open, canceled 0 0; payment.created payment.authorized payment.canceled; " +
			"order.created order.authorized order.reopened",
	} {
		require.Equal(t, want, r.Text(`SELECT concat(o.status, ', ', p.status, ' ', coalesce(p.captured_minor, 0), ' ',
				p.amount_refunded_minor, '; ', (SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events
					WHERE aggregate_id = p.id), '; ', (SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events
					WHERE aggregate_id = o.id))
			FROM orders o JOIN payments p ON p.order_id = o.id WHERE o.id = $1`, known[name]), name)
	}
	for _, name := range []string{"refunded", "known captured", "known canceled"} {
		require.Equal(t, knownPayments[name], r.Text(`SELECT id FROM payments WHERE order_id = $1`, known[name]),
			"its id is known from a refund, or from its row")
	}
	require.Equal(t, charges, r.Sim.ChargeCount(""), "nothing was captured again")
	r.RequireClean()

	held := r.Text(`SELECT id FROM payments WHERE order_id = $1`, known["held"])
	require.Equal(t, http.StatusOK, r.API.Capture("after", held, 250).Status)
	require.Equal(t, "order-already-paid", r.API.Pay("again", known["held"], "pm_card_visa").Code())
	r.Reconcile()
	r.RequireClean()
}
