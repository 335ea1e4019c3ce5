package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
)

// adoptPayment creates the rows for money that is provably ours: the intent names the
// tenant and an order of that tenant that has exactly this amount and is not paid. It
// returns the payment's id; empty: it is not to be adopted any more.
func (s *Service) adoptPayment(ctx context.Context, i Intent) (string, error) {
	id, err := s.adoptedID(ctx, i)
	if err != nil {
		return "", err
	}
	var adopted string
	err = s.pool.InTx(ctx, func(q *db.Queries) (err error) {
		adopted, err = s.adoptAs(ctx, q, id, i)
		return err
	})
	return adopted, err
}

// adoptedID is the id for the payment of an intent: the one it once had, if a refund at
// Stripe still names it, otherwise a new one.
func (s *Service) adoptedID(ctx context.Context, i Intent) (string, error) {
	if i.RefundedMinor > 0 {
		refunds, err := s.gateway.RefundsOf(ctx, i.ID)
		if err != nil {
			return "", err
		}
		for _, r := range refunds {
			if r.TenantID == i.TenantID && r.OrderID == i.OrderID && isID(paymentID, r.PaymentID) {
				return r.PaymentID, nil
			}
		}
	}
	return newID(paymentID), nil
}

// adoptAs judges the intent with its order locked, and creates the rows, in q's
// transaction.
func (s *Service) adoptAs(ctx context.Context, q *db.Queries, id string, i Intent) (string, error) {
	v, err := lockedView(ctx, q, ref{i.TenantID, i.OrderID})
	if err != nil || judgeIntent(i, v).ruling != orphaned {
		return "", err
	}
	if given, err := beingGivenBack(ctx, q, i); err != nil || given {
		return "", err
	}
	p := db.Payment{
		TenantID: i.TenantID, ID: id, Version: 1, Status: db.PaymentStatusProcessing, OrderID: i.OrderID, IdempotencyKey: adoptedKeyPrefix + i.ID,
		AmountMinor: i.ReceivedMinor, Currency: i.Currency, PaymentMethod: i.PaymentMethod, IntentNumber: v.numberOf(i.ID), IntentID: &i.ID,
		CreatedAt: i.CreatedAt,
	}
	return id, s.recordAdopted(ctx, q, p, i, *v.order)
}

// numberOf is the intent's number if a payment has it, otherwise the next one.
func (v *orderView) numberOf(intentID string) int32 {
	next := int32(1)
	for _, p := range v.payments {
		if p.uses(intentID) {
			return p.IntentNumber
		}
		next = max(next, p.IntentNumber+1)
	}
	return next
}

// recordAdopted also appends the events of the payment from its beginning, so that
// consumers see nothing unusual.
func (s *Service) recordAdopted(ctx context.Context, q *db.Queries, p db.Payment, i Intent, order db.Order) error {
	if err := insertPayment(ctx, q, p); err != nil {
		return err
	}
	events := []outbox.Event{paymentEvent("payment.created", p)}
	p, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
		TenantID: p.TenantID, ID: p.ID, SeenVersion: p.Version, Status: db.PaymentStatusSucceeded, ChargeID: optional(i.ChargeID),
	})
	if err != nil {
		return fmt.Errorf("settle payment %s: %w", p.ID, err)
	}
	events = append(events, paymentEvent("payment.succeeded", p))
	if order.Status == db.OrderStatusOpen {
		if order, err = q.OrderPay(ctx, db.OrderPayParams{TenantID: order.TenantID, ID: order.ID, PaymentID: &p.ID}); err != nil {
			return fmt.Errorf("pay order %s: %w", order.ID, err)
		}
		return outbox.Append(ctx, q, append(events, orderEvent("order.paid", order))...)
	}
	if err := outbox.Append(ctx, q, events...); err != nil {
		return err
	}
	return s.refundByItself(ctx, q, p) // The order was canceled meanwhile.
}

// adoptRefund creates the rows for a refund that we made: its metadata names the
// tenant, the order, the payment and the refund.
func (s *Service) adoptRefund(ctx context.Context, r StripeRefund) (adopted bool, err error) {
	err = s.pool.InTx(ctx, func(q *db.Queries) error {
		adopted = false
		v, err := lockedView(ctx, q, ref{r.TenantID, r.OrderID})
		if err != nil || judgeRefund(r, v).ruling != orphaned {
			return err
		}
		p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: r.TenantID, ID: r.PaymentID})
		if err != nil {
			return fmt.Errorf("lock payment %s: %w", r.PaymentID, err)
		}
		if _, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: r.TenantID, ID: r.RefundID}); !errors.Is(err, db.ErrNoRows) {
			return err // Its key was sent again while this waited for the payment. The next round sees.
		}
		key := adoptedKeyPrefix + r.ID
		row := newRefund(p, key, r.TenantID+":"+key+":refund", r.AmountMinor, nil)
		row.ID, row.CreatedAt = r.RefundID, r.CreatedAt
		if err := s.recordRefund(ctx, q, row); err != nil {
			return err
		}
		adopted = true
		if r.Status == db.RefundStatusPending { // The completer polls it until it is final.
			if err := q.RefundSetStripeID(ctx, db.RefundSetStripeIDParams{TenantID: r.TenantID, ID: row.ID, StripeRefundID: &r.ID}); err != nil {
				return fmt.Errorf("record refund %s: %w", row.ID, err)
			}
			return idempotency.Enqueue(ctx, q, idempotency.Request{TenantID: r.TenantID, Key: key, Operation: RefundOrder}, row.ID, refundRecorded)
		}
		_, err = s.applyRefund(ctx, q, r.TenantID, row.ID, r)
		return err
	})
	return adopted, err
}
