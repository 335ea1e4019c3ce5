package payments_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

// TestOrderIsLockedBeforeItsPayments: two operations that lock the same rows in different orders wait for each other.
// Each of these is still waiting for the order when the payment's row is free.
func TestOrderIsLockedBeforeItsPayments(t *testing.T) {
	t.Parallel()
	p := play(t)
	for name, prepare := range map[string]func(t *testing.T) (order, payment string, run func() error){
		"ApplyRefund": func(t *testing.T) (string, string, func() error) {
			p, order, payment := p.orderWith(t, isPaid)
			p.responds(refunds(db.RefundStatusPending))
			id := refund(p.api, "locks-"+payment, payment).ID()
			return order, payment, func() error {
				return p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
					_, err := p.api.Payments.ApplyRefund(t.Context(), q, p.w.Tenant.ID, id, stripe.Refund{
						ID: "re_" + p.script.intent[len("pi_"):], Status: db.RefundStatusSucceeded, AmountMinor: 300, Currency: "usd"})
					return err
				})
			}
		},
		"RetryOwedNow": func(t *testing.T) (string, string, func() error) {
			order, payment := p.owes(t)
			return order, payment, func() error {
				return p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
					_, err := p.service(&bank{}, nil).Repairs().RetryOwedNow(t.Context(), q, p.w.Tenant.ID, payment)
					return err
				})
			}
		},
		"AdoptPayment": func(t *testing.T) (string, string, func() error) {
			p, order, payment := p.orderWith(t, hasFailed)
			return order, payment, func() error {
				_, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(), p.seen(stripe.IntentSucceeded))
				return err
			}
		},
		"CancelOfAnOrder": func(t *testing.T) (string, string, func() error) {
			p, order, payment := p.orderWith(t, isWaiting)
			p.responds(other(cancel, stripe.Unknown), away(get)) // It has begun, and will find that it has to finish.
			cancels := func() world.Answer { return p.api.Post("/v1/orders/"+order+"/cancel", "cancel-"+order, `{}`) }
			require.Equal(t, "202 open", said(cancels()))
			p.responds(done(cancel, stripe.IntentCanceled))
			return order, payment, func() error {
				if a := cancels(); said(a) != "200 canceled" {
					return fmt.Errorf("canceled: %v", a)
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			order, payment, run := prepare(t)
			tx, err := p.w.DB.Raw().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }() // a test that fails must not wait for it
			_, err = tx.Exec(t.Context(), `SELECT FROM orders WHERE id = $1 FOR UPDATE`, order)
			require.NoError(t, err)
			ended := world.Async(run)
			p.w.Until("it waits for the order", func() bool { return p.w.WaitingForLocks() == 1 })
			_, err = tx.Exec(t.Context(), `SELECT FROM payments WHERE id = $1 FOR UPDATE NOWAIT`, payment)
			require.NoError(t, err, "it has locked the payment before the order")
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, <-ended)
		})
	}
}

// TestCancelOfAnOrderWhosePaymentMoves: the payment that the cancel is about changes between its reading and its writing.
// It ends, and there is nothing left to cancel; or it is authorized, and released with the order.
func TestCancelOfAnOrderWhosePaymentMoves(t *testing.T) {
	t.Parallel()
	p := play(t)
	for _, c := range []struct{ name, moves, want string }{
		{"Ends", `UPDATE payments SET status = 'failed', failure_code = 'x', failure_message = 'X', next_action = NULL,
			intent_closed = true, version = version + 1 WHERE id = $1`, "failed"},
		{"IsAuthorized", `UPDATE payments SET status = 'authorized', next_action = NULL,
			capture_before = clock_timestamp() + interval '7 days', version = version + 1 WHERE id = $1`, "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresAction)})
			order := p.api.Order()
			payment := p.api.Authorize("k-"+c.name, order, visa).ID()
			p.responds(done(cancel, stripe.IntentCanceled))
			tx, err := p.w.DB.Raw().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), c.moves, payment)
			require.NoError(t, err)
			canceled := world.Async(func() world.Answer { return p.api.Post("/v1/orders/"+order+"/cancel", "x-"+c.name, `{}`) })
			p.w.Until("it waits for the payment", func() bool { return p.w.WaitingForLocks() == 1 })
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, "200 canceled", said(<-canceled))
			require.Equal(t, c.want, p.holds(payment))
			p.requirePlayed()
		})
	}
}

// TestWebhookMakesTheKeyOfARefundDue: Stripe has made it, and its response was lost.
func TestWebhookMakesTheKeyOfARefundDue(t *testing.T) {
	t.Parallel()
	p, order, payment := play(t).orderWith(t, isPaid)
	p.responds(other(makes, stripe.Unknown))
	a := refund(p.api, "lost", payment)
	require.Equal(t, "202 pending", said(a))
	p.script.refund = a.ID()
	p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = 'lost'`)
	p.responds(shows(stripe.IntentSucceeded, refunded(300)), listing(own(db.RefundStatusSucceeded, 300)))
	require.NoError(t, p.webhook("charge.refunded", map[string]any{
		"id": p.script.intent, "object": "payment_intent",
		"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order},
	}))
	p.requirePlayed()
	require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'lost'
		AND next_attempt_at <= clock_timestamp()`))
}
