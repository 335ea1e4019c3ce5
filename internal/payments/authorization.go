package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// This file is how an authorization begins and ends. A payment with manual capture is answered when its money is
// reserved. From then on nothing here works on it: a request captures or cancels it (capture.go, cancel.go), and others
// may capture or cancel it at Stripe, or let it expire. In each case endAuthorization records the end, from what
// Stripe shows of the intent. A capture or cancel of ours that is in progress records it itself.

// authorizationDays is how long an authorization lasts at most networks, for a charge that does not say it
// (https://docs.stripe.com/payments/place-a-hold-on-a-payment-method).
const authorizationDays = 7

// settleAuthorized ends the request of a payment whose money is reserved. One that may not keep it releases it.
func (s *Service) settleAuthorized(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (idempotency.Answer, error) {
	intent := out.Intent
	why := stripe.Failure{Code: "capture_method_changed",
		Message: "The payment was only authorized, because the PaymentIntent was changed. Nothing was taken."}
	switch {
	case !r.Payment.ManualCapture:
		return s.abandon(ctx, c, r, r.released(why))
	case !isFor(r.Payment, intent):
		why = stripe.Failure{
			Code: "amount_changed", Message: "Another amount was authorized, and was released. Nothing was taken.",
		}
		return s.abandon(ctx, c, r, r.released(why))
	case r.Order.Status != db.OrderStatusOpen:
		return s.abandon(ctx, c, r, r.canceled(intent))
	}
	if intent.CaptureBefore.IsZero() {
		shown, err := s.gateway.GetIntent(ctx, c.TenantID, intent.ID)
		switch {
		case err != nil:
			return s.Wait(ctx, c, r, err)
		case shown.Status != stripe.IntentRequiresCapture:
			return s.SettleOrWait(ctx, c, r, shown, "the intent is "+string(shown.Status))
		}
		shown.CaptureBefore = captureBeforeOf(shown)
		out.Intent = shown
	}
	return r.ending.Finish(ctx, c, r, Settlement{
		Status: db.PaymentStatusAuthorized, ChargeID: out.Intent.ChargeID, Call: r.confirmCall(), Outcome: out,
	})
}

// released is the end of a payment that was authorized and may not be captured.
func (r *Run) released(why stripe.Failure) Settlement {
	return Settlement{
		Status: db.PaymentStatusFailed, Failure: why, ClosesIntent: true, Call: r.confirmCall(),
		Outcome: stripe.Outcome{Effect: stripe.Refused},
	}
}

// finishAuthorized is T2 of a payment with manual capture: its money is reserved or, if others were faster, captured.
func (s paymentAnswer) finishAuthorized(
	ctx context.Context, c *idempotency.Claim, r *Run, e Settlement,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: r.Order.ID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", r.Order.ID, err)
		}
		if order.Version != r.Order.Version {
			return idempotency.Answer{}, ErrMoved
		}
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if err := Advanced(ctx, q, p, order); err != nil {
			return idempotency.Answer{}, err
		}
		return s.finalAnswer(PaymentOf(p), e, c.RequestID), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish payment %s: %w", r.Payment.ID, err)
	}
	c.Log().Info("payment finished", "payment_id", r.Payment.ID, "status", string(e.Status), "stripe_request_id",
		e.Outcome.RequestID)
	return c.Answer(), nil
}

// Advanced moves an order as its payment has just moved, which was authorized, captured or released, and appends the
// events of both, in the transaction that has moved the payment and locked the order.
func Advanced(ctx context.Context, q *db.Queries, p db.Payment, order db.Order) error {
	var (
		kind  string
		moved db.Order
		err   error
	)
	switch p.Status {
	case db.PaymentStatusAuthorized:
		kind = "order.authorized"
		moved, err = q.OrderAuthorize(ctx, db.OrderAuthorizeParams{TenantID: order.TenantID, ID: order.ID})
	case db.PaymentStatusSucceeded:
		kind = "order.paid"
		moved, err = q.OrderPay(ctx, db.OrderPayParams{
			TenantID: order.TenantID, ID: order.ID, PaymentID: &p.ID, CapturedMinor: p.CapturedMinor,
		})
	default:
		kind = "order.reopened"
		moved, err = q.OrderReopen(ctx, db.OrderReopenParams{TenantID: order.TenantID, ID: order.ID})
	}
	if err != nil {
		return fmt.Errorf("move order %s with its payment: %w", order.ID, err)
	}
	return outbox.Append(ctx, q, PaymentEvent("payment."+string(p.Status), p), OrderEvent(kind, moved))
}

// LockAuthorized locks a payment and its order, in the order used everywhere.
func LockAuthorized(ctx context.Context, q *db.Queries, tenantID, orderID, id string) (db.Payment, db.Order, error) {
	order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: tenantID, ID: orderID})
	if err != nil {
		return db.Payment{}, order, fmt.Errorf("lock order %s: %w", orderID, err)
	}
	p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: id})
	if err != nil {
		return p, order, fmt.Errorf("lock payment %s: %w", id, err)
	}
	return p, order, nil
}

// errCapturedOtherwise says that Stripe shows more captured, or in another currency, than the payment authorized.
var errCapturedOtherwise = errors.New("what was captured is not of the payment's authorization")

