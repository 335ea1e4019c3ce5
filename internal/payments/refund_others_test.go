package payments_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// elsewhere is a world in which somebody refunds in Stripe's dashboard.
type elsewhere struct {
	*world.Books
	mailbox        *world.Mailbox
	order, payment string
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	w := world.New(t)
	mailbox := w.Mailbox()
	o := &elsewhere{Books: world.BooksOn(w), mailbox: mailbox}
	o.order, o.payment = paid(o.API)
	o.mailbox.Take()
	return o
}

// dashboard refunds an amount of the payment at Stripe, and returns Stripe's id.
func (o *elsewhere) dashboard(amount int64, metadata ...string) string {
	o.T.Helper()
	made, err := o.tryDashboard(amount, metadata...)
	require.NoError(o.T, err)
	return made.ID
}

// tryDashboard is dashboard, and Stripe may refuse it.
func (o *elsewhere) tryDashboard(amount int64, metadata ...string) (*stripego.Refund, error) {
	o.T.Helper()
	p := &stripego.RefundParams{
		PaymentIntent: stripego.String(o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.payment)),
		Amount:        stripego.Int64(amount), Reason: stripego.String("requested_by_customer"),
	}
	p.IdempotencyKey = stripego.String(uuid.NewString())
	for i := 0; i < len(metadata); i += 2 {
		p.AddMetadata(metadata[i], metadata[i+1])
	}
	return o.Stripe.Refunds.New(p)
}

