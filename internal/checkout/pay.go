package checkout

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
)

// pay runs the pay step with the functions of an ordinary payment: the same calls under
// the same keys, the same four outcomes. What differs is the end, which is not the
// answer to the key but the end of a step: payStep.
func (s *Service) pay(
	ctx context.Context, c *idempotency.Claim, k *saga,
	work func(context.Context, *idempotency.Claim, *payments.Run) (idempotency.Answer, error),
) (idempotency.Answer, error) {
	for {
		if k.run == nil {
			run, err := s.payments.ReadRun(ctx, c.TenantID, *k.row.PaymentID, payStep{s, k})
			if err != nil {
				return idempotency.Answer{}, err
			}
			k.run = run
		}
		answer, err := work(ctx, c, k.run)
		if !errors.Is(err, payments.ErrMoved) {
			return answer, err
		}
		k.run = nil // The payment or its order was canceled. Read them again.
	}
}

// callOff cancels the intent of a refused payment, after which no money can move. If
// the intent turns out to be paid, so is the payment.
func (s *Service) callOff(
	k *saga,
) func(context.Context, *idempotency.Claim, *payments.Run) (idempotency.Answer, error) {
	return func(ctx context.Context, c *idempotency.Claim, r *payments.Run) (idempotency.Answer, error) {
		step := payStep{s, k}
		if r.Ended() {
			return idempotency.Answer{}, step.endedElsewhere(ctx, c, r)
		}
		intent, out, err := s.payments.CancelIntent(ctx, c, r.Payment)
		if err != nil {
			return idempotency.Answer{}, err
		}
		switch intent.Status {
		case stripe.IntentCanceled:
			return idempotency.Answer{}, step.failed(ctx, c, r, payments.Settlement{
				Status: db.PaymentStatusFailed, Failure: k.failure(), Declined: k.row.Declined,
				ChargeID: intent.ChargeID, ClosesIntent: true,
			})
		case "":
			return s.payments.Wait(ctx, c, r, out.Why())
		default:
			return s.payments.SettleOrWait(ctx, c, r, intent, "the intent could not be canceled")
		}
	}
}

// recordPayment inserts the payment of the pay step, with its event.
func (k *saga) recordPayment(ctx context.Context, q *db.Queries) error {
	p := k.run.Payment
	if err := k.run.Insert(ctx, q); err != nil {
		return err
	}
	if err := q.CheckoutSetPayment(ctx, db.CheckoutSetPaymentParams{
		TenantID: p.TenantID, ID: k.row.ID, PaymentID: &p.ID,
	}); err != nil {
		return fmt.Errorf("store payment %s in its checkout: %w", p.ID, err)
	}
	return outbox.Append(ctx, q, payments.PaymentEvent("payment.created", p))
}

// refusePayment records a payment that failed before it began, because the order was
// canceled first: the answer to a failed checkout shows a failed payment.
func (s *Service) refusePayment(ctx context.Context, c *idempotency.Claim, k *saga) error {
	order, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: c.TenantID, ID: *k.row.OrderID})
	if err != nil {
		return fmt.Errorf("read order %s: %w", *k.row.OrderID, err)
	}
	k.run = k.newRun(s, order)
	why := stripe.Failure{
		Code: "order_canceled", Message: "The order was canceled before it was paid. No money was taken.",
	}
	return c.Phase(ctx, k.dueUnpaid(), func(q *db.Queries) error {
		if err := k.recordPayment(ctx, q); err != nil {
			return err
		}
		p, err := k.run.Settle(ctx, q, payments.Settlement{
			Status: db.PaymentStatusFailed, Failure: why, ClosesIntent: true,
		})
		if err != nil {
			return err
		}
		if err := k.fail(ctx, q, k.pays(), why, false); err != nil {
			return err
		}
		return outbox.Append(ctx, q, payments.PaymentEvent("payment.failed", p))
	})
}

// payStep is the payments.Ending of a payment that is a step of a checkout.
type payStep struct {
	*Service
	k *saga
}

// Pending shows the checkout, not the payment.
func (s payStep) Pending(ctx context.Context, c *idempotency.Claim, _ *payments.Run) idempotency.Answer {
	return s.saveProgress(ctx, c, s.k)
}

