package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

const (
	clocksApart  = 2 * time.Minute // between Stripe's clock and the database's, with what an attempt takes
	repairLate   = time.Hour       // how late Stripe can still put right what a failure of its own left behind
	findPagesMax = 10              // of a list in one run: a thousand intents, so that a long list takes no other's turn at Stripe
	lookUntil    = stripeKeyLifetime + repairLate + clocksApart
)

// Nothing is concluded while a creation can still come to light, and there is time
// to read a long list before a person has to.
const (
	_ = uint(lookUntil - resendWithin)
	_ = uint(parkAfter - 20*time.Hour - lookUntil)
)

// adoptIntent looks for what a creation has made that is too old to be sent again.
// Either its answer was lost, or this database was restored from an older copy and
// has forgotten what came of it: then the intent may even be paid, and another one
// would charge the card a second time. So it looks before it pushes.
//
// It returns errMoved when it has found an intent and recorded it, as T1b would
// have; nil when there is none for certain, and another may be made; and any other
// error when it cannot tell yet.
func (s *Service) adoptIntent(ctx context.Context, c *idempotency.Claim, create call) error {
	last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: c.TenantID, StripeKey: create.key})
	if err != nil {
		return fmt.Errorf("read the creation of an intent of order %s: %w", create.resourceID, err)
	}
	p, err := s.pool.PaymentLive(ctx, db.PaymentLiveParams{TenantID: c.TenantID, OrderID: create.resourceID})
	if errors.Is(err, db.ErrNoRows) {
		return errMoved
	}
	if err != nil {
		return fmt.Errorf("read the live payment of order %s: %w", create.resourceID, err)
	}
	found, err := s.findIntent(ctx, c, p, last)
	if err != nil {
		return err
	}
	if found == nil {
		return nil
	}
	// Whoever confirmed it in the time that is lost was told what came of it. What
	// was never confirmed goes on as if nothing had happened.
	point := actionRequired
	if found.Status == IntentRequiresConfirmation || found.Status == IntentRequiresPaymentMethod && found.LastFailure == nil {
		point = intentRecorded
	}
	confirm := (&paying{payment: p}).confirmCallOn(found.ID)
	err = c.Statement(ctx, point, func(q *db.Queries) (int64, error) {
		return q.PaymentIntentRecord(ctx, db.PaymentIntentRecordParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: point, PaymentID: p.ID,
			IntentID: &found.ID, CreateKey: create.key, ConfirmKey: confirm.key, ParamsSha256: confirm.params,
		})
	})
	if err != nil {
		return fmt.Errorf("record the intent %s that payment %s once had: %w", found.ID, p.ID, err)
	}
	c.Log().Warn("an intent that was made and forgotten was found", "payment_id", p.ID, "payment_intent", found.ID, "status", string(found.Status))
	return errMoved
}

var errCannotTell = errors.New("Stripe cannot tell yet")

// findIntent asks Stripe for the intents of a payment's order. It returns the one
// with which most has happened; nil: there is none that a payment could use, and
// that is certain. An error says that nobody can tell yet.
//
// Search, where the account has it, is quick, and can be an hour late or leave
// things out: what it shows is so, and what it does not show proves nothing. The
// list leaves nothing out, in any account, but it is everybody's: it is read page
// by page, in as many runs as that takes. An intent that was paid, or is about to
// be, ends the look; of one that was not, only the whole list can say that no
// other was paid after it.
func (s *Service) findIntent(ctx context.Context, c *idempotency.Claim, p db.Payment, last db.StripeCallGetRow) (*Intent, error) {
	usable := func(intents []Intent) (ids []string, paid bool) {
		for _, i := range intents {
			ours := i.TenantID == p.TenantID && i.OrderID == p.OrderID && i.AmountMinor == p.AmountMinor && i.Currency == p.Currency
			if ours && i.Status != IntentCanceled {
				ids, paid = append(ids, i.ID), paid || i.happened() >= paidOrAboutToBe
			}
		}
		return ids, paid
	}
	searched, err := s.gateway.SearchIntents(ctx, p.TenantID, p.OrderID)
	if err != nil {
		c.Log().Info("the search for what a creation made has failed; its list is read", "error", err.Error())
	}
	found, paid := usable(searched)
	if !paid {
		listed, err := s.readList(ctx, c, last, usable)
		if err != nil {
			return nil, err
		}
		found = append(found, listed...)
	}
	var best *Intent
	for _, id := range found {
		seen, err := s.look(ctx, id) // a search, and a page of yesterday, show it as it was
		if err != nil {
			return nil, err
		}
		if seen.Status != IntentCanceled && (best == nil || seen.happened() > best.happened()) {
			best = &seen
		}
	}
	return best, nil
}

