package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// beginRefund claims the key, takes the amount from what is left of the payment
// and records the refund, its event and the call it will make. ErrRefundsWaiting: nothing was recorded.
func (s *Service) beginRefund(
	ctx context.Context, r idempotency.Request,
) (claim *idempotency.Claim, _ idempotency.Answer, err error) {
	req := idempotency.Decode[RefundRequest](r.Body)
	if !ids.Is(ids.Payment, req.PaymentID) {
		return nil, idempotency.Answer{}, ErrNotFound
	}
	payment := paymentKey{r.TenantID, req.PaymentID}
	line := s.turns.enter(payment)
	if line == nil {
		return nil, idempotency.Answer{}, ErrRefundsWaiting
	}
	defer func() {
		if claim == nil { // else runRefund leaves it
			s.turns.leave(payment, line)
		}
	}()
	known, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: r.TenantID, ID: req.PaymentID})
	if err != nil {
		// The claim would find out too, but only after a write.
		return nil, idempotency.Answer{}, notFound(err, "read payment %s", req.PaymentID)
	}
	if err := checkRefundStep(known, req.Amount); err != nil {
		return nil, idempotency.Answer{}, err
	}
	w := &refunding{}
	id := ids.Keyed(ids.Refund, r.TenantID, r.Key)
	claim, err = s.keys.Begin(ctx, r, id, refundRecorded, func(q *db.Queries) error {
		p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: r.TenantID, ID: req.PaymentID})
		if err != nil {
			return notFound(err, "lock payment %s", req.PaymentID)
		}
		*w = refunding{intentID: postgres.Deref(p.IntentID)}
		w.refund, err = q.RefundGet(ctx, db.RefundGetParams{TenantID: r.TenantID, ID: id})
		if err == nil { // The reconciler has found it at Stripe: it was made before this database was restored.
			return sameRefund(w.refund, req)
		}
		if !errors.Is(err, postgres.ErrNoRows) {
			return fmt.Errorf("look for the refund of a key: %w", err)
		}
		amount, err := refundable(ctx, q, p, req.Amount)
		if err == nil && s.o.Disputes != nil {
			err = s.o.Disputes.AllowsRefund(ctx, q, p)
		}
		if err != nil {
			return err
		}
		w.refund = newRefund(p, db.RefundOriginApi, r.Key, r.TenantID+":"+r.Key+":refund", amount)
		w.refund.Reason = req.Reason
		if err := s.recordRefund(ctx, q, w.refund); err != nil {
			return err
		}
		// A database that was restored may have sent this refund and forgotten it. As long as the payment is younger
		// than Stripe's memory of keys, Stripe repeats its answer; for an older one its list is read first. Clocks
		// may be hours apart, so the limit is half of that memory.
		w.unsent = time.Since(p.CreatedAt) < calls.ResendWithin
		queued, err := s.otherRefundInFlight(ctx, q, w.refund)
		if err != nil || queued || !w.unsent {
			return err
		}
		w.recorded = true
		return w.call().Insert(ctx, q, r.TenantID)
	})
	if errors.Is(err, ErrPaymentNotRefundable) || errors.Is(err, ErrRefundExceedsPayment) ||
		errors.Is(err, ErrPaymentDisputed) {
		return s.refuse(ctx, r, req.PaymentID, err)
	}
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	w.line = line
	claim.Carry = w
	return claim, idempotency.Answer{}, nil
}

// checkRefundStep is an *InvalidError if Stripe cannot refund the amount in the payment's currency. All that Stripe has
// of it can always be refunded.
func checkRefundStep(p db.Payment, asked *int64) error {
	if asked == nil || *asked == compare.PaidMinor(p)-p.AmountRefundingMinor {
		return nil
	}
	if err := money.CheckStep(*asked, p.Currency); err != nil {
		return &InvalidError{Pointer: "/amount", Message: err.Error()}
	}
	return nil
}

// sameRefund is nil if the refund that the key has made is the one it asks for now.
func sameRefund(known db.Refund, asked RefundRequest) error {
	if known.PaymentID != asked.PaymentID || asked.Amount != nil && *asked.Amount != known.AmountMinor {
		return ErrKeyOfAnotherRefund
	}
	return nil
}

// refundable is how much is refunded: what was asked for, or all that is left.
// The caller holds the payment's row lock.
func refundable(ctx context.Context, q *db.Queries, p db.Payment, asked *int64) (int64, error) {
	left, err := leftOf(ctx, q, p)
	switch {
	case err != nil:
		return 0, err
	case p.Status != db.PaymentStatusSucceeded, left <= 0 && asked == nil:
		return 0, ErrPaymentNotRefundable
	case asked == nil:
		return left, nil
	case *asked > left:
		return 0, ErrRefundExceedsPayment
	}
	return *asked, nil
}

// leftOf is how much of a payment was neither refunded nor settled by an operator in another way, nor is about to be.
// Others may refund what was settled, so it can be less than zero.
func leftOf(ctx context.Context, q *db.Queries, p db.Payment) (int64, error) {
	owed, err := q.RefundOwedGet(ctx, db.RefundOwedGetParams{TenantID: p.TenantID, PaymentID: p.ID})
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return 0, fmt.Errorf("read what is owed of payment %s: %w", p.ID, err)
	}
	return compare.PaidMinor(p) - p.AmountRefundingMinor - owed.SettledMinor, nil
}

func newRefund(p db.Payment, origin db.RefundOrigin, key, stripeKey string, amount int64) db.Refund {
	return db.Refund{
		TenantID: p.TenantID, ID: ids.Keyed(ids.Refund, p.TenantID, key), Version: 1, Status: db.RefundStatusPending,
		Origin: origin, PaymentID: p.ID, OrderID: p.OrderID, IdempotencyKey: key, StripeKey: stripeKey,
		AmountMinor: amount, Currency: p.Currency, CreatedAt: ids.Now(),
	}
}

// recordRefund writes a refund and takes its amount from its payment. The sum
// can never exceed the payment: a constraint of the row sees to that.
func (s *Service) recordRefund(ctx context.Context, q *db.Queries, row db.Refund) error {
	n, err := q.PaymentReserveRefund(ctx, db.PaymentReserveRefundParams{
		TenantID: row.TenantID, ID: row.PaymentID, AmountMinor: row.AmountMinor,
		MustBeRefunded: row.Origin == db.RefundOriginAutomatic,
	})
	if err != nil {
		return fmt.Errorf("reserve the refund of payment %s: %w", row.PaymentID, err)
	}
	if n == 0 {
		return ErrRefundExceedsPayment
	}
	err = q.RefundInsert(ctx, db.RefundInsertParams{
		TenantID: row.TenantID, ID: row.ID, Origin: row.Origin, PaymentID: row.PaymentID, OrderID: row.OrderID,
		IdempotencyKey: row.IdempotencyKey, StripeKey: row.StripeKey, StripeRefundID: row.StripeRefundID,
		AmountMinor: row.AmountMinor, Currency: row.Currency, Reason: row.Reason, CreatedAt: row.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert refund %s: %w", row.ID, err)
	}
	return outbox.Append(ctx, q, refundEvent("refund.created", row))
}
