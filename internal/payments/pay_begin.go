package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// beginPayment is T1. It claims the key and records the payment, its event and
// the first call it will make, in one statement.
func (s *Service) beginPayment(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	req := decode[PayRequest](r.Body)
	if !isID(orderID, req.OrderID) {
		return nil, idempotency.Answer{}, ErrNotFound
	}
	target, err := s.pool.OrderToPay(ctx, db.OrderToPayParams{TenantID: r.TenantID, ID: req.OrderID})
	if err != nil {
		return nil, idempotency.Answer{}, notFound(err, "read order %s", req.OrderID)
	}
	if refusal := closedOrder(target.Order.Status); refusal != nil {
		return s.refuse(ctx, r, req.OrderID, refusal)
	}
	if target.LiveStatus != "" || target.Order.CancelingKey != nil { // T1 would find out too, but only by locking the order, which is a write.
		return nil, idempotency.Answer{}, s.whyNotClaimed(ctx, r, req.OrderID)
	}
	if err := s.gateway.Ready(ctx); err != nil {
		return nil, idempotency.Answer{}, err
	}
	w := newPaying(r.TenantID, r.Key, req.PaymentMethod, target)
	point, call := w.firstCall()
	claim, err := s.keys.BeginStatement(ctx, r, w.payment.ID, point, func(q *db.Queries, n idempotency.New) (bool, error) {
		row, err := q.PaymentBegin(ctx, db.PaymentBeginParams{
			TenantID: r.TenantID, OrderID: w.order.ID, Key: r.Key, Operation: r.Operation, Fingerprint: r.Fingerprint,
			FingerprintVersion: idempotency.FingerprintVersion, Request: r.Body, RequestID: r.RequestID, RecoveryPoint: n.Point,
			ClaimToken: n.ClaimToken, Lease: n.Lease, PaymentID: w.payment.ID, AmountMinor: w.payment.AmountMinor, Currency: w.payment.Currency,
			PaymentMethod: w.payment.PaymentMethod, IntentNumber: w.payment.IntentNumber, IntentID: w.payment.IntentID, CreatedAt: w.payment.CreatedAt,
			EventData: mustMarshal(paymentOf(w.payment)), Traceparent: tracing.Traceparent(ctx),
			StripeKey: call.key, StripeOperation: string(call.op), StripeResourceID: call.resourceID, ParamsSha256: call.params,
		})
		return row.Claimed, err
	})
	if errors.Is(err, idempotency.ErrTaken) || postgres.Violates(err, "one_live_payment_per_order") {
		return nil, idempotency.Answer{}, s.whyNotClaimed(ctx, r, req.OrderID)
	}
	if err != nil {
		return nil, idempotency.Answer{}, fmt.Errorf("begin a payment of order %s: %w", req.OrderID, err)
	}
	claim.Carry = w
	return claim, idempotency.Answer{}, nil
}

// whyNotClaimed tells a key that is taken from an order that is being paid under
// another key. ErrTaken sends the request back to the look-up, as does an order that
// was closed meanwhile.
func (s *Service) whyNotClaimed(ctx context.Context, r idempotency.Request, orderID string) error {
	if found, err := s.keys.Lookup(ctx, r); err != nil || found.State != idempotency.Fresh {
		return errors.Join(idempotency.ErrTaken, err)
	}
	order, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: r.TenantID, ID: orderID})
	if err != nil {
		return notFound(err, "read order %s", orderID)
	}
	if closedOrder(order.Status) != nil {
		return idempotency.ErrTaken
	}
	return ErrPaymentInProgress
}

// closedOrder is why an order in this status can never be paid; nil if it can.
func closedOrder(status db.OrderStatus) error {
	switch status {
	case db.OrderStatusOpen:
		return nil
	case db.OrderStatusCanceled:
		return ErrOrderNotPayable
	case db.OrderStatusPaid, db.OrderStatusPartiallyRefunded, db.OrderStatusRefunded:
		return ErrOrderAlreadyPaid
	}
	panic("bug: an order of status " + string(status))
}

func newPaying(tenantID, key, method string, target db.OrderToPayRow) *paying {
	p := db.Payment{
		TenantID: tenantID, ID: newID(paymentID), Version: 1, Status: db.PaymentStatusProcessing, OrderID: target.Order.ID, IdempotencyKey: key,
		AmountMinor: target.Order.AmountMinor, Currency: target.Order.Currency, PaymentMethod: method,
		IntentNumber: target.IntentNumber, CreatedAt: now(),
	}
	if target.IntentClosed || target.IntentID == "" {
		p.IntentNumber++
	} else {
		p.IntentID = &target.IntentID
	}
	return &paying{order: target.Order, payment: p, announced: true}
}

// firstCall is the call that a new payment makes: the creation of the order's
// intent, or, where an earlier card was declined, another confirm of that intent.
func (w *paying) firstCall() (point string, c call) {
	if w.payment.IntentID == nil {
		return paymentRecorded, w.createCall()
	}
	return intentRecorded, w.confirmCall()
}

// insertPayment inserts a payment outside of T1, which has its own statement.
func insertPayment(ctx context.Context, q *db.Queries, p db.Payment) error {
	err := q.PaymentInsert(ctx, db.PaymentInsertParams{
		TenantID: p.TenantID, ID: p.ID, OrderID: p.OrderID, IdempotencyKey: p.IdempotencyKey, AmountMinor: p.AmountMinor, Currency: p.Currency,
		PaymentMethod: p.PaymentMethod, IntentNumber: p.IntentNumber, IntentID: p.IntentID, CreatedAt: p.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert payment %s: %w", p.ID, err)
	}
	return nil
}
