package checkout

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// expireMax is how many checkouts one run of ExpireReservations calls off.
const expireMax = 50

// ExpireReservations releases the stock of checkouts that no process works on any more and
// whose payment has not begun: after a long outage, or when a checkout kills every
// process that resumes it. It returns how many there were. Any number may run.
//
// A reservation whose payment has begun never expires: the customer may be charged at
// this very moment, and what they pay for must be there.
func (s *Service) ExpireReservations(ctx context.Context) (n int, err error) {
	for n < expireMax {
		found := false
		err := s.pool.InTx(ctx, func(q *db.Queries) error {
			due, err := q.ReservationOverdue(ctx)
			if found = err == nil; errors.Is(err, postgres.ErrNoRows) {
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

// expireCheckout fails the checkout before its payment has begun and releases its
// stock, which is the first compensation; its own operation does the rest. False: the
// payment has begun.
//
// The steps are read again, because the statement that found the checkout saw them as
// of its beginning, but its key as of when it was locked. In between another process
// may have taken the key, begun the payment, and given the key back.
func (s *Service) expireCheckout(
	ctx context.Context, q *db.Queries, due db.ReservationOverdueRow,
) (expired bool, err error) {
	k := &saga{
		row: db.Checkout{TenantID: due.TenantID, ID: due.ID}, request: idempotency.Decode[Request](due.Request),
	}
	if k.row, k.steps, err = read(ctx, q, due.TenantID, due.ID); err != nil {
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
	return true, idempotency.Expedite(ctx, q, due.TenantID, due.IdempotencyKey)
}

// releaseStock makes the checkout's reservations available again and records the
// compensation, in q's transaction.
func (k *saga) releaseStock(ctx context.Context, q *db.Queries) error {
	err := basketOf(k.request.Items).end(ctx, q, k.row.TenantID, k.row.ID, db.ReservationStatusReleased)
	if err != nil && !errors.Is(err, errNotHeld) { // Reservations that were removed by hand need no release.
		return err
	}
	return k.undone(ctx, q, db.SagaStepReleaseStock, db.SagaStepReserveStock)
}