// endAuthorization records how the authorization of a payment has ended, if Stripe shows it ended:
// captured, by this service or at Stripe, or released. The caller holds the locks of LockAuthorized.
func endAuthorization(
	ctx context.Context, q *db.Queries, p db.Payment, order db.Order, i stripe.Intent,
) (db.Payment, error) {
	settle := db.PaymentSettleParams{TenantID: p.TenantID, ID: p.ID, SeenVersion: p.Version}
	switch i.Status {
	case stripe.IntentSucceeded:
		if i.Currency != p.Currency || i.ReceivedMinor > p.AmountMinor || i.ReceivedMinor <= 0 {
			return p, fmt.Errorf("payment %s: %w", p.ID, errCapturedOtherwise)
		}
		settle.Status, settle.CapturedMinor = db.PaymentStatusSucceeded, &i.ReceivedMinor
		settle.ChargeID = postgres.Nullable(i.ChargeID)
	case stripe.IntentCanceled:
		settle.Status, settle.IntentClosed = db.PaymentStatusCanceled, true
		settle.FailureCode, settle.FailureMessage = expiry(i)
	default:
		return p, nil
	}
	p, err := q.PaymentSettle(ctx, settle)
	if err != nil {
		return p, fmt.Errorf("settle payment %s: %w", p.ID, err)
	}
	return p, Advanced(ctx, q, p, order)
}

// expiry is what a canceled payment says if its authorization expired; nil if it was canceled.
func expiry(i stripe.Intent) (code, message *string) {
	if !i.Expired() {
		return nil, nil
	}
	return new(AuthorizationExpired), new("The authorization expired before it was captured. Nothing was taken.")
}

// EndAuthorization is endAuthorization of a payment that it reads and locks. One that has ended already stays as it is.
func EndAuthorization(ctx context.Context, q *db.Queries, seen db.Payment, i stripe.Intent) (db.Payment, error) {
	p, order, err := LockAuthorized(ctx, q, seen.TenantID, seen.OrderID, seen.ID)
	if err != nil || p.Status != db.PaymentStatusAuthorized {
		return p, err
	}
	return endAuthorization(ctx, q, p, order, i)
}

// AuthorizationExpired is the failure code of a payment whose authorization expired.
const AuthorizationExpired = "authorization_expired"

// authorizationSeen applies what Stripe shows of the intent of an authorized payment, in q's transaction. A capture or
// cancel of ours that waits is expedited. errHeld: a process works on it.
func authorizationSeen(ctx context.Context, q *db.Queries, seen db.Payment, i stripe.Intent) error {
	known, err := q.OrderGet(ctx, db.OrderGetParams{TenantID: seen.TenantID, ID: seen.OrderID})
	if err != nil {
		return fmt.Errorf("read order %s: %w", seen.OrderID, err)
	}
	if holder := cmp.Or(seen.CapturingKey, known.CancelingKey); holder != nil { // Not while the order is locked.
		return expediteOrKeep(ctx, q, seen, *holder)
	}
	p, order, err := LockAuthorized(ctx, q, seen.TenantID, seen.OrderID, seen.ID)
	if err != nil || p.Status != db.PaymentStatusAuthorized {
		return err
	}
	if holder := cmp.Or(p.CapturingKey, order.CancelingKey); holder != nil { // It has just begun.
		return expediteOrKeep(ctx, q, p, *holder)
	}
	_, err = endAuthorization(ctx, q, p, order, i)
	return err
}

// errHeld says that an operation works on a payment whose authorization has ended at Stripe.
var errHeld = errors.New("an operation works on the payment")

// expediteOrKeep makes the key due that works on a payment whose authorization has ended: it reads the intent itself.
// errHeld: a process works with the key right now. It may have read the intent before, and may end with a payment that
// is still authorized, on which nothing here works any more. So the news is kept until it is done.
func expediteOrKeep(ctx context.Context, q *db.Queries, p db.Payment, key string) error {
	due, err := idempotency.TryExpedite(ctx, q, p.TenantID, key)
	if err == nil && !due {
		return fmt.Errorf("payment %s is %s here: %w", p.ID, p.Status, errHeld)
	}
	return err
}

// AuthorizationEnded records how an authorization ended at Stripe, if no request of ours has ended it or is about to.
func (s Repairs) AuthorizationEnded(ctx context.Context, i stripe.Intent) error {
	ref := compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID}
	err := s.pool.InTx(ctx, func(q *db.Queries) error {
		if served, err := q.TenantServedHere(ctx, ref.TenantID); !served {
			return err
		}
		p, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
			TenantID: ref.TenantID, OrderID: ref.OrderID, IntentID: &i.ID,
		})
		switch {
		case errors.Is(err, postgres.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("find the payment of %s: %w", i.ID, err)
		}
		return authorizationSeen(ctx, q, p, i)
	})
	if errors.Is(err, errHeld) { // The next round sees what it left.
		return nil
	}
	return err
}

// captureBeforeOf is when an authorization that was found at Stripe expires.
func captureBeforeOf(i stripe.Intent) time.Time {
	if i.CaptureBefore.IsZero() {
		return i.CreatedAt.AddDate(0, 0, authorizationDays)
	}
	return i.CaptureBefore
}
