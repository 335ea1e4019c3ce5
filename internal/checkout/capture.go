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

// This file is what a checkout with manual capture does beside the steps of the other kind: authorize and capture take
// the place of pay, and release_payment undoes the first.
//
// The checkout holds its authorization from the moment it has it, as a capture does, until it has captured or released
// it: other captures and cancels of the payment, and a cancel of its order, are refused with payment-in-progress. At
// Stripe others may still capture or cancel it, or it expires. That is read from the intent, by the capture or by the
// release, and is the end of the step.

// authorized records that the money is reserved or, if others were faster, taken.
func (s payStep) authorized(
	ctx context.Context, c *idempotency.Claim, r *payments.Run, e payments.Settlement,
) (idempotency.Answer, error) {
	err := c.Phase(ctx, paymentAuthorized, func(q *db.Queries) error {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: r.Order.ID})
		switch {
		case err != nil:
			return fmt.Errorf("lock order %s: %w", r.Order.ID, err)
		case order.CancelingKey != nil:
			return errCancelBegun
		case order.Status != db.OrderStatusOpen && e.Status == db.PaymentStatusAuthorized:
			return payments.ErrMoved // It is released then.
		}
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return err
		}
		if order.Status == db.OrderStatusOpen {
			err = payments.Advanced(ctx, q, p, order)
		} else { // notifyStep notices, and has the payment refunded.
			err = outbox.Append(ctx, q, payments.PaymentEvent("payment.succeeded", p))
		}
		if err != nil {
			return err
		}
		if p.Status == db.PaymentStatusAuthorized {
			if err := payments.HoldAuthorization(ctx, q, p, c.Key, &p.AmountMinor); err != nil {
				return err
			}
		}
		if err := s.k.noteFailure(ctx, q, nil, false); err != nil {
			return err
		}
		return s.k.move(ctx, q, db.SagaStepAuthorize, db.SagaStepStatusDone)
	})
	switch {
	case errors.Is(err, errCancelBegun): // The intent will show who was faster.
		return s.wait(ctx, c, s.k, idempotency.NextTry(c), err)
	case err != nil:
		return idempotency.Answer{}, err
	}
	c.Log().Info("payment authorized", "payment_id", r.Payment.ID, "status", string(e.Status), "stripe_request_id",
		e.Outcome.RequestID)
	return idempotency.Answer{}, nil
}

// beginCaptureStep records the capture. From here on the reservations do not expire.
func (s *Service) beginCaptureStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	var captures *db.Payment
	err := c.Phase(ctx, payments.CaptureRecorded, func(q *db.Queries) error {
		if err := k.calledOff(ctx, q); err != nil {
			return err
		}
		p, _, err := payments.LockAuthorized(ctx, q, c.TenantID, *k.row.OrderID, *k.row.PaymentID)
		if err != nil {
			return err
		}
		if err := k.pin(ctx, q); err != nil {
			return err
		}
		if p.Status == db.PaymentStatusAuthorized { // Otherwise it has ended, and captureStep takes it as it is.
			if err := k.hold(ctx, q, &p); err != nil {
				return err
			}
			if err := payments.CaptureCall(p, c.Key).Insert(ctx, q, c.TenantID); err != nil {
				return err
			}
			captures = &p
		}
		return k.move(ctx, q, db.SagaStepCapture, db.SagaStepStatusRunning)
	})
	switch {
	case err == nil:
		k.captures = captures
	case errors.Is(err, payments.ErrPaymentInProgress):
		return s.wait(ctx, c, k, idempotency.NextTry(c), err)
	case errors.Is(err, errRanOut):
		return s.ranOut(ctx, c, k, db.SagaStepCapture)
	case errors.Is(err, errCalledOff): // The reason is recorded already.
		err = c.Phase(ctx, paymentReleaseDue, func(*db.Queries) error { return nil })
	}
	return idempotency.Answer{}, err
}

