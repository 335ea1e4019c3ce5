package paycases

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// RefundWays are the ways in which the service learns of a refund of others.
var RefundWays = []string{"ByWebhook", "ByReconciler", "ByBothAndMore"}

// RefundsOfOthers: money that moved at Stripe is in our rows, whoever moved it. Each case is run with each of its ways,
// which next returns.
func RefundsOfOthers(t *testing.T, next func() (ways []string)) {
	t.Helper()
	learns := map[string]func(o *Elsewhere){
		"ByWebhook":     (*Elsewhere).DeliverWebhooks,
		"ByReconciler":  func(o *Elsewhere) { o.Reconcile() },
		"ByBothAndMore": func(o *Elsewhere) { o.Reconcile(); o.DeliverWebhooks(); o.Reconcile() },
	}
	run := func(name string, test func(t *testing.T, way string, learn func(o *Elsewhere))) {
		for _, way := range next() {
			t.Run(name+way, func(t *testing.T) {
				t.Parallel()
				test(t, way, learns[way])
			})
		}
	}
	run("BecomeRefunds", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		id := o.Dashboard(400)
		learn(o)
		o.RequireAgrees("provider succeeded 400", 400)
		row := o.Text(`SELECT id FROM refunds`)
		shown := o.API.Get("/v1/refunds/" + row)
		require.Equal(t, []any{"provider", "succeeded", id, "requested_by_customer"},
			[]any{shown.Get("origin"), shown.Get("status"), shown.Get("stripe", "refund"), shown.Get("reason")})
		require.Equal(t, "refund.created refund.succeeded",
			o.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, row))
		require.Equal(t, "partially_refunded", o.API.Get("/v1/orders/"+o.Order).Get("status"))

		// And the tenant refunds what is left of it.
		rest := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "rest", `{}`)
		require.Equal(t, http.StatusCreated, rest.Status, rest)
		require.EqualValues(t, 600, rest.Get("amount"))
		require.Equal(t, "api", rest.Get("origin"))
		learn(o)
		o.RequireClean()
	})

	run("ThatTheBankSendsBackGiveTheAmountBack", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		id := o.Dashboard(400)
		learn(o)
		require.NoError(t, o.Sim.FailRefund(id, "lost_or_stolen_card"))
		learn(o)
		o.RequireAgrees("provider failed 400", 0)
		require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
		o.RequireClean()
	})

	run("ThatAreCanceledInTheDashboard", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		id := o.Dashboard(400)
		learn(o)
		require.NoError(t, o.Sim.CancelRefund(id))
		learn(o)
		o.RequireAgrees("provider canceled 400", 0)
		o.RequireClean()
	})

	run("WithMetadataOfAnotherProgramHoldUpNone", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		ours := Refund(o.API, "ours", o.Payment)
		require.Equal(t, http.StatusCreated, ours.Status, ours)
		o.Dashboard(100, "refund_id", "RMA-7", "tenant_id", "acme")
		o.Dashboard(150, "refund_id", ours.ID(), "payment_id", o.Payment, "order_id", o.Order,
			"tenant_id", o.Tenant.ID)
		learn(o)
		require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
		learn(o)
		o.RequireAgrees("api failed 300, provider succeeded 100, provider succeeded 150", 250)
		o.RequireClean()
	})

	run("WithATenantOfAnotherProgram", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		o.Dashboard(100, "tenant_id", "acme", "order_id", "7")
		learn(o)
		o.RequireAgrees("provider succeeded 100", 100)
	})

	// Ours of 700 is on its way when it is made, and Stripe has not enough left for ours.
	run("WaitForOneOfOursThatDoesNotFit", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RetryError})
		ours := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "ours", `{"amount":700}`)
		require.Equal(t, http.StatusAccepted, ours.Status, ours)
		o.Dashboard(400)
		learn(o)
		require.Equal(t, "api pending 700", o.Rows())
		require.Empty(t, o.Discrepancies(), "nothing is wrong while ours is in progress")
		o.Dashboard(250)
		learn(o)
		CompleteOnce(o.World, o.API)
		require.Equal(t, "failed", o.API.Get("/v1/refunds/"+ours.ID()).Get("status"))
		learn(o)
		o.RequireAgrees("api failed 700, provider succeeded 250, provider succeeded 400", 650)
		o.RequireClean()
	})

	// Both are news at the same time, and Stripe lists the later one first.
	run("TakeTheRoomOfOneOfOursThatFailed", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		ours := o.API.Post("/v1/payments/"+o.Payment+"/refunds", "ours", `{"amount":700}`)
		require.Equal(t, http.StatusCreated, ours.Status, ours)
		require.NoError(t, o.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
		o.Sim.Advance(time.Second)
		o.Dashboard(600)
		hooks := o.Mailbox.Take()
		if way == "ByWebhook" {
			require.Equal(t, http.StatusOK, o.API.Receive(hooks[len(hooks)-1]).Status)
			o.API.Process()
		} else {
			learn(o)
		}
		o.RequireAgrees("api failed 700, provider succeeded 600", 600)
		require.Zero(t, o.Count(`SELECT count(*) FROM discrepancies`), "nobody is called for that")
		o.RequireClean()
	})

	// Ours was sent, and nobody knows yet whether it was made. Another program's has a copy of its metadata.
	run("ThatCopyOursInProgressAreNotOurs", func(t *testing.T, way string, learn func(o *Elsewhere)) {
		o := New(t)
		o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RetryError})
		ours := Refund(o.API, "ours", o.Payment)
		require.Equal(t, http.StatusAccepted, ours.Status, ours)
		o.Dashboard(250, "refund_id", ours.ID(), "payment_id", o.Payment, "order_id", o.Order,
			"tenant_id", o.Tenant.ID)
		learn(o)
		require.Equal(t, "api pending 300", o.Rows(), "ours is not succeeded because 250 went back")
		CompleteOnce(o.World, o.API)
		learn(o)
		o.RequireAgrees("api succeeded 300, provider succeeded 250", 550)
		o.RequireClean()
	})
}

// RefundsInAnyOrder are two in the dashboard and one of ours, of which Stripe has money for two, in an order such as "first
// ours second". lost: the response to ours is lost. heard: the webhooks of each are delivered before the next is made.
func RefundsInAnyOrder(t *testing.T, order string, lost, heard bool) {
	t.Helper()
	o := New(t)
	for _, who := range strings.Fields(order) {
		if who == "ours" {
			if lost {
				o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
			}
			o.API.Post("/v1/payments/"+o.Payment+"/refunds", "ours", `{"amount":400}`)
			o.Sim.ClearFaults()
		} else {
			_, _ = o.TryDashboard(400) // The third is refused, whosever it is.
		}
		if heard {
			o.DeliverWebhooks()
		}
	}
	o.DeliverWebhooks()
	CompleteOnce(o.World, o.API)
	o.Reconcile()
	require.Equal(t, 2, o.EffectsOf(stripesim.EffectRefund))
	require.Equal(t, 2, o.Count(`SELECT count(*) FROM refunds WHERE status = 'succeeded'`))
	payment, ofOrder := o.Refunded()
	require.Equal(t, []int{800, 800}, []int{payment, ofOrder})
	require.Empty(t, o.Discrepancies())
	o.RequireSound()
}
