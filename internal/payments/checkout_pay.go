package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
)

// payStep pays with the functions of an ordinary payment: the same calls under the
// same keys, the same four outcomes. What differs is the end, which is not the answer
// to the key but the end of a step; this file is about that.
func (s *Service) payStep(ctx context.Context, c *idempotency.Claim, k *checkingOut, work func(context.Context, *idempotency.Claim, *paying) (idempotency.Answer, error)) (idempotency.Answer, error) {
	for {
		if k.pay == nil {
			w, err := s.readPaying(ctx, c.TenantID, *k.row.PaymentID)
			if err != nil {
				return idempotency.Answer{}, err
			}
			k.pay, w.checkout = w, k
		}
		answer, err := work(ctx, c, k.pay)
		if !errors.Is(err, errMoved) {
			return answer, err
		}
		k.pay = nil // The payment or its order was canceled. Read them again.
	}
}

// recordPayment inserts the payment of the pay step, with its event.
func (k *checkingOut) recordPayment(ctx context.Context, q *db.Queries) error {
	p := k.pay.payment
	if err := insertPayment(ctx, q, p); err != nil {
		return err
	}
	if err := q.CheckoutSetPayment(ctx, db.CheckoutSetPaymentParams{TenantID: p.TenantID, ID: k.row.ID, PaymentID: &p.ID}); err != nil {
		return fmt.Errorf("note payment %s: %w", p.ID, err)
	}
	return outbox.Append(ctx, q, paymentEvent("payment.created", p))
}

// endPayStep is what finish calls for a payment that is a step of a checkout.
func (s *Service) endPayStep(ctx context.Context, c *idempotency.Claim, w *paying, e ending) error {
	switch {
	case e.status == db.PaymentStatusSucceeded:
		return s.payStepDone(ctx, c, w, e)
	case w.payment.IntentID != nil && !e.closesIntent:
		return s.payStepRefused(ctx, c, w, e)
	}
	return s.payStepFailed(ctx, c, w, e)
}

// payStepDone records that the money has moved. An order that is no longer open is
// left as it is; notifyStep notices and has the payment refunded.
func (s *Service) payStepDone(ctx context.Context, c *idempotency.Claim, w *paying, e ending) error {
	err := c.Phase(ctx, paymentMade, func(q *db.Queries) error {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: w.order.ID})
		if err != nil {
			return fmt.Errorf("lock order %s: %w", w.order.ID, err)
		}
		p, err := s.settleStep(ctx, q, w, e)
		if err != nil {
			return err
		}
		events := []outbox.Event{paymentEvent("payment.succeeded", p)}
		if order.Status == db.OrderStatusOpen {
			if order, err = q.OrderPay(ctx, db.OrderPayParams{TenantID: c.TenantID, ID: order.ID, PaymentID: &p.ID}); err != nil {
				return fmt.Errorf("pay order %s: %w", order.ID, err)
			}
			events = append(events, orderEvent("order.paid", order))
		}
		if err := w.checkout.noteFailure(ctx, q, nil, false); err != nil {
			return err
		}
		if err := w.checkout.move(ctx, q, db.SagaStepPay, db.SagaStepStatusDone); err != nil {
			return err
		}
		return outbox.Append(ctx, q, events...)
	})
	if err == nil {
		c.Log().Info("payment finished", "payment_id", w.payment.ID, "status", string(e.status), "stripe_request_id", e.out.RequestID)
	}
	return err
}

// payStepRefused records why the payment was refused. An ordinary payment would have
// failed now, and left its PaymentIntent to the next card. A checkout has no next
// card, but after a 3-D Secure challenge the customer's browser has the intent's
// client secret and could pay with another one. So the step has not failed until its
// intent is canceled.
func (s *Service) payStepRefused(ctx context.Context, c *idempotency.Claim, w *paying, e ending) error {
	return c.Phase(ctx, paymentRefused, func(q *db.Queries) error {
		if err := recordCall(ctx, q, c.TenantID, e.call.key, e.out, false); err != nil {
			return err
		}
		return w.checkout.noteFailure(ctx, q, &e.failure, e.declined)
	})
}