// hold makes sure that the authorization is held for this checkout, to capture all of it.
func (k *saga) hold(ctx context.Context, q *db.Queries, p *db.Payment) error {
	key := k.row.IdempotencyKey
	if p.CapturingKey == nil || *p.CapturingKey != key {
		if err := payments.HoldAuthorization(ctx, q, *p, key, &p.AmountMinor); err != nil {
			return err
		}
	}
	p.CapturingKey, p.CapturingMinor = &key, &p.AmountMinor
	return nil
}

// captureStep takes the money with the functions of an ordinary capture.
func (s *Service) captureStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	p, recorded := k.captures, k.captures != nil
	k.captures = nil
	if !recorded {
		read, err := s.paymentOf(ctx, k)
		if err != nil {
			return idempotency.Answer{}, err
		}
		p = &read
	}
	if p.Status != db.PaymentStatusAuthorized {
		return idempotency.Answer{}, s.captureEnded(ctx, c, k, p.Status, func(*db.Queries) (db.Payment, error) {
			return *p, nil
		})
	}
	return s.payments.Capture(ctx, c, *p, recorded, captureEnd{s, k})
}

func (s *Service) paymentOf(ctx context.Context, k *saga) (db.Payment, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: k.row.TenantID, ID: *k.row.PaymentID})
	if err != nil {
		return p, fmt.Errorf("read payment %s: %w", *k.row.PaymentID, err)
	}
	return p, nil
}

// captureEnd is the payments.CaptureEnding of a capture that is a step of a checkout.
type captureEnd struct {
	*Service
	k *saga
}

// PendingCapture shows the checkout, not the payment.
func (s captureEnd) PendingCapture(ctx context.Context, c *idempotency.Claim, _ db.Payment) idempotency.Answer {
	return s.saveProgress(ctx, c, s.k)
}

// FinishCapture ends the step. The capture of a request would leave the payment authorized after a refusal, for another
// key. A checkout has no other, so its intent is canceled, and the step has not failed before that.
func (s captureEnd) FinishCapture(
	ctx context.Context, c *idempotency.Claim, p db.Payment, call calls.Call, out stripe.Outcome,
) (idempotency.Answer, error) {
	if out.Intent.Status != stripe.IntentRequiresCapture {
		as := db.PaymentStatusCanceled
		if out.Intent.Status == stripe.IntentSucceeded {
			as = db.PaymentStatusSucceeded
		}
		return idempotency.Answer{}, s.captureEnded(ctx, c, s.k, as, func(q *db.Queries) (db.Payment, error) {
			ended, _, err := payments.EndCapture(ctx, q, p, call, out)
			return ended, err
		})
	}
	why := out.Failure
	if why.Code == "" {
		why = stripe.Failure{Code: "provider_error",
			Message: "The payment provider could not capture the payment. No money was taken."}
	}
	out.Effect = stripe.Refused // It took nothing, and will not be sent again.
	return idempotency.Answer{}, c.Phase(ctx, captureRefused, func(q *db.Queries) error {
		if err := calls.RecordEnd(ctx, q, c.TenantID, call, out); err != nil {
			return err
		}
		return s.k.noteFailure(ctx, q, &why, out.Declined)
	})
}

// captureEnded ends the capture step as the payment has ended, which record records.
func (s *Service) captureEnded(
	ctx context.Context, c *idempotency.Claim, k *saga, as db.PaymentStatus,
	record func(*db.Queries) (db.Payment, error),
) error {
	point := releaseDue
	if as == db.PaymentStatusSucceeded {
		point = paymentMade
	}
	err := c.Phase(ctx, point, func(q *db.Queries) error {
		p, err := record(q)
		if err != nil {
			return err
		}
		if as == db.PaymentStatusSucceeded {
			if err := k.noteFailure(ctx, q, nil, false); err != nil {
				return err
			}
			return k.move(ctx, q, db.SagaStepCapture, db.SagaStepStatusDone)
		}
		return k.fail(ctx, q, db.SagaStepCapture, k.whyReleased(p), k.row.Declined)
	})
	if err != nil {
		return err
	}
	c.Log().Info("capture finished", "payment_id", *k.row.PaymentID, "status", string(as))
	return nil
}

