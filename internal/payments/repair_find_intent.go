package payments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

const (
	clocksApart = 2 * time.Minute // between Stripe's clock and the database's, including the time of one attempt
	repairLate  = time.Hour       // how late Stripe may still complete work that one of its own failures interrupted
	// pages of the list in one run: a thousand intents, so that a long list does not use up the rate limit
	findPagesMax = 10
	searchUntil  = calls.KeyLifetime + repairLate + clocksApart
	// how long before the first recorded attempt a lost life may have made the intent: of a longer time Stripe has no key,
	// and the attempt has made another
	searchBefore = 2 * calls.KeyLifetime
)

// Nothing is concluded while an intent may still appear, and a long list can be read
// in time before the key is parked.
const (
	_ = uint(searchUntil - calls.ResendWithin)
	_ = uint(idempotency.ParkAfter - 20*time.Hour - searchUntil)
)

// recoverIntent looks for the intent of a creation that is too old to be sent again, or for which
// Stripe has stored an error. Either the response was lost, or this database was restored from a
// backup and has forgotten the outcome. In the second case the intent may even be paid, and another
// one would charge the card twice. So it is looked for before another is made.
//
// It returns ErrMoved when it has found an intent and recorded it, as T1b would have; the intent that holds the order's
// money, if that is captured in the other way than the payment's; nil when there certainly is none that is or can be paid,
// so that another may be made; and any other error when it does not know yet.
func (s Repairs) recoverIntent(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (paidBy *stripe.Intent, err error) {
	search := intentSearch{Run: r, keyReused: out.Failure.Code == stripe.CodeKeyReused}
	if search.keyReused { // Unlike an outcome that leaves the call open, a refusal is not recorded yet.
		if err := s.calls.RecordAttempt(ctx, c, r.createCall(), out); err != nil {
			return nil, err
		}
	}
	if search.last, err = s.calls.Last(ctx, c.TenantID, r.createCall()); err != nil {
		return nil, fmt.Errorf("read the creation of an intent of order %s: %w", r.Order.ID, err)
	}
	search.known, err = s.pool.PaymentIntentsBefore(ctx, db.PaymentIntentsBeforeParams{
		TenantID: c.TenantID, OrderID: r.Order.ID, IntentNumber: r.Payment.IntentNumber,
	})
	if err != nil {
		return nil, fmt.Errorf("read the earlier intents of order %s: %w", r.Order.ID, err)
	}
	found, paidBy, err := s.findIntent(ctx, c, search)
	if err != nil || found == nil {
		return paidBy, err
	}
	return nil, s.goOnWith(ctx, c, r, found)
}

// goOnWith records an intent that was found as the payment's. It returns ErrMoved.
func (s Repairs) goOnWith(ctx context.Context, c *idempotency.Claim, r *Run, found *stripe.Intent) error {
	// An intent that was confirmed in the time that was lost is only waited for. One
	// that never was is confirmed as if nothing had happened.
	point := ActionRequired
	if found.Status == stripe.IntentRequiresConfirmation ||
		found.Status == stripe.IntentRequiresPaymentMethod && found.LastFailure == nil {
		point = IntentRecorded
	}
	if err := s.recordIntent(ctx, c, r, point, stripe.Outcome{Intent: *found}); err != nil {
		return err
	}
	c.Log().Warn("found a PaymentIntent whose creation was not recorded", "payment_id", r.Payment.ID, "payment_intent",
		found.ID, "status", string(found.Status))
	return ErrMoved
}

// LostTimeWindow is the reconciler's window of what a life that was lost did at Stripe (db/migrations/00019_lives.sql).
const LostTimeWindow = "lost"

// accountForLostLife deals with the intents that a life of this database which was lost has made for the payment's order,
// before the payment makes one: the payment is made with such an intent, or ends because the intent holds the order's
// money, or the intent is canceled. stays: the payment has ended, or waits.
func (s *Service) accountForLostLife(
	ctx context.Context, c *idempotency.Claim, r *Run,
) (answer idempotency.Answer, stays bool, err error) {
	lost, err := s.pool.LostTime(ctx, LostTimeWindow)
	switch {
	case err == nil:
		answer, err = s.Wait(ctx, c, r, fmt.Errorf("%w: what happened there since %s, before the restore, is still read",
			errCannotTell, lost.UTC().Format(time.RFC3339)))
		return answer, true, err
	case !errors.Is(err, postgres.ErrNoRows):
		return answer, true, fmt.Errorf("read how far the lost time is known: %w", err)
	}
	intents, err := s.pool.UnaccountedIntents(ctx, db.UnaccountedIntentsParams{TenantID: c.TenantID, OrderID: r.Order.ID})
	if err != nil {
		return answer, true, fmt.Errorf("read the lost intents of order %s: %w", r.Order.ID, err)
	}
	if r.beforeLife = false; len(intents) == 0 {
		return answer, false, nil
	}
	best, paidBy, err := s.Repairs().choose(ctx, c, r, intents)
	switch {
	case errors.Is(err, idempotency.ErrLeaseLost):
		return answer, true, err
	case err != nil:
		r.beforeLife = true
		answer, err = s.Wait(ctx, c, r, err)
	case paidBy != nil:
		answer, err = s.paidOtherwise(ctx, c, r, *paidBy)
	case best != nil: // Its number is not the first one, so that the intent is found by its id (PaymentOfIntentElsewhere).
		if err = s.nextIntent(ctx, c, r); err == nil {
			err = s.Repairs().goOnWith(ctx, c, r, best)
		}
	default: // Stripe may know this number's key from the lost life.
		err = s.nextIntent(ctx, c, r)
	}
	return answer, true, err
}

var errCannotTell = errors.New("not known at Stripe yet")

// intentSearch is what an intent is looked for by.
type intentSearch struct {
	*Run
	last      db.StripeCallGetRow // the creation
	known     []string            // the intents that the order had before, and has no more
	keyReused bool                // Stripe knows the creation's key from a request that is not recorded
}

// pays reports whether the order is or can be paid with an intent that this database does not know, by what Stripe shows of
// it. The way of its capture may be another than the payment's.
func (s intentSearch) pays(i stripe.Intent) bool {
	// An intent of a registered operation is not a payment's, whatever its amount.
	return i.Operation == "" && i.TenantID == s.Payment.TenantID && i.OrderID == s.Payment.OrderID &&
		isFor(s.Payment, i) && i.Status != stripe.IntentCanceled && !slices.Contains(s.known, i.ID)
}

// from is when the oldest intent that is looked for may have been created.
func (s intentSearch) from() time.Time {
	from := s.last.FirstSentAt.Add(-searchBefore)
	if s.Order.CreatedAt.After(from) {
		from = s.Order.CreatedAt
	}
	return from.Add(-clocksApart)
}

// proves is the time before which a list that shows no intent may be incomplete. After a stored error there is none, nor
// for a key that an earlier request has used: if Stripe completes the creation later, nobody has the intent's id, so it is
// never confirmed.
func (s intentSearch) proves() time.Time {
	if s.last.ErrorCached || s.keyReused {
		return time.Time{}
	}
	return s.last.FirstSentAt.Add(searchUntil)
}

// findIntent asks Stripe for the intents of a payment's order. It returns the one that got furthest of those that the
// payment can be made with, or paidBy, the one that holds the order's money in the other way of capture. All others that
// could still be paid are canceled. Both are nil if there certainly is none. An error says that it is not known yet.
//
// Search is fast, but not every account has it, and it may be an hour late or miss objects: what it
// shows is true, what it does not show proves nothing. The list is complete in every account, but
// it lists the intents of all tenants: it is read page by page, in as many runs as that takes. An
// intent that is paid or about to be ends the search; if the intents found so far are not, only the
// whole list can show that no other was paid after them.
func (s Repairs) findIntent(
	ctx context.Context, c *idempotency.Claim, search intentSearch,
) (best, paidBy *stripe.Intent, err error) {
	searched, err := s.gateway.SearchIntents(ctx, search.Payment.TenantID, search.Payment.OrderID)
	if err != nil {
		c.Log().Warn("could not search for a PaymentIntent; the list is read", "order_id", search.Order.ID, "error",
			err.Error())
	}
	found, paid, err := s.unknownIntents(ctx, search, searched)
	if err != nil {
		return nil, nil, err
	}
	if !paid {
		listed, err := s.scanIntents(ctx, c, search)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, listed...)
	}
	return s.choose(ctx, c, search.Run, found)
}

