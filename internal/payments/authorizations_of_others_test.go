package payments_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// othersAt is a server, its reconciler and a mailbox for Stripe's webhooks, under one of Stripe's regimes.
func othersAt(t *testing.T, regime stripesim.ReleaseRegime) *elsewhere {
	t.Helper()
	w := world.New(t)
	require.NoError(t, w.Sim.SetReleaseRegime(regime))
	return &elsewhere{mailbox: w.Mailbox(), Books: world.BooksOn(w)}
}

// authorize reserves the money of a new order, which the next checks are about.
func (o *elsewhere) authorize(key string) {
	o.T.Helper()
	o.order = o.API.Order()
	a := o.API.Authorize(key, o.order, visa)
	require.Equal(o.T, http.StatusCreated, a.Status, a)
	o.payment = a.ID()
	o.deliverWebhooks()
}

func (o *elsewhere) intent() string {
	return o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.payment)
}

// state is "order, payment; captured; refunded; disputed; failure code; refunds".
func (o *elsewhere) state() string {
	return o.Text(`SELECT concat_ws('; ', o.status || ', ' || p.status, coalesce(p.captured_minor, 0),
			p.amount_refunded_minor || coalesce((SELECT ' ' || string_agg(r.origin || ' ' || r.amount_minor, ' ')
				FROM refunds r WHERE r.payment_id = p.id AND r.status = 'succeeded'), ''),
			p.amount_disputed_minor, p.failure_code)
		FROM payments p JOIN orders o ON o.tenant_id = p.tenant_id AND o.id = p.order_id WHERE p.id = $1`, o.payment)
}

// moveOfOthers is what others do to an authorization of 1000 at Stripe, and what it comes to here.
type moveOfOthers struct {
	name string
	do   func(o *elsewhere)
	want string
}

func (o *elsewhere) captures(amount int64) {
	o.T.Helper()
	require.NoError(o.T, o.Sim.CaptureInDashboard(o.intent(), amount))
}

var movesOfOthers = []moveOfOthers{
	{"Captured", func(o *elsewhere) { o.captures(0) }, "paid, succeeded; 1000; 0; 0"},
	{"CapturedInPart", func(o *elsewhere) { o.captures(400) }, "paid, succeeded; 400; 0; 0"},
	{"CapturedByHalf", func(o *elsewhere) { o.captures(500) }, "paid, succeeded; 500; 0; 0"},
	{"Canceled", func(o *elsewhere) {
		require.NoError(o.T, o.Sim.CancelInDashboard(o.intent(), "requested_by_customer"))
	}, "open, canceled; 0; 0; 0"},
	{"CapturedInPartAndRefunded", func(o *elsewhere) {
		o.captures(400)
		o.dashboard(100)
	}, "partially_refunded, succeeded; 400; 100 provider 100; 0"},
	// What was given back is as much as what was released.
	{"CapturedAndAsMuchRefundedAsReleased", func(o *elsewhere) {
		o.captures(700)
		o.dashboard(300)
	}, "partially_refunded, succeeded; 700; 300 provider 300; 0"},
	{"CapturedByHalfAndRefunded", func(o *elsewhere) {
		o.captures(500)
		o.dashboard(500)
	}, "refunded, succeeded; 500; 500 provider 500; 0"},
	// part: disputes {
	{"CapturedInPartAndDisputed", func(o *elsewhere) {
		o.captures(400)
		charge := o.Stripe.PaymentIntents
		pi, err := charge.Get(o.intent(), nil)
		require.NoError(o.T, err)
		_, err = o.Sim.OpenDispute(pi.LatestCharge.ID, "fraudulent", false)
		require.NoError(o.T, err)
	}, "paid, succeeded; 400; 0; 400"},
	// part: disputes }
	{"Expired", func(o *elsewhere) { o.Sim.Advance(7*24*time.Hour + 2*time.Second) },
		"open, canceled; 0; 0; 0; authorization_expired"},
}

var regimes = []stripesim.ReleaseRegime{stripesim.RegimeRefunds, stripesim.RegimeBasil}

// shuffled delivers the webhooks in the reverse order and then all once more.
func (o *elsewhere) shuffled() {
	o.T.Helper()
	hooks := o.mailbox.Take()
	slices.Reverse(hooks)
	for range 2 {
		for _, hook := range hooks {
			require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
			o.API.Process()
		}
	}
	o.settleInbox()
}