// Finish ends the step. The checkout continues, so there is no answer yet.
func (s payStep) Finish(
	ctx context.Context, c *idempotency.Claim, r *payments.Run, e payments.Settlement,
) (idempotency.Answer, error) {
	var err error
	switch {
	case e.AlreadyStored:
		err = s.endedElsewhere(ctx, c, r)
	case e.Status == db.PaymentStatusAuthorized, e.Status == db.PaymentStatusSucceeded && r.Payment.ManualCapture:
		return s.authorized(ctx, c, r, e)
	case e.Status == db.PaymentStatusSucceeded:
		err = s.done(ctx, c, r, e)
	case r.Payment.IntentID != nil && !e.ClosesIntent:
		err = s.refused(ctx, c, e)
	default:
		err = s.failed(ctx, c, r, e)
	}
	return idempotency.Answer{}, err
}

// done records that the money has moved. An order that is no longer open is
// left as it is; notifyStep notices and has the payment refunded.
func (s payStep) done(ctx context.Context, c *idempotency.Claim, r *payments.Run, e payments.Settlement) error {
	err := c.Phase(ctx, paymentMade, func(q *db.Queries) error {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: r.Order.ID})
		if err != nil {
			return fmt.Errorf("lock order %s: %w", r.Order.ID, err)
		}
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return err
		}
		events := []outbox.Event{payments.PaymentEvent("payment.succeeded", p)}
		if order.Status == db.OrderStatusOpen {
			order, err = q.OrderPay(ctx, db.OrderPayParams{TenantID: c.TenantID, ID: order.ID, PaymentID: &p.ID})
			if err != nil {
				return fmt.Errorf("pay order %s: %w", order.ID, err)
			}
			events = append(events, payments.OrderEvent("order.paid", order))
		}
		if err := s.k.noteFailure(ctx, q, nil, false); err != nil {
			return err
		}
		if err := s.k.move(ctx, q, db.SagaStepPay, db.SagaStepStatusDone); err != nil {
			return err
		}
		return outbox.Append(ctx, q, events...)
	})
	if err != nil {
		return err
	}
	c.Log().Info("payment finished", "payment_id", r.Payment.ID, "status", string(e.Status), "stripe_request_id",
		e.Outcome.RequestID)
	return nil
}

// refused records why the payment was refused. An ordinary payment would have
// failed now, and left its PaymentIntent to the next card. A checkout has no next
// card, so its intent is canceled, and the step has not failed before that.
func (s payStep) refused(ctx context.Context, c *idempotency.Claim, e payments.Settlement) error {
	return c.Phase(ctx, paymentRefused, func(q *db.Queries) error {
		if err := calls.RecordEnd(ctx, q, c.TenantID, e.Call, e.Outcome); err != nil {
			return err
		}
		return s.k.noteFailure(ctx, q, &e.Failure, e.Declined)
	})
}

// failed records that no money has moved and none will, and starts to
// compensate the steps before.
func (s payStep) failed(ctx context.Context, c *idempotency.Claim, r *payments.Run, e payments.Settlement) error {
	why := e.Failure
	if e.Status == db.PaymentStatusCanceled {
		why = paymentCanceled
	}
	err := c.Phase(ctx, s.k.dueUnpaid(), func(q *db.Queries) error {
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return err
		}
		if err := s.k.fail(ctx, q, s.k.pays(), why, e.Declined); err != nil {
			return err
		}
		return outbox.Append(ctx, q, payments.PaymentEvent("payment."+string(e.Status), p))
	})
	if err != nil {
		return err
	}
	c.Log().Info("payment finished", "payment_id", r.Payment.ID, "status", string(e.Status), "failure", why.Code)
	return nil
}

// endedElsewhere continues from a payment that another operation has ended: the
// customer canceled it, or its order.
func (s payStep) endedElsewhere(ctx context.Context, c *idempotency.Claim, r *payments.Run) error {
	if r.Payment.Status == db.PaymentStatusSucceeded || r.Payment.Status == db.PaymentStatusAuthorized {
		point := paymentMade
		if s.k.request.ManualCapture {
			point = paymentAuthorized
		}
		return c.Phase(ctx, point, func(q *db.Queries) error {
			return s.k.move(ctx, q, s.k.pays(), db.SagaStepStatusDone)
		})
	}
	return s.failStep(ctx, c, s.k, s.k.pays(), s.k.dueUnpaid(), paymentCanceled)
}

var paymentCanceled = stripe.Failure{
	Code: "payment_canceled", Message: "The payment was canceled. No money was taken.",
}