// choose reads intents of a payment's order, and returns what findIntent does.
func (s Repairs) choose(
	ctx context.Context, c *idempotency.Claim, r *Run, found []string,
) (best, paidBy *stripe.Intent, err error) {
	var others []stripe.Intent
	slices.Sort(found) // search and list may both show an intent
	for _, id := range slices.Compact(found) {
		seen, err := s.gateway.GetIntent(ctx, c.TenantID, id) // search results and pages may be old
		switch {
		case err != nil:
			return nil, nil, err
		case !isFor(r.Payment, seen): // The reconciler reports what it has taken.
		case seen.ManualCapture != r.Payment.ManualCapture, seen.Status == stripe.IntentCanceled,
			best != nil && progress(seen) <= progress(*best):
			others = append(others, seen)
		default:
			if best != nil {
				others = append(others, *best)
			}
			best = &seen
		}
	}
	if best != nil && progress(*best) >= paidOrAboutToBe {
		return best, nil, nil
	}
	for _, other := range others {
		if paidBy, err = s.endOther(ctx, c, r, other); err != nil || paidBy != nil {
			return nil, paidBy, err
		}
	}
	return best, nil, nil
}

// endOther cancels an intent of a payment's order that the payment is not made with. It returns the intent if it holds the
// order's money instead, and an error if it may still come to that.
func (s Repairs) endOther(
	ctx context.Context, c *idempotency.Claim, r *Run, other stripe.Intent,
) (*stripe.Intent, error) {
	why := errors.New("its money is about to move")
	if progress(other) < paidOrAboutToBe && other.Status != stripe.IntentCanceled {
		var out stripe.Outcome
		var err error
		other, out, err = s.CancelIntent(ctx, c, db.Payment{
			TenantID: c.TenantID, OrderID: r.Order.ID, IntentNumber: r.Payment.IntentNumber, IntentID: &other.ID,
		})
		if err != nil {
			return nil, err
		}
		why = out.Why()
	}
	if other.Status == stripe.IntentSucceeded || other.Status == stripe.IntentRequiresCapture {
		if other.RefundedMinor > 0 && other.RefundedMinor == other.ReceivedMinor { // It pays nothing.
			return nil, nil
		}
		return &other, nil
	}
	if other.Status == stripe.IntentCanceled {
		return nil, nil
	}
	return nil, fmt.Errorf("%w: another intent of the order is not canceled: %w", errCannotTell, why)
}