// settleInbox processes the events that were kept until something else was known.
func (o *elsewhere) settleInbox() {
	o.T.Helper()
	for range 5 {
		if o.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`) == 0 {
			return
		}
		o.Exec(`UPDATE inbox_events SET leased_until = now() - interval '1 second' WHERE status <> 'done'`)
		o.API.Process()
	}
	require.Equal(o.T, "", o.Text(`SELECT string_agg(concat_ws(' ', type, status, last_error), ' | ')
		FROM inbox_events WHERE status <> 'done'`))
}

var waysToLearn = map[string]func(o *elsewhere){
	"ByWebhook": func(o *elsewhere) {
		for _, hook := range o.mailbox.Take() {
			require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
			o.API.Process()
		}
		o.settleInbox()
	},
	"ByWebhooksTwiceAndReversed": (*elsewhere).shuffled,
	"ByReconciler": func(o *elsewhere) {
		o.mailbox.Take()
		o.Reconcile()
		o.disputeRounds() // part: disputes
	},
	"ByBoth": func(o *elsewhere) {
		o.Reconcile()
		o.disputeRounds() // part: disputes
		o.shuffled()
		o.Reconcile()
	},
}

// TestAuthorizationsOfOthers: whatever others do to an authorization at Stripe, it ends here in the same way, however
// that is learned. What Stripe releases is no refund.
func TestAuthorizationsOfOthers(t *testing.T) {
	t.Parallel()
	for _, regime := range regimes {
		for way, learn := range waysToLearn {
			t.Run(fmt.Sprint(regime, way), func(t *testing.T) {
				t.Parallel()
				o := othersAt(t, regime)
				for n, move := range movesOfOthers {
					o.authorize(fmt.Sprint("k", n))
					move.do(o)
					learn(o)
					require.Equal(t, move.want, o.state(), move.name)
					require.Empty(t, o.Discrepancies(), move.name)
					events := o.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events
						WHERE aggregate_id = $1 AND type LIKE 'order.%'`, o.order)
					if move.want[:4] == "open" {
						require.Equal(t, "order.created order.authorized order.reopened", events, move.name)
						again := o.API.Pay(fmt.Sprint("again", n), o.order, visa)
						require.Equal(t, http.StatusCreated, again.Status, again)
						o.deliverWebhooks()
					} else {
						require.Equal(t, "order.created order.authorized order.paid", events, move.name)
					}
				}
				o.Reconcile()
				o.disputeRounds() // part: disputes
				require.Empty(t, o.Discrepancies())
				o.Measure()
				require.Zero(t, o.API.Metric("payonce_money_drift_minor"))
				o.RequireClean()
			})
		}
	}
}

// oursAtWork are the operations that may work on an authorization. Each ends with its key.
var oursAtWork = map[string]func(o *elsewhere, key string) world.Answer{
	"Capture": func(o *elsewhere, key string) world.Answer { return o.API.Capture(key, o.payment, 600) },
	"Cancel":  func(o *elsewhere, key string) world.Answer { return o.API.CancelPayment(key, o.payment) },
	"OrderCancel": func(o *elsewhere, key string) world.Answer {
		return o.API.Post("/v1/orders/"+o.order+"/cancel", key, "")
	},
}