// readList reads Stripe's list of what was created around the attempts of a
// creation that are known here, and then of everything since: a life that this
// database has lost may have tried again, or have made another in its place. It
// returns what is usable, having read all of it or until something was paid. Each
// page is written down, so that whoever comes next reads on.
func (s *Service) readList(ctx context.Context, c *idempotency.Claim, last db.StripeCallGetRow, usable func([]Intent) (ids []string, paid bool)) ([]string, error) {
	now := last.FirstSentAt.Add(time.Duration(last.AgeSeconds * float64(time.Second)))
	proves := last.FirstSentAt.Add(lookUntil) // a list that was read before this may miss something
	at, err := s.pool.IntentLookGet(ctx, db.IntentLookGetParams{TenantID: c.TenantID, StripeKey: last.StripeKey})
	begins := errors.Is(err, db.ErrNoRows)
	if err != nil && !begins {
		return nil, fmt.Errorf("read how far the look for %s has come: %w", last.ResourceID, err)
	}
	if tooEarly := at.EndedAt != nil && len(at.Found) == 0 && at.UntilAt.Before(proves) && !now.Before(proves); begins || tooEarly {
		at, err = s.pool.IntentLookBegin(ctx, db.IntentLookBeginParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: last.StripeKey,
			FromAt: last.FirstSentAt.Add(-clocksApart), UntilAt: last.LastSentAt.Add(clocksApart),
		})
		if err != nil {
			return nil, lookLost(c, err)
		}
	}
	for page := 0; at.EndedAt == nil; page++ {
		if page == findPagesMax {
			return nil, fmt.Errorf("%w: %d pages of its list are read, and there are more", errCannotTell, at.Pages)
		}
		list, err := s.gateway.ListIntents(ctx, Window{From: at.FromAt, Until: at.UntilAt, After: deref(at.AfterID)})
		if err != nil {
			return nil, err
		}
		ids, paid := usable(list.Objects)
		if paid {
			return append(at.Found, ids...), nil
		}
		read := db.IntentLookReadParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, StripeKey: last.StripeKey, Found: append([]string{}, ids...), Wide: at.Wide, FromAt: at.FromAt, UntilAt: at.UntilAt,
		}
		switch {
		case list.More && len(list.Objects) > 0:
			read.AfterID = &list.Objects[len(list.Objects)-1].ID
		case !at.Wide:
			read.Wide, read.FromAt, read.UntilAt = true, at.UntilAt, now.Add(clocksApart)
		default:
			read.Ended = true
		}
		if at, err = s.pool.IntentLookRead(ctx, read); err != nil {
			return nil, lookLost(c, err)
		}
	}
	if len(at.Found) == 0 && at.UntilAt.Before(proves) {
		return nil, fmt.Errorf("%w: what was sent %s ago may still come to light", errCannotTell, now.Sub(last.FirstSentAt).Round(time.Minute))
	}
	return at.Found, nil
}

func lookLost(c *idempotency.Claim, err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return c.Lost()
	}
	return fmt.Errorf("note how far the look has come: %w", err)
}

// paidOrAboutToBe is what happened with an intent whose money has moved, or may
// have.
const paidOrAboutToBe = 3

// happened orders intents by how much has happened with them.
func (i Intent) happened() int {
	switch i.Status {
	case IntentSucceeded:
		return 4
	case IntentProcessing:
		return 3
	case IntentRequiresAction:
		return 2
	case IntentRequiresPaymentMethod, IntentRequiresConfirmation:
		if i.LastFailure != nil {
			return 1
		}
	case IntentCanceled:
	}
	return 0
}
