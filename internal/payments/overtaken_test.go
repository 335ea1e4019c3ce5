package payments_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// An operation reads its rows, and another one changes them before it locks them, or while its own claim is given
// back.

// overtakenAfter sends a request whose server gets the result of a statement only after meanwhile has returned.
func overtakenAfter(
	t *testing.T, proxy *pgproxy.Proxy, statement string, send func() world.Answer, meanwhile func(),
) world.Answer {
	t.Helper()
	goOn := make(chan struct{})
	read := proxy.Hold("-- name: "+statement+" ", goOn)
	answer := world.Async(send)
	func() {
		defer close(goOn)
		select {
		case <-read.Fired():
			meanwhile()
		case <-time.After(world.Patience):
			require.Fail(t, "the statement "+statement+" was not sent")
		}
	}()
	return <-answer
}

// TestOrderCancelFindsItsOrderChanged: the order was free when it was read.
func TestOrderCancelFindsItsOrderChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(p *played, order string)
		answer    string
		begun     bool
	}{
		"BeingPaid": {func(p *played, order string) {
			p.responds(other(create, stripe.Unknown))
			require.Equal(p.T, http.StatusAccepted, p.api.Pay("pays", order, visa).Status)
		}, "payment-in-progress", false},
		"Paid": {func(p *played, order string) {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentSucceeded))
			require.Equal(p.T, http.StatusCreated, p.api.Pay("pays", order, visa).Status)
		}, "order-not-cancelable", false},
		"Canceled": {func(p *played, order string) {
			require.Equal(p.T, http.StatusOK, p.api.Post("/v1/orders/"+order+"/cancel", "another", `{}`).Status)
		}, "200 canceled", false},
		"WaitingForItsCustomer": {func(p *played, order string) {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction))
			require.Equal(p.T, http.StatusAccepted, p.api.Pay("pays", order, visa).Status)
			p.responds(done(cancel, stripe.IntentCanceled))
		}, "200 canceled", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := playProxied(t)
			order := p.api.Order()
			a := overtakenAfter(t, proxy, "OrderToPay", func() world.Answer {
				return p.api.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`)
			}, func() { c.meanwhile(p, order) })
			require.Equal(t, c.answer, said(a), a)
			p.requirePlayed()
			begun := p.w.Count(`SELECT count(*) FROM orders WHERE canceling_key = 'cancel'`)
			require.Equal(t, c.begun, begun == 1, "what need not be canceled is not begun")
		})
	}
}

// TestPaymentFindsItsOrderPaid: the order was free when it was read. Only a payment after the first reads it.
func TestPaymentFindsItsOrderPaid(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	order := p.api.Order()
	p.responds(done(create, stripe.IntentRequiresConfirmation), other(confirm, stripe.Refused, declined))
	require.Equal(t, "payment-declined", said(p.api.Pay("declined", order, visa)))
	a := overtakenAfter(t, proxy, "OrderToPay", func() world.Answer { return p.api.Pay("late", order, visa) }, func() {
		p.responds(done(confirm, stripe.IntentSucceeded))
		require.Equal(t, "201 succeeded", said(p.api.Pay("pays", order, visa)))
	})
	require.Equal(t, "order-already-paid", said(a), a)
	p.requirePlayed()
}

// TestPaymentCancelFindsItsPaymentCaptured: the payment was authorized when it was read.
func TestPaymentCancelFindsItsPaymentCaptured(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	payment := api.Authorize("pays", api.Order(), visa).ID()
	a := overtakenAfter(t, proxy, "PaymentGet", func() world.Answer { return api.CancelPayment("cancel", payment) }, func() {
		require.Equal(t, http.StatusOK, api.Capture("capture", payment, 0).Status)
	})
	require.Equal(t, "payment-not-cancelable", said(a), a)
	require.Equal(t, "succeeded", w.Text(`SELECT status FROM payments`))
	require.Equal(t, a.Identity(), api.CancelPayment("cancel", payment).Identity(), "the refusal is the answer of its key")
}

// TestCancelOfAnOrderThatAnotherCancels: two cancels of an order are under way, each under its own key.
func TestCancelOfAnOrderThatAnotherCancels(t *testing.T) {
	t.Parallel()
	p := play(t)
	waiting := func(t *testing.T) (*played, string, func(key string) world.Answer) {
		p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction)})
		order := p.api.Order()
		require.Equal(t, http.StatusAccepted, p.api.Pay("pays-"+order, order, visa).Status)
		return p, order, func(key string) world.Answer {
			return p.api.Post("/v1/orders/"+order+"/cancel", key+"-"+order, `{}`)
		}
	}
	canceledOnce := func(p *played, order string) {
		p.requirePlayed()
		require.Equal(p.T, 1, p.w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'order.canceled'
			AND aggregate_id = $1`, order))
		require.Equal(p.T, 2, p.w.Count(`SELECT count(*) FROM idempotency_keys
			WHERE resource_id = $1 AND operation = 'cancel_order' AND answer_status = 200`, order))
	}

	t.Run("WhileItsCallIsUnderWay", func(t *testing.T) {
		p, order, cancels := waiting(t)
		p.responds(done(cancel, stripe.IntentCanceled, meanwhile(func() {
			p.responds(done(cancel, stripe.IntentCanceled))
			require.Equal(t, "200 canceled", said(cancels("another")))
		})))
		require.Equal(t, "200 canceled", said(cancels("first")))
		canceledOnce(p, order)
	})

	t.Run("WhileItWaits", func(t *testing.T) {
		p, order, cancels := waiting(t)
		p.responds(other(cancel, stripe.Unknown), away(get))
		require.Equal(t, "202 open", said(cancels("first")))
		p.responds(done(cancel, stripe.IntentCanceled))
		require.Equal(t, "200 canceled", said(cancels("another")))
		require.Equal(t, "200 canceled", said(cancels("first")), "without another request to Stripe")
		canceledOnce(p, order)
	})
}