// whyReleased is why a payment was not captured: Stripe refused it, or its authorization expired, or was canceled there.
func (k *saga) whyReleased(p db.Payment) stripe.Failure {
	switch {
	case k.row.FailureCode != nil:
		return k.failure()
	case p.FailureCode != nil && p.FailureMessage != nil:
		return stripe.Failure{Code: *p.FailureCode, Message: *p.FailureMessage}
	}
	return paymentCanceled
}

// callOffCapture cancels the intent of a refused capture, after which no money can move. If it turns out to be captured,
// the step is done.
func (s *Service) callOffCapture(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	p, err := s.paymentOf(ctx, k)
	if err != nil {
		return idempotency.Answer{}, err
	}
	if p.Status != db.PaymentStatusAuthorized {
		return idempotency.Answer{}, s.captureEnded(ctx, c, k, p.Status, func(*db.Queries) (db.Payment, error) {
			return p, nil
		})
	}
	intent, out, err := s.payments.CancelIntent(ctx, c, p)
	if err != nil {
		return idempotency.Answer{}, err
	}
	as := db.PaymentStatusCanceled
	switch intent.Status {
	case stripe.IntentCanceled:
	case stripe.IntentSucceeded:
		as = db.PaymentStatusSucceeded
	default:
		return s.wait(ctx, c, k, idempotency.NextTry(c), out.Why())
	}
	return idempotency.Answer{}, s.captureEnded(ctx, c, k, as, func(q *db.Queries) (db.Payment, error) {
		return payments.EndAuthorization(ctx, q, p, intent)
	})
}

// beginReleasePaymentStep records that the intent is about to be canceled.
func (s *Service) beginReleasePaymentStep(ctx context.Context, c *idempotency.Claim, k *saga) error {
	return c.Phase(ctx, paymentReleaseBegun, func(q *db.Queries) error {
		return k.move(ctx, q, db.SagaStepReleasePayment, db.SagaStepStatusRunning)
	})
}

// releasePaymentStep releases the money by canceling the intent, which costs nothing. If others have captured it, what
// they took is refunded; what the checkout has refunded already is not refunded again. There is nothing to release once
// the intent was canceled to end a refused capture.
func (s *Service) releasePaymentStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	p, err := s.paymentOf(ctx, k)
	if err != nil {
		return idempotency.Answer{}, err
	}
	var intent stripe.Intent
	if p.Status == db.PaymentStatusAuthorized {
		var out stripe.Outcome
		if intent, out, err = s.payments.CancelIntent(ctx, c, p); err != nil {
			return idempotency.Answer{}, err
		}
		if intent.Status != stripe.IntentCanceled && intent.Status != stripe.IntentSucceeded {
			return s.wait(ctx, c, k, idempotency.NextTry(c), out.Why())
		}
	}
	if p.Status == db.PaymentStatusSucceeded || intent.Status == stripe.IntentSucceeded {
		return idempotency.Answer{}, c.Phase(ctx, paymentRefundBegun, func(q *db.Queries) error {
			p, err := payments.EndAuthorization(ctx, q, p, intent)
			if err != nil {
				return err
			}
			return s.payments.RefundRest(ctx, q, p)
		})
	}
	return idempotency.Answer{}, c.Phase(ctx, cancelDue, func(q *db.Queries) error {
		if _, err := payments.EndAuthorization(ctx, q, p, intent); err != nil {
			return err
		}
		return k.undone(ctx, q, db.SagaStepReleasePayment, db.SagaStepAuthorize)
	})
}

// awaitRefundOfRelease waits for the refund of what others have captured.
func (s *Service) awaitRefundOfRelease(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	return s.awaitRefund(ctx, c, k,
		returning{db.SagaStepReleasePayment, db.SagaStepAuthorize, cancelDue, paymentRefundOwed})
}
