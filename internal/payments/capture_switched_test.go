package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestCaptureIsSwitched: a payment was declined, and the next one of its order is captured in the other way, which needs
// another PaymentIntent. The first is canceled before that is made: with two that can be confirmed, the order could be
// paid twice.
func TestCaptureIsSwitched(t *testing.T) {
	t.Parallel()
	const (
		open     = stripe.IntentRequiresConfirmation
		canceled = stripe.IntentCanceled
		paid     = stripe.IntentSucceeded
	)
	p := play(t)
	payments := func(p *played, order string) string {
		return p.w.Text(`SELECT o.status || ': ' || string_agg(concat_ws(' ', p.intent_number, p.status,
				CASE WHEN p.intent_closed THEN 'closed' END), ', ' ORDER BY p.intent_number)
			FROM orders o JOIN payments p ON p.order_id = o.id WHERE o.id = $1 GROUP BY o.status`, order)
	}
	begin := func(t *testing.T) (*played, string) {
		t.Helper()
		p, order, _ := p.orderWith(t, []response{done(create, open), other(confirm, stripe.Refused, declined)})
		require.Equal(t, "open: 1 failed", payments(p, order))
		return p, order
	}
	// second has another intent made and authorized.
	second := func(p *played) []response {
		of := func(r *response) { r.intent.ID, r.out.Intent.ID = p.script.intent+"_2", p.script.intent+"_2" }
		held := stripe.IntentRequiresCapture
		return []response{done(create, open, of), done(confirm, held, of), shows(held, of)}
	}

	t.Run("CancelsTheFirstBeforeItMakesAnother", func(t *testing.T) {
		p, order := begin(t)
		p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
		a := p.api.Authorize("switched", order, visa)
		require.Equal(t, http.StatusCreated, a.Status, a)
		p.requirePlayed()
		require.Equal(t, "authorized: 1 failed closed, 2 authorized", payments(p, order))
	})

	t.Run("MakesNoneWhileTheFirstMayBeAlive", func(t *testing.T) {
		p, order := begin(t)
		p.responds(other(cancel, stripe.Unknown), away(get))
		require.Equal(t, "202 processing", said(p.api.Authorize("waits", order, visa)))
		p.requirePlayed()
		p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
		require.Equal(t, "201 authorized", said(p.api.Authorize("waits", order, visa)))
		p.requirePlayed()
	})

	t.Run("TakesTheFirstForCanceledIfStripeHasItNoMore", func(t *testing.T) {
		p, order := begin(t)
		p.responds(append([]response{other(cancel, stripe.Refused, code("resource_missing")), absent()}, second(p)...)...)
		require.Equal(t, "201 authorized", said(p.api.Authorize("missing", order, visa)))
		p.requirePlayed()
		require.Equal(t, "authorized: 1 failed closed, 2 authorized", payments(p, order))
	})

	t.Run("TakesNothingIfTheFirstWasPaid", func(t *testing.T) {
		p, order := begin(t)
		p.responds(other(cancel, stripe.Conflict), shows(paid))
		a := p.api.Authorize("paid", order, visa)
		require.Equal(t, "payment-failed", a.Code())
		require.Equal(t, "order_already_paid", a.Get("payment").(map[string]any)["failure"].(map[string]any)["code"], a)
		p.requirePlayed()
		_, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(), p.seen(paid))
		require.NoError(t, err)
		require.Contains(t, payments(p, order), "paid: ")
	})

	t.Run("TakesTheFirstForSpentIfItWasGivenBack", func(t *testing.T) {
		p, order := begin(t)
		back := func(r *response) { r.intent.RefundedMinor = 1000 }
		p.responds(append([]response{other(cancel, stripe.Conflict), shows(paid, back)}, second(p)...)...)
		require.Equal(t, "201 authorized", said(p.api.Authorize("spent", order, visa)))
		p.requirePlayed()
		require.Equal(t, "1 true, 2 false", p.w.Text(`SELECT string_agg(intent_number || ' ' || intent_spent, ', '
			ORDER BY intent_number) FROM payments WHERE order_id = $1`, order))
	})

	// The payment that waits for its capture is not what the first intent has paid. The order is canceled with it, and the
	// money of a canceled order is given back.
	t.Run("CancelOfTheOrderReleasesThoughTheFirstWasPaid", func(t *testing.T) {
		p, order := begin(t)
		p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
		require.Equal(t, "201 authorized", said(p.api.Authorize("besides", order, visa)))
		p.w.Exec(`UPDATE payments SET intent_closed = false WHERE order_id = $1 AND intent_number = 1`, order)
		p.responds(other(cancel, stripe.Conflict), shows(paid),
			done(cancel, canceled, func(r *response) { r.out.Intent.ID = p.script.intent + "_2" }))
		require.Equal(t, "200 canceled", said(p.api.Post("/v1/orders/"+order+"/cancel", "y", `{}`)))
		p.requirePlayed()
		require.Equal(t, "canceled: 1 failed, 2 canceled closed", payments(p, order))
		adopted, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(), p.seen(paid))
		require.NoError(t, err)
		require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM refunds_owed WHERE payment_id = $1`, adopted)+
			p.w.Count(`SELECT count(*) FROM refunds WHERE payment_id = $1`, adopted), "it goes back")
	})

	t.Run("EndsEachOfSeveral", func(t *testing.T) {
		for name, c := range map[string]struct {
			first []response
			want  string
		}{
			"Canceled":  {[]response{done(cancel, canceled)}, "201 authorized"},
			"GivenBack": {[]response{other(cancel, stripe.Conflict), shows(paid, func(r *response) { r.intent.RefundedMinor = 1000 })}, "201 authorized"},
			"Paid":      {[]response{other(cancel, stripe.Conflict), shows(paid)}, "payment-failed"},
		} {
			p, order := begin(t)
			p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
			payment := p.api.Authorize("before-"+name, order, visa).ID()
			secondCanceled := done(cancel, canceled, func(r *response) { r.out.Intent.ID = p.script.intent + "_2" })
			p.responds(secondCanceled)
			require.Equal(t, "200 canceled", said(p.api.CancelPayment("c-"+name, payment)))
			p.w.Exec(`UPDATE payments SET intent_closed = false WHERE order_id = $1`, order)
			p.w.Exec(`UPDATE orders SET intents_retired = 2 WHERE id = $1`, order)
			p.responds(append(c.first, secondCanceled)...)
			if c.want == "201 authorized" {
				of := func(r *response) { r.intent.ID, r.out.Intent.ID = p.script.intent+"_3", p.script.intent+"_3" }
				p.responds(done(create, open, of), done(confirm, stripe.IntentRequiresCapture, of), shows(stripe.IntentRequiresCapture, of))
			}
			require.Equal(t, c.want, said(p.api.Authorize("third-"+name, order, visa)), name)
			p.requirePlayed()
		}
	})

	t.Run("CancelOfTheOrderFindsThatTheFirstPaidIt", func(t *testing.T) {
		p, order := begin(t)
		p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
		payment := p.api.Authorize("before", order, visa).ID()
		p.responds(done(cancel, canceled, func(r *response) { r.out.Intent.ID = p.script.intent + "_2" }))
		require.Equal(t, "200 canceled", said(p.api.CancelPayment("c", payment)))
		p.w.Exec(`UPDATE payments SET intent_closed = false WHERE order_id = $1 AND intent_number = 1`, order)
		p.responds(other(cancel, stripe.Conflict), shows(paid))
		require.Equal(t, "order-not-cancelable", said(p.api.Post("/v1/orders/"+order+"/cancel", "z", `{}`)))
		p.requirePlayed()
		require.Contains(t, payments(p, order), "paid: ")
	})

	// Older versions left the first intent open.
	t.Run("CancelOfTheOrderCancelsBoth", func(t *testing.T) {
		p, order := begin(t)
		p.responds(append([]response{done(cancel, canceled)}, second(p)...)...)
		require.Equal(t, "201 authorized", said(p.api.Authorize("both", order, visa)))
		p.w.Exec(`UPDATE payments SET intent_closed = false WHERE order_id = $1 AND intent_number = 1`, order)
		cancels := func() string { return said(p.api.Post("/v1/orders/"+order+"/cancel", "x", `{}`)) }
		p.responds(other(cancel, stripe.Unknown), away(get))
		require.Equal(t, "202 authorized", cancels())
		p.responds(done(cancel, canceled), done(cancel, canceled, func(r *response) { r.out.Intent.ID = p.script.intent + "_2" }))
		require.Equal(t, "200 canceled", cancels())
		p.requirePlayed()
		require.Equal(t, "canceled: 1 failed closed, 2 canceled closed", payments(p, order))
	})
}