// callOffPayment cancels the intent of a refused payment, after which no money can
// move. If the intent turns out to be paid, so is the payment.
func (s *Service) callOffPayment(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	if w.settled() {
		return idempotency.Answer{}, s.endSettledPayStep(ctx, c, w)
	}
	intent, out, err := s.cancelIntent(ctx, c, w.payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case IntentCanceled:
		return idempotency.Answer{}, s.payStepFailed(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: w.checkout.failure(), declined: w.checkout.row.Declined, chargeID: intent.ChargeID, closesIntent: true,
		})
	case "":
		return s.wait(ctx, c, w, out)
	default:
		return s.settleOrWait(ctx, c, w, intent, "the intent could not be canceled")
	}
}

// payStepFailed records that no money has moved and none will, and starts to
// compensate the steps before.
func (s *Service) payStepFailed(ctx context.Context, c *idempotency.Claim, w *paying, e ending) error {
	why := e.failure
	if e.status == db.PaymentStatusCanceled {
		why = paymentCanceled
	}
	err := c.Phase(ctx, releaseDue, func(q *db.Queries) error {
		p, err := s.settleStep(ctx, q, w, e)
		if err != nil {
			return err
		}
		if err := w.checkout.fail(ctx, q, db.SagaStepPay, why, e.declined); err != nil {
			return err
		}
		return outbox.Append(ctx, q, paymentEvent("payment."+string(e.status), p))
	})
	if err == nil {
		c.Log().Info("payment finished", "payment_id", w.payment.ID, "status", string(e.status), "failure", why.Code)
	}
	return err
}

// settleStep moves the payment's row to its final status, and records the call that
// decided it.
func (s *Service) settleStep(ctx context.Context, q *db.Queries, w *paying, e ending) (db.Payment, error) {
	after := w.ended(e)
	p, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
		TenantID: after.TenantID, ID: after.ID, SeenVersion: w.payment.Version, Status: after.Status, IntentClosed: after.IntentClosed, ChargeID: after.ChargeID,
		FailureCode: after.FailureCode, FailureDeclineCode: after.FailureDeclineCode, FailureMessage: after.FailureMessage,
	})
	if errors.Is(err, db.ErrNoRows) {
		return p, errMoved
	}
	if err != nil {
		return p, fmt.Errorf("settle payment %s: %w", after.ID, err)
	}
	if e.call.key == "" { // It was decided without a call.
		return p, nil
	}
	return p, recordCall(ctx, q, after.TenantID, e.call.key, e.out, false)
}

// endSettledPayStep goes on from a payment that another operation has ended: the
// customer canceled it, or its order.
func (s *Service) endSettledPayStep(ctx context.Context, c *idempotency.Claim, w *paying) error {
	if w.payment.Status == db.PaymentStatusSucceeded {
		return c.Phase(ctx, paymentMade, func(q *db.Queries) error {
			return w.checkout.move(ctx, q, db.SagaStepPay, db.SagaStepStatusDone)
		})
	}
	return s.failStep(ctx, c, w.checkout, db.SagaStepPay, releaseDue, paymentCanceled)
}

// refusePayStep records a payment that failed before it began, because the order was
// canceled first: the answer to a failed checkout shows a failed payment.
func (s *Service) refusePayStep(ctx context.Context, c *idempotency.Claim, k *checkingOut) error {
	order, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: c.TenantID, ID: *k.row.OrderID})
	if err != nil {
		return fmt.Errorf("read order %s: %w", *k.row.OrderID, err)
	}
	k.pay = newPaying(c.TenantID, c.Key, k.request.PaymentMethod, db.OrderToPayRow{Order: order, IntentClosed: true})
	why := Failure{Code: "order_canceled", Message: "The order was canceled before it was paid. No money was taken."}
	err = c.Phase(ctx, releaseDue, func(q *db.Queries) error {
		if err := k.recordPayment(ctx, q); err != nil {
			return err
		}
		p, err := s.settleStep(ctx, q, k.pay, ending{status: db.PaymentStatusFailed, failure: why, closesIntent: true})
		if err != nil {
			return err
		}
		if err := k.fail(ctx, q, db.SagaStepPay, why, false); err != nil {
			return err
		}
		return outbox.Append(ctx, q, paymentEvent("payment.failed", p))
	})
	if err == nil {
		k.row.PaymentID = &k.pay.payment.ID
	}
	return err
}

var paymentCanceled = Failure{Code: "payment_canceled", Message: "The payment was canceled. No money was taken."}