// unknownIntents are the ids of the intents that pay the order or could. paid: one is paid, or about to be.
func (s Repairs) unknownIntents(
	ctx context.Context, search intentSearch, intents []stripe.Intent,
) (ids []string, paid bool, err error) {
	for _, i := range intents {
		if !search.pays(i) {
			continue
		}
		elsewhere, err := s.usedElsewhere(ctx, i)
		if err != nil {
			return nil, false, err
		}
		if !elsewhere {
			ids, paid = append(ids, i.ID), paid || progress(i) >= paidOrAboutToBe
		}
	}
	return ids, paid, nil
}

// scanIntents reads Stripe's list of the intents created between the order and the last known attempt, and then of
// those created since: in the time that a restored database has lost, the creation may have been sent before, tried
// again, or another intent made in its place. It returns those that pay the order or could, once it has read everything or
// found one that is paid. The position is recorded after each page, so that the next run continues there.
func (s Repairs) scanIntents(ctx context.Context, c *idempotency.Claim, search intentSearch) ([]string, error) {
	last, proves := search.last, search.proves()
	now := last.FirstSentAt.Add(time.Duration(last.AgeSeconds * float64(time.Second))).Truncate(time.Microsecond)
	at, err := s.pool.IntentSearchGet(ctx, db.IntentSearchGetParams{TenantID: c.TenantID, StripeKey: last.StripeKey})
	begins := errors.Is(err, postgres.ErrNoRows)
	if err != nil && !begins {
		return nil, fmt.Errorf("read the position in the list for %s: %w", last.ResourceID, err)
	}
	foundNothing := at.EndedAt != nil && len(at.Found) == 0
	if tooEarly := foundNothing && at.UntilAt.Before(proves) && !now.Before(proves); begins || tooEarly {
		at, err = s.pool.IntentSearchBegin(ctx, db.IntentSearchBeginParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: last.StripeKey,
			FromAt: search.from(), UntilAt: last.LastSentAt.Add(clocksApart),
		})
		if err != nil {
			return nil, searchLost(c, err)
		}
	}
	for page := 0; ; page++ {
		if at.EndedAt != nil {
			if len(at.Found) == 0 && now.Before(proves) {
				return nil, fmt.Errorf("%w: what was sent %s ago may still appear", errCannotTell,
					now.Sub(last.FirstSentAt).Round(time.Minute))
			}
			if !at.UntilAt.Before(now.Add(clocksApart)) {
				return at.Found, nil
			}
			// An earlier run has read until then, perhaps in a life that was lost and went on after the backup.
			at.EndedAt, at.AfterID, at.SecondPass = nil, nil, true
			at.FromAt, at.UntilAt = at.UntilAt.Add(-2*clocksApart), now.Add(clocksApart)
		}
		if page == findPagesMax {
			return nil, fmt.Errorf("%w: %d pages of its list have been read, and there are more", errCannotTell,
				at.Pages)
		}
		list, err := s.gateway.ListIntents(ctx, stripe.Window{
			TenantID: c.TenantID, From: at.FromAt, Until: at.UntilAt, After: postgres.Deref(at.AfterID),
		})
		if err != nil {
			return nil, err
		}
		ids, paid, err := s.unknownIntents(ctx, search, list.Objects)
		if err != nil {
			return nil, err
		}
		if paid {
			return append(at.Found, ids...), nil
		}
		read := db.IntentSearchReadParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: last.StripeKey,
			Found: append([]string{}, ids...), SecondPass: at.SecondPass, FromAt: at.FromAt, UntilAt: at.UntilAt,
		}
		switch {
		case list.More && len(list.Objects) > 0:
			read.AfterID = &list.Objects[len(list.Objects)-1].ID
		case !at.SecondPass:
			read.SecondPass, read.FromAt, read.UntilAt = true, at.UntilAt, now.Add(clocksApart)
		default:
			read.Ended = true
		}
		if at, err = s.pool.IntentSearchRead(ctx, read); err != nil {
			return nil, searchLost(c, err)
		}
	}
}

func searchLost(c *idempotency.Claim, err error) error {
	if errors.Is(err, postgres.ErrNoRows) {
		return c.Lost()
	}
	return fmt.Errorf("record the position in the list: %w", err)
}

// paidOrAboutToBe is the progress of an intent whose money has moved, or may have.
const paidOrAboutToBe = 3

// progress ranks intents by how far they got.
func progress(i stripe.Intent) int {
	switch i.Status {
	case stripe.IntentSucceeded:
		return 4
	case stripe.IntentProcessing, stripe.IntentRequiresCapture:
		return 3
	case stripe.IntentRequiresAction, stripe.IntentRequiresReauthorization:
		return 2
	case stripe.IntentRequiresPaymentMethod, stripe.IntentRequiresConfirmation:
		if i.LastFailure != nil {
			return 1
		}
	case stripe.IntentCanceled:
	}
	return 0
}
