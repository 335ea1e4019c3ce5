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
	searchLate   = time.Hour       // how late Stripe says that its search can be
	findPagesMax = 50              // five thousand intents around one moment; a busier account has the search
	lookUntil    = resendWithin + searchLate + clocksApart
)

// Nothing is concluded before the search must have seen whatever anybody may have
// made, and nobody waits for it until a person has to.
const (
	_ = uint(lookUntil - resendWithin - searchLate)
	_ = uint(parkAfter - lookUntil)
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
	found, err := s.findIntent(ctx, p, last)
	if err != nil {
		return err
	}
	if found == nil {
		if age := time.Duration(last.AgeSeconds * float64(time.Second)); age < lookUntil {
			return fmt.Errorf("%w: its search may not have seen yet what was made %s ago", errCannotTell, age.Round(time.Minute))
		}
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

// findIntent asks Stripe for the intents of a payment's order: in the list of what
// was created when this database knows that it asked, which is never late, and by
// search, which also finds what was made in a time that the database has lost.
// Nil: there is none that a payment could use. Where there are several, it returns
// the one with which most has happened.
func (s *Service) findIntent(ctx context.Context, p db.Payment, last db.StripeCallGetRow) (*Intent, error) {
	closed, err := s.closedIntents(ctx, p)
	if err != nil {
		return nil, err
	}
	var best *Intent
	consider := func(intents []Intent) {
		for _, i := range intents {
			ours := i.TenantID == p.TenantID && i.OrderID == p.OrderID && i.AmountMinor == p.AmountMinor && i.Currency == p.Currency
			if ours && i.Status != IntentCanceled && !closed[i.ID] && (best == nil || i.happened() > best.happened()) {
				best = &i
			}
		}
	}
	window := Window{From: last.FirstSentAt.Add(-clocksApart), Until: last.LastSentAt.Add(clocksApart)}
	for page := 0; page < findPagesMax; page++ {
		list, err := s.gateway.ListIntents(ctx, window)
		if err != nil {
			return nil, err
		}
		consider(list.Objects)
		if !list.More || len(list.Objects) == 0 {
			break
		}
		window.After = list.Objects[len(list.Objects)-1].ID
	}
	searched, err := s.gateway.SearchIntents(ctx, p.TenantID, p.OrderID)
	if err != nil {
		return nil, err
	}
	consider(searched)
	if best == nil {
		return nil, nil //nolint:nilnil // none is an answer
	}
	seen, err := s.look(ctx, best.ID) // a search shows it as it was
	return &seen, err
}

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

// closedIntents are those that earlier payments of the order have given up.
func (s *Service) closedIntents(ctx context.Context, p db.Payment) (map[string]bool, error) {
	found, err := views(ctx, s.pool.Queries, []ref{{p.TenantID, p.OrderID}})
	if err != nil {
		return nil, err
	}
	closed := map[string]bool{}
	for _, other := range found[ref{p.TenantID, p.OrderID}].payments {
		if other.IntentClosed && other.IntentID != nil {
			closed[*other.IntentID] = true
		}
	}
	return closed, nil
}
