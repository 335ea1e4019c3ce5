package payments_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/paycases"
	"example.com/payonce/testkit/world"
)

// A refund in the dashboard names a refund of another payment. It is a refund of its own.
func TestRefundThatNamesThatOfAnotherPayment(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	_, second := paid(o.API)
	other := o.API.Post("/v1/payments/"+second+"/refunds", "other", `{"amount":100}`)
	require.Equal(t, http.StatusCreated, other.Status, other)
	o.Mailbox.Take()
	o.Dashboard(400, "tenant_id", o.Tenant.ID, "order_id", o.Order, "payment_id", o.Payment, "refund_id", other.ID())
	o.DeliverWebhooks()
	require.Equal(t, "api succeeded 100, provider succeeded 400", o.Rows())
	rest := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "rest", `{}`)
	require.EqualValues(t, 600, rest.Get("amount"), rest)
	o.Reconcile()
	o.RequireClean()
}

// A discrepancy of a refund ends under the tenant whose it is, whatever tenant the refund's own metadata names.
func TestRefundThatNamesAnotherTenantLeavesNoDrift(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	ours := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "ours", `{"amount":700}`)
	require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
	o.Sim.Advance(time.Second)
	id := o.Dashboard(600, "tenant_id", "acme")
	o.Exec(`INSERT INTO discrepancies (tenant_id, order_id, object, object_id, kind, currency, drift_minor, detail)
		VALUES ($1, $2, 'refund', $3, 'unmatched_at_stripe', 'usd', -600, 'found before ours was known to have failed')`,
		o.Tenant.ID, o.Order, id)
	o.DeliverWebhooks()
	o.Reconcile()
	o.RequireAgrees("api failed 700, provider succeeded 600", 600)
	o.RequireClean()
}

// TestRefundsOfOthers: money that moved at Stripe is in our rows, whoever moved it. Here each case learns of it in one way,
// and by night in all.
func TestRefundsOfOthers(t *testing.T) {
	t.Parallel()
	cases := 0
	paycases.RefundsOfOthers(t, func() []string {
		cases++
		return paycases.RefundWays[cases%3:][:1]
	})

	// Stripe's refusal is when we learn of it.
	t.Run("LeaveLessThanWeKnew", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.Dashboard(400)
		tooMuch := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "all", `{}`)
		require.Equal(t, http.StatusConflict, tooMuch.Status, tooMuch)
		require.Equal(t, "refund-exceeds-payment", tooMuch.Code())
		require.Equal(t, "provider succeeded 400", o.Text(`SELECT concat_ws(' ', origin, status, amount_minor)
			FROM refunds WHERE origin = 'provider'`), "read at once")
		require.Equal(t, tooMuch.Identity(),
			o.API.Post("/v1/payments/"+o.Payment+"/refunds", "all", `{}`).Identity(), "stored")
		rest := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "rest", `{}`)
		require.Equal(t, http.StatusCreated, rest.Status, rest)
		require.EqualValues(t, 600, rest.Get("amount"))
		o.DeliverWebhooks()
		o.Reconcile()
		o.RequireClean()
	})
	t.Run("LeaveNothing", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.Dashboard(1000)
		nothing := refund(o.API, "r", o.Payment)
		require.Equal(t, http.StatusConflict, nothing.Status, nothing)
		require.Equal(t, "payment-not-refundable", nothing.Code())
		require.Equal(t, "refunded", o.API.Get("/v1/orders/"+o.Order).Get("status"))
		o.DeliverWebhooks()
		o.Reconcile()
		o.RequireClean()
	})

	// A pending one is polled by the completer, and never made a second time.
	t.Run("ThatArePendingAreFollowed", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.Order = o.API.Order()
		o.Payment = o.API.Pay("slow", o.Order, "pm_card_pendingRefund").ID()
		o.Dashboard(400)
		o.DeliverWebhooks()
		require.Equal(t, "provider pending 400", o.Rows())
		o.Sim.SetListLag(time.Hour)
		completeOnce(o.World, o.API)
		o.Sim.SetListLag(0)
		o.Sim.Advance(time.Minute)
		completeOnce(o.World, o.API)
		require.Equal(t, "provider succeeded 400", o.Rows())
		require.Equal(t, 1, o.EffectsOf(stripesim.EffectRefund))
		require.Zero(t, o.Count(`SELECT count(*) FROM stripe_calls WHERE operation = 'refund'`), "it is no call of ours")
		o.DeliverWebhooks()
		o.RequireClean()
	})
}

