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
// It returns ErrMoved when it has found an intent and recorded it, as T1b would have; nil when there
// certainly is none that is or can be paid, so that another may be made; and any other error when it
// does not know yet.
func (s Repairs) recoverIntent(ctx context.Context, c *idempotency.Claim, r *Run) error {
	search := intentSearch{Run: r}
	var err error
	if search.last, err = s.calls.Last(ctx, c.TenantID, r.createCall()); err != nil {
		return fmt.Errorf("read the creation of an intent of order %s: %w", r.Order.ID, err)
	}
	search.known, err = s.pool.PaymentIntentsBefore(ctx, db.PaymentIntentsBeforeParams{
		TenantID: c.TenantID, OrderID: r.Order.ID, IntentNumber: r.Payment.IntentNumber,
	})
	if err != nil {
		return fmt.Errorf("read the earlier intents of order %s: %w", r.Order.ID, err)
	}
	found, err := s.findIntent(ctx, c, search)
	if err != nil {
		return err
	}
	if found == nil {
		return nil
	}
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

var errCannotTell = errors.New("not known at Stripe yet")

// intentSearch is what an intent is looked for by.
type intentSearch struct {
	*Run
	last  db.StripeCallGetRow // the creation
	known []string            // the intents that the order had before, and has no more
}

// mayUse reports whether the payment could go on with an intent, by what Stripe shows of it.
func (s intentSearch) mayUse(i stripe.Intent) bool {
	// An intent of a registered operation is not a payment's, whatever its amount.
	return i.Operation == "" && i.TenantID == s.Payment.TenantID && i.OrderID == s.Payment.OrderID &&
		isFor(s.Payment, i) && i.ManualCapture == s.Payment.ManualCapture && i.Status != stripe.IntentCanceled && !slices.Contains(s.known, i.ID)
}

// from is when the oldest intent that is looked for may have been created.
func (s intentSearch) from() time.Time {
	from := s.last.FirstSentAt.Add(-searchBefore)
	if s.Order.CreatedAt.After(from) {
		from = s.Order.CreatedAt
	}
	return from.Add(-clocksApart)
}

// proves is the time before which a list that shows no intent may be incomplete. After a stored error there is none:
// if Stripe completes the creation later, nobody has the intent's id, so it is never confirmed.
func (s intentSearch) proves() time.Time {
	if s.last.ErrorCached {
		return time.Time{}
	}
	return s.last.FirstSentAt.Add(searchUntil)
}

// findIntent asks Stripe for the intents of a payment's order. It returns the one that got furthest, or
// nil if there certainly is none that the payment could use. An error says that it is not known yet.
//
// Search is fast, but not every account has it, and it may be an hour late or miss objects: what it
// shows is true, what it does not show proves nothing. The list is complete in every account, but
// it lists the intents of all tenants: it is read page by page, in as many runs as that takes. An
// intent that is paid or about to be ends the search; if the intents found so far are not, only the
// whole list can show that no other was paid after them.
func (s Repairs) findIntent(ctx context.Context, c *idempotency.Claim, search intentSearch) (*stripe.Intent, error) {
	searched, err := s.gateway.SearchIntents(ctx, search.Payment.TenantID, search.Payment.OrderID)
	if err != nil {
		c.Log().Warn("could not search for a PaymentIntent; the list is read", "order_id", search.Order.ID, "error",
			err.Error())
	}
	found, paid, err := s.usable(ctx, search, searched)
	if err != nil {
		return nil, err
	}
	if !paid {
		listed, err := s.scanIntents(ctx, c, search)
		if err != nil {
			return nil, err
		}
		found = append(found, listed...)
	}
	var best *stripe.Intent
	for _, id := range found {
		seen, err := s.gateway.GetIntent(ctx, c.TenantID, id) // search results and pages may be old
		if err != nil {
			return nil, err
		}
		if seen.Status != stripe.IntentCanceled && (best == nil || progress(seen) > progress(*best)) {
			best = &seen
		}
	}
	return best, nil
}

// usable are the ids of the intents with which the payment could go on. paid: one is paid, or about to be.
func (s Repairs) usable(
	ctx context.Context, search intentSearch, intents []stripe.Intent,
) (ids []string, paid bool, err error) {
	for _, i := range intents {
		if !search.mayUse(i) {
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
// again, or another intent made in its place. It returns the usable ones, once it has read everything or found one
// that is paid. The position is recorded after each page, so that the next run continues there.
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
		ids, paid, err := s.usable(ctx, search, list.Objects)
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
	case stripe.IntentRequiresAction:
		return 2
	case stripe.IntentRequiresPaymentMethod, stripe.IntentRequiresConfirmation:
		if i.LastFailure != nil {
			return 1
		}
	case stripe.IntentCanceled:
	}
	return 0
}