// deliverWebhooks delivers Stripe's webhooks, one at a time.
func (o *elsewhere) deliverWebhooks() {
	o.T.Helper()
	for _, hook := range o.mailbox.Take() {
		require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
		o.API.Process()
	}
	require.Zero(o.T, o.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
}

// rows are the refunds here: "origin status amount".
func (o *elsewhere) rows() string {
	return o.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', ' ORDER BY origin, amount_minor)
		FROM refunds`)
}

func (o *elsewhere) refunded() (payment, order int) {
	return o.Count(`SELECT amount_refunded_minor FROM payments`), o.Count(`SELECT amount_refunded_minor FROM orders`)
}

func (o *elsewhere) requireAgrees(rows string, refunded int) {
	o.T.Helper()
	require.Equal(o.T, rows, o.rows())
	payment, order := o.refunded()
	require.Equal(o.T, refunded, payment, "the payment")
	require.Equal(o.T, refunded, order, "the order")
	o.Reconcile()
	require.Equal(o.T, rows, o.rows(), "the reconciler changes nothing")
	require.Empty(o.T, o.Discrepancies())
	o.Measure()
	require.Zero(o.T, o.API.Metric("payonce_money_drift_minor"))
}

// A refund in the dashboard names a refund of another payment. It is a refund of its own.
func TestRefundThatNamesThatOfAnotherPayment(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	_, second := paid(o.API)
	other := o.API.Post("/v1/payments/"+second+"/refunds", "other", `{"amount":100}`)
	require.Equal(t, http.StatusCreated, other.Status, other)
	o.mailbox.Take()
	o.dashboard(400, "tenant_id", o.Tenant.ID, "order_id", o.order, "payment_id", o.payment, "refund_id", other.ID())
	o.deliverWebhooks()
	require.Equal(t, "api succeeded 100, provider succeeded 400", o.rows())
	rest := o.API.Post("/v1/payments/"+o.payment+"/refunds", "rest", `{}`)
	require.EqualValues(t, 600, rest.Get("amount"), rest)
	o.Reconcile()
	o.RequireClean()
}

// A discrepancy of a refund ends under the tenant whose it is, whatever tenant the refund's own metadata names.
func TestRefundThatNamesAnotherTenantLeavesNoDrift(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	ours := o.API.Post("/v1/payments/"+o.payment+"/refunds", "ours", `{"amount":700}`)
	require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
	o.Sim.Advance(time.Second)
	id := o.dashboard(600, "tenant_id", "acme")
	o.Exec(`INSERT INTO discrepancies (tenant_id, order_id, object, object_id, kind, currency, drift_minor, detail)
		VALUES ($1, $2, 'refund', $3, 'unmatched_at_stripe', 'usd', -600, 'found before ours was known to have failed')`,
		o.Tenant.ID, o.order, id)
	o.deliverWebhooks()
	o.Reconcile()
	o.requireAgrees("api failed 700, provider succeeded 600", 600)
	o.RequireClean()
}

// TestRefundsOfOthers: money that moved at Stripe is in our rows, whoever moved it.
func TestRefundsOfOthers(t *testing.T) {
	t.Parallel()
	ways := map[string]func(o *elsewhere){
		"ByWebhook":     (*elsewhere).deliverWebhooks,
		"ByReconciler":  func(o *elsewhere) { o.Reconcile() },
		"ByBothAndMore": func(o *elsewhere) { o.Reconcile(); o.deliverWebhooks(); o.Reconcile() },
	}
	for way, learn := range ways {
		t.Run("BecomeRefunds"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			id := o.dashboard(400)
			learn(o)
			o.requireAgrees("provider succeeded 400", 400)
			row := o.Text(`SELECT id FROM refunds`)
			shown := o.API.Get("/v1/refunds/" + row)
			require.Equal(t, []any{"provider", "succeeded", id, "requested_by_customer"},
				[]any{shown.Get("origin"), shown.Get("status"), shown.Get("stripe", "refund"), shown.Get("reason")})
			require.Equal(t, "refund.created refund.succeeded",
				o.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, row))
			require.Equal(t, "partially_refunded", o.API.Get("/v1/orders/"+o.order).Get("status"))

			// And the tenant refunds what is left of it.
			rest := o.API.Post("/v1/payments/"+o.payment+"/refunds", "rest", `{}`)
			require.Equal(t, http.StatusCreated, rest.Status, rest)
			require.EqualValues(t, 600, rest.Get("amount"))
			require.Equal(t, "api", rest.Get("origin"))
			learn(o)
			o.RequireClean()
		})

		t.Run("ThatTheBankSendsBackGiveTheAmountBack"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			id := o.dashboard(400)
			learn(o)
			require.NoError(t, o.Sim.FailRefund(id, "lost_or_stolen_card"))
			learn(o)
			o.requireAgrees("provider failed 400", 0)
			require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.order).Get("status"))
			o.RequireClean()
		})

		t.Run("ThatAreCanceledInTheDashboard"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			id := o.dashboard(400)
			learn(o)
			require.NoError(t, o.Sim.CancelRefund(id))
			learn(o)
			o.requireAgrees("provider canceled 400", 0)
			o.RequireClean()
		})

		t.Run("WithMetadataOfAnotherProgramHoldUpNone"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			ours := refund(o.API, "ours", o.payment)
			require.Equal(t, http.StatusCreated, ours.Status, ours)
			o.dashboard(100, "refund_id", "RMA-7", "tenant_id", "acme")
			o.dashboard(150, "refund_id", ours.ID(), "payment_id", o.payment, "order_id", o.order,
				"tenant_id", o.Tenant.ID)
			learn(o)
			require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
			learn(o)
			o.requireAgrees("api failed 300, provider succeeded 100, provider succeeded 150", 250)
			o.RequireClean()
		})

		t.Run("WithATenantOfAnotherProgram"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			o.dashboard(100, "tenant_id", "acme", "order_id", "7")
			learn(o)
			o.requireAgrees("provider succeeded 100", 100)
		})

		// Ours of 700 is on its way when it is made, and Stripe has not enough left for ours.
		t.Run("WaitForOneOfOursThatDoesNotFit"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RetryError})
			ours := o.API.Post("/v1/payments/"+o.payment+"/refunds", "ours", `{"amount":700}`)
			require.Equal(t, http.StatusAccepted, ours.Status, ours)
			o.dashboard(400)
			learn(o)
			require.Equal(t, "api pending 700", o.rows())
			require.Empty(t, o.Discrepancies(), "nothing is wrong while ours is in progress")
			o.dashboard(250)
			learn(o)
			completeOnce(o.World, o.API)
			require.Equal(t, "failed", o.API.Get("/v1/refunds/"+ours.ID()).Get("status"))
			learn(o)
			o.requireAgrees("api failed 700, provider succeeded 250, provider succeeded 400", 650)
			o.RequireClean()
		})

		// Both are news at the same time, and Stripe lists the later one first.
		t.Run("TakeTheRoomOfOneOfOursThatFailed"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			ours := o.API.Post("/v1/payments/"+o.payment+"/refunds", "ours", `{"amount":700}`)
			require.Equal(t, http.StatusCreated, ours.Status, ours)
			require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
			o.Sim.Advance(time.Second)
			o.dashboard(600)
			hooks := o.mailbox.Take()
			if way == "ByWebhook" {
				require.Equal(t, http.StatusOK, o.API.Receive(hooks[len(hooks)-1]).Status)
				o.API.Process()
			} else {
				learn(o)
			}
			o.requireAgrees("api failed 700, provider succeeded 600", 600)
			require.Zero(t, o.Count(`SELECT count(*) FROM discrepancies`), "nobody is called for that")
			o.RequireClean()
		})

		// Ours was sent, and nobody knows yet whether it was made. Another program's has a copy of its metadata.
		t.Run("ThatCopyOursInProgressAreNotOurs"+way, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RetryError})
			ours := refund(o.API, "ours", o.payment)
			require.Equal(t, http.StatusAccepted, ours.Status, ours)
			o.dashboard(250, "refund_id", ours.ID(), "payment_id", o.payment, "order_id", o.order,
				"tenant_id", o.Tenant.ID)
			learn(o)
			require.Equal(t, "api pending 300", o.rows(), "ours is not succeeded because 250 went back")
			completeOnce(o.World, o.API)
			learn(o)
			o.requireAgrees("api succeeded 300, provider succeeded 250", 550)
			o.RequireClean()
		})
	}

	// Stripe's refusal is when we learn of it.
	t.Run("LeaveLessThanWeKnew", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.dashboard(400)
		tooMuch := o.API.Post("/v1/payments/"+o.payment+"/refunds", "all", `{}`)
		require.Equal(t, http.StatusConflict, tooMuch.Status, tooMuch)
		require.Equal(t, "refund-exceeds-payment", tooMuch.Code())
		require.Equal(t, "provider succeeded 400", o.Text(`SELECT concat_ws(' ', origin, status, amount_minor)
			FROM refunds WHERE origin = 'provider'`), "read at once")
		require.Equal(t, tooMuch.Identity(),
			o.API.Post("/v1/payments/"+o.payment+"/refunds", "all", `{}`).Identity(), "stored")
		rest := o.API.Post("/v1/payments/"+o.payment+"/refunds", "rest", `{}`)
		require.Equal(t, http.StatusCreated, rest.Status, rest)
		require.EqualValues(t, 600, rest.Get("amount"))
		o.deliverWebhooks()
		o.Reconcile()
		o.RequireClean()
	})
	t.Run("LeaveNothing", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.dashboard(1000)
		nothing := refund(o.API, "r", o.payment)
		require.Equal(t, http.StatusConflict, nothing.Status, nothing)
		require.Equal(t, "payment-not-refundable", nothing.Code())
		require.Equal(t, "refunded", o.API.Get("/v1/orders/"+o.order).Get("status"))
		o.deliverWebhooks()
		o.Reconcile()
		o.RequireClean()
	})

	// A pending one is polled by the completer, and never made a second time.
	t.Run("ThatArePendingAreFollowed", func(t *testing.T) {
		t.Parallel()
		o := newElsewhere(t)
		o.order = o.API.Order()
		o.payment = o.API.Pay("slow", o.order, "pm_card_pendingRefund").ID()
		o.dashboard(400)
		o.deliverWebhooks()
		require.Equal(t, "provider pending 400", o.rows())
		o.Sim.SetListLag(time.Hour)
		completeOnce(o.World, o.API)
		o.Sim.SetListLag(0)
		o.Sim.Advance(time.Minute)
		completeOnce(o.World, o.API)
		require.Equal(t, "provider succeeded 400", o.rows())
		require.Equal(t, 1, o.EffectsOf(stripesim.EffectRefund))
		require.Zero(t, o.Count(`SELECT count(*) FROM stripe_calls WHERE operation = 'refund'`), "it is no call of ours")
		o.deliverWebhooks()
		o.RequireClean()
	})
}

// TestRefundsInAnyOrderEndAsStripeHasThem: two in the dashboard and one of ours, of which Stripe has money for two.
func TestRefundsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"ours first second", "first ours second", "first second ours"} {
		for _, lost := range []bool{false, true} { // the response to ours
			for _, heard := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/%v", order, lost, heard), func(t *testing.T) {
					t.Parallel()
					o := newElsewhere(t)
					for _, who := range strings.Fields(order) {
						if who == "ours" {
							if lost {
								o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
							}
							o.API.Post("/v1/payments/"+o.payment+"/refunds", "ours", `{"amount":400}`)
							o.Sim.ClearFaults()
						} else {
							_, _ = o.tryDashboard(400) // The third is refused, whosever it is.
						}
						if heard {
							o.deliverWebhooks()
						}
					}
					o.deliverWebhooks()
					completeOnce(o.World, o.API)
					o.Reconcile()
					require.Equal(t, 2, o.EffectsOf(stripesim.EffectRefund))
					require.Equal(t, 2, o.Count(`SELECT count(*) FROM refunds WHERE status = 'succeeded'`))
					payment, order := o.refunded()
					require.Equal(t, []int{800, 800}, []int{payment, order})
					require.Empty(t, o.Discrepancies())
					o.RequireSound()
				})
			}
		}
	}
}

// TestRefundAmountObeysTheCurrencysStep: what no currency can express is the caller's mistake, and nothing is stored.
func TestRefundAmountObeysTheCurrencysStep(t *testing.T) {
	t.Parallel()
	for currency, c := range map[string]struct {
		unit, wrong, right int64
	}{"isk": {50000, 150, 200}, "ugx": {5000000, 101, 100}, "kwd": {5000, 1001, 1010}} {
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		order := api.Post("/v1/orders", "order", fmt.Sprintf(
			`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, c.unit))
		require.Equal(t, http.StatusCreated, order.Status, order)
		payment := api.Pay("pays", order.ID(), visa).ID()
		path := "/v1/payments/" + payment + "/refunds"
		wrong := api.Post(path, "r", fmt.Sprintf(`{"amount":%d}`, c.wrong))
		require.Equal(t, http.StatusBadRequest, wrong.Status, wrong)
		require.Equal(t, "invalid-request", wrong.Code())
		require.Contains(t, string(wrong.Body), `"/amount"`)
		require.Empty(t, w.Posts("refunds"))
		right := api.Post(path, "r", fmt.Sprintf(`{"amount":%d}`, c.right)) // The key is still a fresh one.
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
		ours := refund(o.API, "ours", o.payment)
		require.Equal(t, http.StatusAccepted, ours.Status, ours)
		err := o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := o.API.Payments.ApplyRefund(t.Context(), q, o.Tenant.ID, ours.ID(), seen)
			return err
		})
		require.ErrorContains(t, err, "another amount or currency", name)
		require.Equal(t, "api pending 300", o.rows(), name)
	}
}
