package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

// expireMax is how many checkouts one turn of ExpireReservations calls off.
const expireMax = 50

// ExpireReservations returns stock that is held by checkouts which nobody works
// on any more and whose payment has not begun: after a long outage, or when a
// checkout kills whoever takes it up. It returns how many there were. Any number
// may run.
//
// A reservation whose payment has begun never runs out. The customer may be
// charged this very moment, and what he is charged for must be there.
func (s *Service) ExpireReservations(ctx context.Context) (n int, err error) {
	for n < expireMax {
		found := false
		err := s.pool.InTx(ctx, func(q *db.Queries) error {
			due, err := q.ReservationOverdue(ctx)
			if found = err == nil; errors.Is(err, db.ErrNoRows) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("find reservations that ran out: %w", err)
			}
			found, err = s.expireCheckout(ctx, q, due)
			return err
		})
		if err != nil || !found {
			return n, err
		}
		n++
	}
	return n, nil
}

// expireCheckout fails the checkout before its payment began and gives the stock
// back, which is the first of its undoings; the rest is its own operation's. False:
// it has begun.
//
// The statement that found it read its steps as they were when that statement
// began, and its key as it was when that was locked. In between somebody may have
// taken the key, begun the payment, and given the key back.
func (s *Service) expireCheckout(ctx context.Context, q *db.Queries, due db.ReservationOverdueRow) (expired bool, err error) {
	k := &checkingOut{row: db.Checkout{TenantID: due.TenantID, ID: due.ID}, request: decode[CheckoutRequest](due.Request)}
	if k.row, k.steps, err = readCheckout(ctx, q, due.TenantID, due.ID); err != nil {
		return false, err
	}
	if k.step(db.SagaStepPay).Status != db.SagaStepStatusPending {
		return false, nil
	}
	if err := k.fail(ctx, q, db.SagaStepPay, outOfStock(ranOutMessage), false); err != nil {
		return false, err
	}
	if err := k.releaseStock(ctx, q); err != nil {
		return false, err
	}
	return true, idempotency.Hurry(ctx, q, due.TenantID, due.IdempotencyKey)
}

// releaseStock makes what the checkout holds available again. It joins q's
// transaction, and the step is done in it.
func (k *checkingOut) releaseStock(ctx context.Context, q *db.Queries) error {
	err := basketOf(k.request.Items).end(ctx, q, k.row.TenantID, k.row.ID, db.ReservationStatusReleased)
	if err != nil && !errors.Is(err, errNotHeld) { // What somebody took away by hand needs no release.
		return err
	}
	return k.undone(ctx, q, db.SagaStepReleaseStock, db.SagaStepReserveStock)
}