// TestRefundsInAnyOrderEndAsStripeHasThem: two in the dashboard and one of ours, of which Stripe has money for two. All
// orders are tried by night.
func TestRefundsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	paycases.RefundsInAnyOrder(t, "first ours second", true, false)
}

// TestRefundAmountObeysTheCurrencysStep: what no currency can express is the caller's mistake, and nothing is stored.
func TestRefundAmountObeysTheCurrencysStep(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	for currency, c := range map[string]struct {
		unit, wrong, right int64
	}{"isk": {50000, 150, 200}, "ugx": {5000000, 101, 100}, "kwd": {5000, 1001, 1010}} {
		order := api.Post("/v1/orders", "order-"+currency, fmt.Sprintf(
			`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, c.unit))
		require.Equal(t, http.StatusCreated, order.Status, order)
		payment := api.Pay("pays-"+currency, order.ID(), visa).ID()
		sent := len(w.Posts("refunds"))
		path := "/v1/payments/" + payment + "/refunds"
		wrong := api.Post(path, "r-"+currency, fmt.Sprintf(`{"amount":%d}`, c.wrong))
		require.Equal(t, http.StatusBadRequest, wrong.Status, wrong)
		require.Equal(t, "invalid-request", wrong.Code())
		require.Contains(t, string(wrong.Body), `"/amount"`)
		require.Len(t, w.Posts("refunds"), sent)
		right := api.Post(path, "r-"+currency, fmt.Sprintf(`{"amount":%d}`, c.right)) // The key is still a fresh one.
		require.Equal(t, http.StatusCreated, right.Status, right)
	}
}

// TestAllThatIsLeftIsRefundable: also where it is no multiple of the currency's step, because somebody refunded a part
// at Stripe that is none.
func TestAllThatIsLeftIsRefundable(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	order := api.Post("/v1/orders", "order", `{"currency":"isk","items":[{"sku":"tea","quantity":1,"unit_amount":50000}]}`)
	payment := api.Pay("pays", order.ID(), visa).ID()
	w.Exec(`UPDATE payments SET amount_refunding_minor = 150, amount_refunded_minor = 150`)
	rest := api.Post("/v1/payments/"+payment+"/refunds", "r", `{"amount":49850}`)
	require.NotEqual(t, http.StatusBadRequest, rest.Status, rest)
}

// TestRefundOfAnotherAmountIsNotApplied: whoever says that a refund of ours has an end, says it about that refund.
func TestRefundOfAnotherAmountIsNotApplied(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]stripe.Refund{
		"AnotherAmount":   {ID: "re_1", Status: db.RefundStatusSucceeded, AmountMinor: 250, Currency: "usd"},
		"AnotherCurrency": {ID: "re_1", Status: db.RefundStatusSucceeded, AmountMinor: 300, Currency: "eur"},
	} {
		o := newElsewhere(t)
		o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RetryError})
		ours := refund(o.API, "ours", o.Payment)
		require.Equal(t, http.StatusAccepted, ours.Status, ours)
		err := o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := o.API.Payments.ApplyRefund(t.Context(), q, o.Tenant.ID, ours.ID(), seen)
			return err
		})
		require.ErrorContains(t, err, "another amount or currency", name)
		require.Equal(t, "api pending 300", o.Rows(), name)
	}
}