// TestCancelOfAnOrderThatIsPaid: its customer was faster, and the payment's own operation records that, or has.
func TestCancelOfAnOrderThatIsPaid(t *testing.T) {
	t.Parallel()
	p := play(t)
	waiting := []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction)}
	setup := func(t *testing.T) (_ *played, order string, cancels func() world.Answer) {
		p := p.row(t, waiting)
		order = p.api.Order()
		require.Equal(t, http.StatusAccepted, p.api.Pay("pays-"+order, order, visa).Status)
		return p, order, func() world.Answer {
			return p.api.Post("/v1/orders/"+order+"/cancel", "cancel-"+order, `{}`)
		}
	}

	t.Run("WhileItsCancelWaits", func(t *testing.T) {
		p, order, cancels := setup(t)
		p.responds(other(cancel, stripe.Unknown), away(get))
		require.Equal(t, "202 open", said(cancels()))
		p.responds(shows(stripe.IntentSucceeded))
		require.Equal(t, "201 succeeded", said(p.api.Pay("pays-"+order, order, visa)))
		require.Equal(t, "order-not-cancelable", said(cancels()), "without another request to Stripe")
		p.requirePlayed()
	})

	t.Run("AndItsPaymentIsMadeDue", func(t *testing.T) {
		p, order, cancels := setup(t)
		p.responds(other(cancel, stripe.Conflict), shows(stripe.IntentSucceeded))
		require.Equal(t, "order-not-cancelable", said(cancels()))
		p.requirePlayed()
		require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = $1
			AND next_attempt_at <= clock_timestamp()`, "pays-"+order))
	})

	t.Run("NotIfItsHolderHasLostTheLease", func(t *testing.T) {
		p, order, cancels := setup(t)
		p.responds(other(cancel, stripe.Conflict), shows(stripe.IntentProcessing))
		require.Equal(t, "payment-in-progress", said(cancels()))
		p.responds(shows(stripe.IntentProcessing, meanwhile(func() {
			p.w.Exec(`UPDATE idempotency_keys SET lease_token = lease_token + 1,
				leased_until = clock_timestamp() + interval '1 hour' WHERE key = $1`, "cancel-"+order)
		})))
		require.Equal(t, "idempotency-key-in-flight", said(cancels()))
		p.requirePlayed()
	})
}

// TestCancelOfAPaymentThatEnds: the payment ends without its cancel.
func TestCancelOfAPaymentThatEnds(t *testing.T) {
	t.Parallel()
	p := play(t)
	for name, c := range map[string]struct {
		ends   func(p *played, order string)
		answer string
	}{
		"WithItsOrder": {func(p *played, order string) {
			p.responds(done(cancel, stripe.IntentCanceled))
			require.Equal(p.T, "200 canceled", said(p.api.Post("/v1/orders/"+order+"/cancel", "order-"+order, `{}`)))
		}, "200 canceled"},
		"Paid": {func(p *played, order string) {
			p.responds(shows(stripe.IntentSucceeded))
			require.Equal(p.T, "201 succeeded", said(p.api.Pay("pays-"+order, order, visa)))
		}, "payment-not-cancelable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction)})
			order := p.api.Order()
			payment := p.api.Pay("pays-"+order, order, visa).ID()
			cancels := func(key string) world.Answer {
				return p.api.Post("/v1/payments/"+payment+"/cancel", key+"-"+order, `{}`)
			}
			p.responds(other(cancel, stripe.Unknown), away(get))
			require.Equal(t, "202 requires_action", said(cancels("first")))
			c.ends(p, order)
			require.Equal(t, c.answer, said(cancels("first")), "without another request to Stripe")
			require.Equal(t, "payment-not-cancelable", said(cancels("late")), "it had ended before it was asked for")
			p.requirePlayed()
		})
	}
}

// TestPaymentOfAnOrderThatIsOccupied is refused by what is read without a lock.
func TestPaymentOfAnOrderThatIsOccupied(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	for name, occupy := range map[string]func(order string){
		"BeingCanceled": func(order string) { p.w.Exec(`UPDATE orders SET canceling_key = 'c' WHERE id = $1`, order) },
		"BeingPaid": func(order string) {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction))
			require.Equal(t, "202 requires_action", said(p.api.Pay("waits", order, visa)))
		},
	} {
		order := p.api.Order()
		occupy(order)
		proxy.Seen()
		require.Equal(t, "payment-in-progress", said(p.api.Pay(name, order, visa)), name)
		for _, statement := range proxy.Seen() {
			require.NotContains(t, statement, "name: OrderLock ", name)
		}
	}
}

// TestPaymentOfAnOrderThatWasClosedMeanwhile: the money has moved for an order that can be paid no more. It is given
// back, and each statement on the way there may fail.
func TestPaymentOfAnOrderThatWasClosedMeanwhile(t *testing.T) {
	t.Parallel()
	p := play(t)
	p = p.row(t, []response{done(create, stripe.IntentRequiresConfirmation)})
	order := p.api.Order()
	p.responds(done(confirm, stripe.IntentSucceeded, meanwhile(func() {
		closeOrder(p, p.w, order)
	})), shows(stripe.IntentSucceeded))
	a := p.api.Pay("k", order, visa)
	require.Equal(t, "201 succeeded", said(a), a)
	p.requirePlayed()
	require.Equal(t, "canceled", p.w.Text(`SELECT status FROM orders WHERE id = $1`, order))
	require.Equal(t, "automatic pending 1000", p.w.Text(`SELECT concat_ws(' ', origin, status, amount_minor) FROM refunds
		WHERE order_id = $1`, order))
	require.Equal(t, "done", p.w.Text(`SELECT outcome FROM stripe_calls WHERE operation = 'confirm' AND tenant_id = $1`,
		p.w.Tenant.ID))
	require.Equal(t, "payment.created payment.succeeded", p.w.Text(`SELECT string_agg(type, ' ' ORDER BY version)
		FROM outbox_events WHERE aggregate_id = $1`, a.ID()))
}

// TestPaymentThatFailsForAClosedOrder: it has failed as any other.
func TestPaymentThatFailsForAClosedOrder(t *testing.T) {
	t.Parallel()
	p := play(t).row(t, nil)
	order := p.api.Order()
	p.responds(done(create, stripe.IntentRequiresConfirmation), other(confirm, stripe.NotExecuted),
		other(confirm, stripe.NotExecuted), other(confirm, stripe.NotExecuted))
	require.Equal(t, "202 processing", said(p.api.Pay("k", order, visa)))
	closeOrder(p, p.w, order)
	p.responds(shows(stripe.IntentRequiresConfirmation), other(confirm, stripe.Refused, declined))
	require.Equal(t, "payment-declined", said(p.api.Pay("k", order, visa)))
	p.requirePlayed()
	require.Equal(t, "payment.created payment.failed", p.w.Text(`SELECT string_agg(type, ' ' ORDER BY e.version)
		FROM outbox_events e JOIN payments p ON p.id = e.aggregate_id`))
	require.Zero(t, p.w.Count(`SELECT count(*) FROM refunds`))
}

// TestPaymentOfAClosedOrderThatIsChangedMeanwhile is read again before it ends.
func TestPaymentOfAClosedOrderThatIsChangedMeanwhile(t *testing.T) {
	t.Parallel()
	p := play(t).row(t, nil)
	order := p.api.Order()
	p.responds(done(create, stripe.IntentRequiresConfirmation),
		done(confirm, stripe.IntentSucceeded, meanwhile(func() { closeOrder(p, p.w, order) })),
		shows(stripe.IntentSucceeded, meanwhile(func() { p.w.Exec(`UPDATE payments SET version = version + 1`) })),
		shows(stripe.IntentSucceeded))
	require.Equal(t, "201 succeeded", said(p.api.Pay("k", order, visa)))
	p.requirePlayed()
}

// TestRecoveryPointOfALaterVersion is not taken for one that is known: the version before it leaves the payment alone.
func TestRecoveryPointOfALaterVersion(t *testing.T) {
	t.Parallel()
	log := &logs.Buffer{}
	p, _ := playProxied(t, func(o *world.LocalOptions) { o.Log = log.Logger(slog.LevelInfo) })
	order := p.api.Order()
	p.responds(other(create, stripe.Unknown))
	require.Equal(t, "202 processing", said(p.api.Pay("k", order, visa)))
	p.w.Exec(`UPDATE idempotency_keys SET recovery_point = 'of_the_next_version' WHERE key = 'k'`)
	p.run("k")
	require.Contains(t, log.String(), "a payment cannot resume from")
	require.Equal(t, "open; processing", p.ledger(order))
}

// closeOrder closes an order without its cancel, as a version of the service with a fault in it might.
func closeOrder(t require.TestingT, w *world.World, order string) {
	require.NoError(t, w.DB.InTx(w.T.Context(), func(q *db.Queries) error {
		row, err := q.OrderCancel(w.T.Context(), db.OrderCancelParams{TenantID: w.Tenant.ID, ID: order})
		if err != nil {
			return err
		}
		return outbox.Append(w.T.Context(), q, payments.OrderEvent("order.canceled", row))
	}))
}

// TestPaymentIsNotBegunWhileStripeTakesNone: the caller may begin it under any key, later.
func TestPaymentIsNotBegunWhileStripeTakesNone(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { return notReady{g} }})
	a := api.Pay("k", api.Order(), visa)
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a)
	require.Zero(t, w.Count(`SELECT count(*) FROM payments`))
	require.Zero(t, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'k'`))
}

// notReady is a Stripe that responds to nothing.
type notReady struct{ payments.Gateway }

func (notReady) Ready(context.Context, string) (func(), error) { return nil, stripe.ErrUnavailable }

// TestPaymentThatCannotReadWhatHasChanged waits: its order was closed, and the read of it fails.
func TestPaymentThatCannotReadWhatHasChanged(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	order := p.api.Order()
	p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentSucceeded, meanwhile(func() {
		closeOrder(p, p.w, order)
		proxy.Fail("name: PaymentWithOrder ", 1)
	})))
	require.Equal(t, "202 processing", said(p.api.Pay("k", order, visa)))
	require.Contains(t, p.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`), "PaymentWithOrder")
	p.responds(shows(stripe.IntentSucceeded))
	require.Equal(t, "201 succeeded", said(p.api.Pay("k", order, visa)))
	p.requirePlayed()
}