// TestAuthorizationsOfOthersWhileOursIsInProgress: the capture or cancel in progress, or parked, finds out how the
// authorization has ended, and its key ends with it.
func TestAuthorizationsOfOthersWhileOursIsInProgress(t *testing.T) {
	t.Parallel()
	for _, regime := range regimes {
		for name, ours := range oursAtWork {
			for _, parked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s%sParked=%t", regime, name, parked), func(t *testing.T) {
					t.Parallel()
					o := othersAt(t, regime)
					ways := []string{"ByWebhook", "ByReconciler", "ByBoth", "ByWebhooksTwiceAndReversed"}
					for n, move := range movesOfOthers {
						key := fmt.Sprint("ours", n)
						o.authorize(fmt.Sprint("k", n))
						o.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.RetryError, Times: 3})
						o.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.RetryError, Times: 3})
						first := ours(o, key)
						require.Equal(t, http.StatusAccepted, first.Status, first)
						o.Sim.ClearFaults()
						if parked {
							o.Exec(`UPDATE idempotency_keys SET parked_at = now() WHERE key = $1`, key)
						}
						o.Exec(`UPDATE idempotency_keys SET next_attempt_at = now() + interval '1 hour' WHERE key = $1`, key)
						move.do(o)
						if !parked {
							require.Empty(t, o.Audit().Offends(), "nothing is wrong while ours is in progress: "+move.name)
						}
						way := ways[n%len(ways)]
						waysToLearnOf(o, way)
						completeOnce(o.World, o.API)
						o.settleInbox()
						o.disputeRounds()                    // part: disputes
						if way == "ByReconciler" || parked { // The refunds that were waited with, and what was found.
							o.Reconcile()
						}
						want := move.want
						if name == "OrderCancel" && want[:4] == "open" {
							want = "canceled" + want[4:]
						}
						require.Equal(t, want, o.state(), move.name+" "+way)
						require.Equal(t, 1, o.Count(`SELECT count(*) FROM idempotency_keys
							WHERE key = $1 AND finished_at IS NOT NULL`, key), move.name+" "+way)
						require.Empty(t, o.Discrepancies(), move.name)
					}
					o.Reconcile()
					o.RequireClean()
				})
			}
		}
	}
}

// waysToLearnOf learns in one way, without waiting for events that wait for our own operation.
func waysToLearnOf(o *elsewhere, way string) {
	o.T.Helper()
	if way == "ByReconciler" || way == "ByBoth" {
		o.Reconcile()
	}
	hooks := o.mailbox.Take()
	if way == "ByReconciler" {
		return
	}
	if way == "ByWebhooksTwiceAndReversed" {
		slices.Reverse(hooks)
		hooks = append(hooks, hooks...)
	}
	for _, hook := range hooks {
		require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
		o.API.Process()
	}
}

// TestAuthorizationOfOthersEndsWhileItIsRead: the end of an authorization is announced while a process, which has read the
// intent before, is about to end with a payment that is still authorized. Nothing here works on that payment then, so the
// event is kept until it is.
func TestAuthorizationOfOthersEndsWhileItIsRead(t *testing.T) {
	t.Parallel()
	const held, waits = stripe.IntentRequiresCapture, stripe.IntentRequiresAction
	p := play(t)
	for _, c := range []struct {
		name string
		// acts plays until the event, which announce applies, has come too early.
		acts  func(p *played, announce func()) (payment string)
		event string
		ends  response
		want  string
	}{
		{"CapturedBeforeTheConfirmIsAnswered", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, held),
				shows(held, meanwhile(announce)))
			return p.api.Authorize("k1", p.api.Order(), visa).ID()
		}, "payment_intent.succeeded", shows(stripe.IntentSucceeded), "succeeded"},
		{"CanceledWhileACustomerIsWaitedFor", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, waits))
			order := p.api.Order()
			require.Equal(t, http.StatusAccepted, p.api.Authorize("k2", order, visa).Status)
			p.responds(shows(held), shows(held, meanwhile(announce)))
			return p.api.Authorize("k2", order, visa).ID()
		}, "payment_intent.canceled", shows(stripe.IntentCanceled), "canceled"},
		{"CapturedBeforeARefusedCaptureEnds", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, held), shows(held))
			payment := p.api.Authorize("k3", p.api.Order(), visa).ID()
			p.responds(other(capture, stripe.Refused, code("resource_missing")), shows(held, meanwhile(func() {
				p.responds(shows(stripe.IntentSucceeded))
				announce()
			})))
			require.Equal(t, "payment-failed", p.api.Capture("c3", payment, 0).Code())
			return payment
		}, "payment_intent.succeeded", shows(stripe.IntentSucceeded), "succeeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, nil)
			apply := func() error {
				return p.webhook(c.event, map[string]any{"id": p.script.intent, "object": "payment_intent",
					"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": p.w.Text(
						`SELECT order_id FROM payments WHERE intent_id = $1`, p.script.intent)}})
			}
			announced := 0
			payment := c.acts(p, func() {
				announced++
				require.ErrorContains(t, apply(), "an operation works on the payment")
			})
			require.Equal(t, 1, announced)
			require.Equal(t, "authorized", p.holds(payment))
			p.responds(c.ends)
			require.NoError(t, apply())
			p.requirePlayed()
			require.Equal(t, c.want, p.holds(payment))
		})
	}
}
