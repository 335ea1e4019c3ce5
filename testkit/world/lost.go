package world

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// Lost is a world whose database went back to a copy, while Stripe did not: play is what the copy does not know of,
// between a payment and its end. Stripe's clock is behind by age until the copy is at work.
func Lost(t testing.TB, age time.Duration, play func(b *Books, payment string)) (b *Books, payment string) {
	t.Helper()
	before, today := LongAgo(t, age, LocalOptions{})
	payment = before.API.Pay("pays", before.API.Order(), "pm_card_visa").ID()
	before.Reconcile()
	dsn := before.CopyDatabase()
	play(before, payment)
	b = BooksOn(before.OnDatabase(dsn))
	b.Unguarded("UPDATE payments SET created_at = created_at - $1::interval", age)
	today()
	return b, payment
}

// RefundUnder asks for the refund of a body under the key "r".
func (b *Books) RefundUnder(payment, body string) Answer {
	return b.API.Post("/v1/payments/"+payment+"/refunds", "r", body)
}

// RequireLostRefundIsFound loses a refund of the body. Its client asks again, after the reconciler has found the
// refund or before that. The money must have gone back once, and that is what the client is told.
func RequireLostRefundIsFound(t testing.TB, body string, age time.Duration, byReconciler bool) {
	t.Helper()
	told := func(a Answer) []any {
		return []any{a.ID(), a.Get("status"), a.Get("amount"), a.Get("stripe", "refund")}
	}
	var first Answer
	b, payment := Lost(t, age, func(b *Books, payment string) { first = b.RefundUnder(payment, body) })
	if byReconciler {
		b.Reconcile()
	}
	again := b.RefundUnder(payment, body)
	require.Equal(t, http.StatusCreated, again.Status, again)
	require.Equal(t, told(first), told(again))
	require.Equal(t, 1, b.EffectsOf(stripesim.EffectRefund), "the money went back twice")
	b.Reconcile()
	b.RequireClean()
}
