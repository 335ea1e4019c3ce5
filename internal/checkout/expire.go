package checkout

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

const (
	expireMax = 50 // checkouts that one run of ExpireReservations tries to call off
	// A checkout that could not be called off is left out for this long, in this process. Otherwise it would be the
	// first of every run, and enough of them would leave no room for the others.
	expireAgain = time.Minute
	// From then on expired reservations that still hold stock are counted as stuck: every process had its tries.
	expireGrace = 5 * time.Minute
)

// ExpireReservations releases the stock of checkouts that no process works on any more and
// whose payment, or its capture, has not begun: after a long outage, or when a checkout kills every
// process that resumes it. It returns how many there were. Any number may run.
//
// A checkout that cannot be called off stops no other. It is logged, shown as stuck, and tried again later.
//
// A reservation whose payment (or its capture) has begun never expires: the customer may be charged at
// this very moment, and what they pay for must be there.
func (s *Service) ExpireReservations(ctx context.Context) (n int, err error) {
	for range expireMax {
		due, expired, err := s.expireNext(ctx)
		switch {
		case due.ID == "":
			return n, err
		case err != nil:
			s.notExpired.Add(due.ID)
			if !OfTheCheckout(ctx, err) {
				return n, err
			}
			s.o.Log.Error("the stock of an abandoned checkout could not be released; it will be tried again",
				"tenant_id", due.TenantID, "resource_id", due.ID, "error", postgres.ErrorText(err))
		case expired:
			n++
		}
	}
	return n, nil
}

// OfTheCheckout reports whether an error is most likely about this checkout, and not about the database.
func OfTheCheckout(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !postgres.Unavailable(err) && !errors.Is(err, postgres.ErrInDoubt)
}

// expireNext calls off one checkout that is due; without an id: there is none.
func (s *Service) expireNext(ctx context.Context) (due db.ReservationOverdueRow, expired bool, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("bug: %v\n%s", bug, debug.Stack())
		}
	}()
	err = s.pool.InTx(ctx, func(q *db.Queries) (err error) {
		due, expired = db.ReservationOverdueRow{}, false
		row, err := q.ReservationOverdue(ctx, s.notExpired.Recent())
		if errors.Is(err, postgres.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find reservations that ran out: %w", err)
		}
		due = row
		expired, err = s.expireCheckout(ctx, q, due)
		return err
	})
	return due, expired, err
}

// FailedLately are the checkouts that could not be called off. Each is left out for a minute.
type FailedLately struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// Add leaves a checkout out from now on.
func (f *FailedLately) Add(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = map[string]time.Time{}
	}
	f.until[id] = time.Now().Add(expireAgain)
}

// Recent are the ids that are left out now: an empty list for none, and not nil, which PostgreSQL would take for NULL.
func (f *FailedLately) Recent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := []string{}
	for id, until := range f.until {
		if time.Now().After(until) {
			delete(f.until, id)
		} else {
			ids = append(ids, id)
		}
	}
	return ids
}

// expireCheckout fails the checkout before its payment, or its capture, has begun and
// releases its stock, which is the first compensation; its own operation does the rest.
// False: that has begun.
//
// The steps are read again, because the statement that found the checkout saw them as
// of its beginning, but its key as of when it was locked. In between another process
// may have taken the key, begun the payment, and given the key back.
func (s *Service) expireCheckout(
	ctx context.Context, q *db.Queries, due db.ReservationOverdueRow,
) (expired bool, err error) {
	request, err := s.keys.OpenRequest(due.TenantID, due.IdempotencyKey, due.Request)
	if err != nil {
		return false, err
	}
	k := &saga{
		row: db.Checkout{TenantID: due.TenantID, ID: due.ID}, request: idempotency.Decode[Request](request),
	}
	if k.row, k.steps, err = read(ctx, q, due.TenantID, due.ID); err != nil {
		return false, err
	}
	if k.step(k.takes()).Status != db.SagaStepStatusPending {
		return false, nil
	}
	if err := k.fail(ctx, q, k.takes(), k.outOfStock(ranOutMessage), false); err != nil {
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
