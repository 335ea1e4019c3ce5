package paycases

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// moveOfOthers is what others do to an authorization of 1000 at Stripe, and what it comes to here.
type moveOfOthers struct {
	name string
	do   func(o *Elsewhere)
	want string
}

var movesOfOthers = []moveOfOthers{
	{"Captured", func(o *Elsewhere) { o.Captures(0) }, "paid, succeeded; 1000; 0; 0"},
	{"CapturedInPart", func(o *Elsewhere) { o.Captures(400) }, "paid, succeeded; 400; 0; 0"},
	{"CapturedByHalf", func(o *Elsewhere) { o.Captures(500) }, "paid, succeeded; 500; 0; 0"},
	{"Canceled", func(o *Elsewhere) {
		require.NoError(o.T, o.Sim.CancelInDashboard(o.Intent(), "requested_by_customer"))
	}, "open, canceled; 0; 0; 0"},
	{"CapturedInPartAndRefunded", func(o *Elsewhere) {
		o.Captures(400)
		o.Dashboard(100)
	}, "partially_refunded, succeeded; 400; 100 provider 100; 0"},
	// What was given back is as much as what was released.
	{"CapturedAndAsMuchRefundedAsReleased", func(o *Elsewhere) {
		o.Captures(700)
		o.Dashboard(300)
	}, "partially_refunded, succeeded; 700; 300 provider 300; 0"},
	{"CapturedByHalfAndRefunded", func(o *Elsewhere) {
		o.Captures(500)
		o.Dashboard(500)
	}, "refunded, succeeded; 500; 500 provider 500; 0"},
	// part: disputes {
	{"CapturedInPartAndDisputed", func(o *Elsewhere) {
		o.Captures(400)
		charge := o.Stripe.PaymentIntents
		pi, err := charge.Get(o.Intent(), nil)
		require.NoError(o.T, err)
		_, err = o.Sim.OpenDispute(pi.LatestCharge.ID, "fraudulent", false)
		require.NoError(o.T, err)
	}, "paid, succeeded; 400; 0; 400"},
	// part: disputes }
	{"Expired", func(o *Elsewhere) { o.Sim.Advance(7*24*time.Hour + 2*time.Second) },
		"open, canceled; 0; 0; 0; authorization_expired"},
}

// Regimes are the two ways in which Stripe shows what a capture releases.
var Regimes = []stripesim.ReleaseRegime{stripesim.RegimeRefunds, stripesim.RegimeBasil}

// WaysToLearn are the ways in which the service learns what others did at Stripe.
var WaysToLearn = []string{"ByWebhook", "ByReconciler", "ByBoth", "ByWebhooksTwiceAndReversed"}

var learns = map[string]func(o *Elsewhere){
	"ByWebhook": func(o *Elsewhere) {
		for _, hook := range o.Mailbox.Take() {
			require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
			o.API.Process()
		}
		o.SettleInbox()
	},
	"ByWebhooksTwiceAndReversed": (*Elsewhere).Shuffled,
	"ByReconciler": func(o *Elsewhere) {
		o.Mailbox.Take()
		o.Reconcile()
		o.DisputeRounds() // part: disputes
	},
	"ByBoth": func(o *Elsewhere) {
		o.Reconcile()
		o.DisputeRounds() // part: disputes
		o.Shuffled()
		o.Reconcile()
	},
}

// AuthorizationsOfOthers: whatever others do to an authorization at Stripe, it ends here in the same way, however the
// service learns it. What Stripe releases is no refund. The moves of others take turns with the ways to learn them.
func AuthorizationsOfOthers(t *testing.T, regime stripesim.ReleaseRegime, ways ...string) {
	t.Helper()
	o := At(t, regime)
	for n, move := range movesOfOthers {
		o.Authorize(fmt.Sprint("k", n))
		move.do(o)
		learns[ways[n%len(ways)]](o)
		require.Equal(t, move.want, o.State(), move.name)
		require.Empty(t, o.Discrepancies(), move.name)
		events := o.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events
						WHERE aggregate_id = $1 AND type LIKE 'order.%'`, o.Order)
		if move.want[:4] == "open" {
			require.Equal(t, "order.created order.authorized order.reopened", events, move.name)
			again := o.API.Pay(fmt.Sprint("again", n), o.Order, visa)
			require.Equal(t, http.StatusCreated, again.Status, again)
			o.DeliverWebhooks()
		} else {
			require.Equal(t, "order.created order.authorized order.paid", events, move.name)
		}
	}
	o.Reconcile()
	o.DisputeRounds() // part: disputes
	require.Empty(t, o.Discrepancies())
	o.Measure()
	require.Zero(t, o.API.Metric("payonce_money_drift_minor"))
	o.RequireClean()
}

// Ours are the operations that may work on an authorization. Each ends with its key.
var Ours = []string{"Capture", "Cancel", "OrderCancel"}

var oursAtWork = map[string]func(o *Elsewhere, key string) world.Answer{
	"Capture": func(o *Elsewhere, key string) world.Answer { return o.API.Capture(key, o.Payment, 600) },
	"Cancel":  func(o *Elsewhere, key string) world.Answer { return o.API.CancelPayment(key, o.Payment) },
	"OrderCancel": func(o *Elsewhere, key string) world.Answer {
		return o.API.Post("/v1/orders/"+o.Order+"/cancel", key, "")
	},
}

// AuthorizationsOfOthersWhileOursIsInProgress: the operation of ours in progress, or parked, finds out how the
// authorization has ended, and its key ends with it. The moves of others take turns with our operations.
func AuthorizationsOfOthersWhileOursIsInProgress(
	t *testing.T, regime stripesim.ReleaseRegime, parked bool, ours ...string,
) {
	t.Helper()
	o := At(t, regime)
	for n, move := range movesOfOthers {
		name := ours[n%len(ours)]
		key := fmt.Sprint("ours", n)
		o.Authorize(fmt.Sprint("k", n))
		o.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.RetryError, Times: 3})
		o.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.RetryError, Times: 3})
		first := oursAtWork[name](o, key)
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
		way := WaysToLearn[n%len(WaysToLearn)]
		waysToLearnOf(o, way)
		CompleteOnce(o.World, o.API)
		o.SettleInbox()
		o.DisputeRounds()                    // part: disputes
		if way == "ByReconciler" || parked { // The refunds that were waited with, and what was found.
			o.Reconcile()
		}
		want := move.want
		if name == "OrderCancel" && want[:4] == "open" {
			want = "canceled" + want[4:]
		}
		require.Equal(t, want, o.State(), move.name+" "+way)
		require.Equal(t, 1, o.Count(`SELECT count(*) FROM idempotency_keys
							WHERE key = $1 AND finished_at IS NOT NULL`, key), move.name+" "+way)
		require.Empty(t, o.Discrepancies(), move.name)
	}
	o.Reconcile()
	o.RequireClean()
}

// waysToLearnOf learns in one way, without waiting for events that wait for our own operation.
func waysToLearnOf(o *Elsewhere, way string) {
	o.T.Helper()
	if way == "ByReconciler" || way == "ByBoth" {
		o.Reconcile()
	}
	hooks := o.Mailbox.Take()
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
