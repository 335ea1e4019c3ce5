package reconcile_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRestore is the drill: the database goes back, Stripe does not.
func TestRestore(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	const lost = 12
	var before, between []string
	for range lost {
		before = append(before, b.API.Order())
	}
	kept := b.API.Pay("kept", before[0], "pm_card_visa")
	require.Equal(t, http.StatusCreated, kept.Status)
	require.Equal(t, http.StatusPaymentRequired, b.API.Pay("declined", before[1], "pm_card_visa_chargeDeclined").Status)
	b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
	require.Equal(t, http.StatusAccepted, b.API.Pay("on-its-way", before[2], "pm_card_visa").Status)
	b.Sim.ClearFaults()
	b.Reconcile()

	snapshot := b.CopyDatabase()

	// What the copy does not know of:
	require.Equal(t, http.StatusCreated, b.API.Pay("second-card", before[1], "pm_card_visa").Status)
	require.Equal(t, http.StatusCreated, b.API.PayUntilFinal("on-its-way", before[2], "pm_card_visa").Status)
	for _, order := range before[3:] {
		require.Equal(t, http.StatusCreated, b.API.Pay("pay"+order, order, "pm_card_visa").Status)
	}
	refunded := b.Text("SELECT payment_id FROM orders WHERE id = $1", before[3])
	require.Equal(t, http.StatusCreated,
		b.API.Post("/v1/payments/"+refunded+"/refunds", "refund", `{"amount":400}`).Status)
	require.Equal(t, http.StatusCreated,
		b.API.Post("/v1/payments/"+kept.ID()+"/refunds", "refund-kept", `{"amount":100}`).Status)
	for range 2 {
		order := b.API.Order()
		between = append(between, order)
		require.Equal(t, http.StatusCreated, b.API.Pay("pay"+order, order, "pm_card_visa").Status)
	}
	b.RequireClean()
	charges := b.Sim.ChargeCount("")

	r := world.BooksOn(b.OnDatabase(snapshot))
	lossy := r.Audit()
	require.Equal(t, map[string]int{"I8e": lost - 1 + len(between)}, withoutWork(lossy.Offends()), "%+v", lossy)
	r.Reconcile()
	r.API.Complete()
	r.Reconcile()

	for _, order := range before {
		require.Contains(t, []any{"paid", "partially_refunded"}, r.API.Get("/v1/orders/"+order).Get("status"), order)
	}
	require.Equal(t, refunded, r.Text("SELECT payment_id FROM orders WHERE id = $1", before[3]),
		"its refund still knew its id")
	require.EqualValues(t, 400, r.API.Get("/v1/orders/"+before[3]).Get("amount_refunded"))
	require.EqualValues(t, 100, r.API.Get("/v1/payments/"+kept.ID()).Get("amount_refunded"))
	require.Equal(t, charges, r.Sim.ChargeCount(""), "no card was charged again")
	for _, order := range between {
		require.Equal(t, http.StatusNotFound, r.API.Get("/v1/orders/"+order).Status)
		require.Equal(t, 1, r.Count("SELECT count(*) FROM discrepancies WHERE order_id = $1 AND kind = "+
			"'unmatched_at_stripe' AND resolved_at IS NULL", order))
	}
	after := r.Audit()
	require.Equal(t, map[string]int{"I8e": len(between)}, after.Offends())
	require.EqualValues(t, 1000*len(between), after.Drift(), "what is left is exactly what is parked")
	require.EqualValues(t, after.Drift(), driftShown(r))
}

// withoutWork leaves out what merely waits for a completer.
func withoutWork(offends map[string]int) map[string]int {
	delete(offends, "I5a")
	return offends
}
