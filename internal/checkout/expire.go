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
	"example.com/payonce/internal/stripe"
)

const (
	expireMax = 50 // checkouts that one run of ExpireReservations tries to call off
	// A checkout that could not be called off is left out for this long, in this process. Otherwise it would be the
	// first of every run, and enough of them would leave no room for the others.
	expireAgain = time.Minute
	// From then on expired reservations that still hold stock are counted as stuck: every process had its tries.
	expireGrace = 5 * time.Minute

	clocksApart  = 2 * time.Minute // Stripe's clock and the database's
	listPagesMax = 10              // of Stripe's list, where the account has no search
)

// ExpireReservations releases the stock of checkouts that no process works on any more and
// whose payment, or its capture, has not begun: after a long outage, or when a checkout kills every
// process that resumes it. It returns how many there were. Any number may run.
//
// A checkout that cannot be called off stops no other. It is logged, shown as stuck, and tried again later.
//
// A reservation whose payment (or its capture) has begun never expires: the customer may be charged at
// this very moment, and what they pay for must be there. A database that was restored does not know that a payment has
// begun, so Stripe is asked first, and an intent that is there keeps the reservation.
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

// OfTheCheckout reports whether an error is most likely about this checkout, and not about the database or Stripe.
func OfTheCheckout(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !postgres.Unavailable(err) && !errors.Is(err, postgres.ErrInDoubt) &&
		!errors.Is(err, stripe.ErrAway)
}

// expireNext calls off one checkout that is due; without an id: there is none.
func (s *Service) expireNext(ctx context.Context) (due db.ReservationOverdueRow, expired bool, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("bug: %v\n%s", bug, debug.Stack())
		}
	}()
	if due, err = s.overdue(ctx, s.pool.Queries); err != nil || due.ID == "" {
		return due, false, err
	}
	intent, err := s.intentAtStripe(ctx, due.TenantID, due.ID)
	if err != nil {
		return due, false, err
	}
	if intent != "" {
		_, err := s.holdOn(ctx, due.TenantID, due.ID, intent)
		return due, false, err
	}
	asked := due
	err = s.pool.InTx(ctx, func(q *db.Queries) (err error) {
		expired = false
		if due, err = s.overdue(ctx, q); err != nil || due.ID != asked.ID { // Another process was faster.
			return err
		}
		expired, err = s.expireCheckout(ctx, q, due)
		return err
	})
	return asked, expired, err
}

// overdue is a checkout that is due, and locks its key until the transaction ends; without an id: there is none.
func (s *Service) overdue(ctx context.Context, q *db.Queries) (due db.ReservationOverdueRow, err error) {
	due, err = q.ReservationOverdue(ctx, s.notExpired.Recent())
	if errors.Is(err, postgres.ErrNoRows) {
		return db.ReservationOverdueRow{}, nil
	}
	if err != nil {
		return due, fmt.Errorf("find reservations that ran out: %w", err)
	}
	return due, nil
}

// intentAtStripe is the intent with which a life of the database that was lost has paid the checkout's order, or has begun
// to; empty: Stripe shows none.
func (s *Service) intentAtStripe(ctx context.Context, tenantID, id string) (string, error) {
	row, _, err := read(ctx, s.pool.Queries, tenantID, id)
	if err != nil || row.OrderID == nil {
		return "", err
	}
	if row.PaymentID != nil { // Its money is reserved, and the capture was not sent by what this database knows.
		p, err := s.paymentOf(ctx, &saga{row: row})
		if err != nil || p.IntentID == nil {
			return "", err
		}
		i, err := s.gateway.GetIntent(ctx, tenantID, *p.IntentID)
		if errors.Is(err, stripe.ErrNoSuchObject) || err == nil && i.Status != stripe.IntentSucceeded && i.Status != stripe.IntentProcessing {
			return "", nil
		}
		return i.ID, err
	}
	intents, err := s.gateway.SearchIntents(ctx, tenantID, *row.OrderID) // The checkout is older than a search is late.
	if errors.Is(err, stripe.ErrNotShown) {                              // an account without a search
		intents, err = s.intentsSince(ctx, tenantID, row.CreatedAt)
	}
	if err != nil {
		return "", fmt.Errorf("look for a payment of order %s: %w", *row.OrderID, err)
	}
	for _, i := range intents {
		if i.TenantID == tenantID && i.OrderID == *row.OrderID && i.Operation == "" && i.Status != stripe.IntentCanceled {
			return i.ID, nil
		}
	}
	return "", nil
}

// holdOn keeps the reservations of a checkout that Stripe has the payment of, and returns how many SKUs it still holds.
func (s *Service) holdOn(ctx context.Context, tenantID, id, intent string) (int64, error) {
	held, err := s.pool.ReservationsHold(ctx, db.ReservationsHoldParams{
		TenantID: tenantID, CheckoutID: id, Hold: reservationHold,
	})
	if err != nil {
		return 0, fmt.Errorf("keep the reservations of checkout %s: %w", id, err)
	}
	s.o.Log.Warn("the reservations of a checkout ran out, and Stripe has its payment; was the database restored? It is not "+
		"called off", "tenant_id", tenantID, "resource_id", id, "payment_intent", intent)
	return held, nil
}

// ranOut calls off a checkout whose reservations ran out before it took the money, as this database has it. If Stripe has
// the payment, the step is tried again.
func (s *Service) ranOut(ctx context.Context, c *idempotency.Claim, k *saga, step db.SagaStep) (idempotency.Answer, error) {
	intent, err := s.intentAtStripe(ctx, c.TenantID, k.row.ID)
	switch {
	case err != nil:
		return s.wait(ctx, c, k, idempotency.NextTry(c), err)
	case intent != "":
		held, err := s.holdOn(ctx, c.TenantID, k.row.ID, intent)
		if err != nil || int(held) >= len(basketOf(k.request.Items).skus) {
			return idempotency.Answer{}, err
		} // Otherwise some were removed by hand.
	}
	return idempotency.Answer{}, s.failStep(ctx, c, k, step, releaseDue, k.outOfStock(ranOutMessage))
}

// intentsSince lists all intents since a time.
func (s *Service) intentsSince(ctx context.Context, tenantID string, since time.Time) (all []stripe.Intent, err error) {
	w := stripe.Window{TenantID: tenantID, From: since.Add(-clocksApart)}
	for range listPagesMax {
		page, err := s.gateway.ListIntents(ctx, w)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Objects...); !page.More || len(page.Objects) == 0 {
			return all, nil
		}
		w.After = all[len(all)-1].ID
	}
	return nil, fmt.Errorf("the list has more than %d pages", listPagesMax)
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
	request, err := s.keys.OpenRequest(ctx, q, due.TenantID, due.IdempotencyKey, due.CreatedAt, due.Request)
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
