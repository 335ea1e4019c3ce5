package disputes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// compareBatch is how many open disputes the audit reads from the database at once.
const compareBatch = 200

// Compare compares the disputes of our payments that were created since, and the open
// ones whatever their age, with Stripe's. It only reads. Disputes of other charges of the
// account are not ours to compare.
func (s *Service) Compare(ctx context.Context, since time.Time) (differences []postgres.Violation, err error) {
	seen := map[string]bool{}
	visit := func(d stripe.Dispute) error {
		if seen[d.ID] || d.IntentID == "" {
			return nil
		}
		seen[d.ID] = true
		difference, err := s.compareOne(ctx, d)
		if difference != nil {
			differences = append(differences, *difference)
		}
		return err
	}
	for window := (stripe.Window{From: since}); ; {
		page, err := s.gateway.ListDisputes(ctx, window)
		if err != nil {
			return nil, fmt.Errorf("list disputes: %w", err)
		}
		for _, d := range page.Objects {
			if err := visit(d); err != nil {
				return nil, err
			}
		}
		if !page.More || len(page.Objects) == 0 {
			break
		}
		window.After = page.Objects[len(page.Objects)-1].ID
	}
	for last := (db.DisputesWatchedRow{}); ; {
		open, err := s.pool.DisputesWatched(ctx, db.DisputesWatchedParams{
			AfterTenantID: last.TenantID, AfterID: last.ID, LimitRows: compareBatch,
		})
		if err != nil {
			return nil, fmt.Errorf("read the open disputes: %w", err)
		}
		for _, row := range open {
			if seen[row.StripeDisputeID] {
				continue
			}
			d, err := s.gateway.GetDispute(ctx, row.StripeDisputeID)
			switch {
			case errors.Is(err, stripe.ErrNoSuchObject):
				differences = append(differences, violation(row, row.Status+" here, and does not exist at Stripe"))
			case err != nil:
				return nil, fmt.Errorf("read dispute %s: %w", row.StripeDisputeID, err)
			default:
				if err := visit(d); err != nil {
					return nil, err
				}
			}
		}
		if len(open) < compareBatch {
			return differences, nil
		}
		last = open[len(open)-1]
	}
}

func violation(row db.DisputesWatchedRow, detail string) postgres.Violation {
	return postgres.Violation{
		Subject: row.TenantID + " " + row.StripeDisputeID + " " + row.ID + " " + row.PaymentID, Detail: detail,
	}
}

// compareOne is nil if a dispute of Stripe's is recorded as it is, or is not ours.
func (s *Service) compareOne(ctx context.Context, d stripe.Dispute) (*postgres.Violation, error) {
	row, err := s.pool.DisputeOfStripeID(ctx, d.ID)
	if errors.Is(err, postgres.ErrNoRows) {
		return s.compareMissing(ctx, d)
	}
	if err != nil {
		return nil, fmt.Errorf("look for dispute %s: %w", d.ID, err)
	}
	movements, err := s.pool.DisputeMovements(ctx, db.DisputeMovementsParams{TenantID: row.TenantID, DisputeID: row.ID})
	if err != nil {
		return nil, fmt.Errorf("read the movements of dispute %s: %w", row.ID, err)
	}
	shown := fmt.Sprintf("%s, %d %s, movements %v", row.Status, row.AmountMinor, row.Currency, sums(movements))
	atStripe := fmt.Sprintf("%s, %d %s, movements %v", d.Status, d.AmountMinor, d.Currency, sums(movementsAt(d)))
	if shown == atStripe {
		return nil, nil
	}
	v := violation(db.DisputesWatchedRow{
		TenantID: row.TenantID, ID: row.ID, PaymentID: row.PaymentID, StripeDisputeID: row.StripeDisputeID,
	}, "here "+shown+"; at Stripe "+atStripe)
	return &v, nil
}

// sums are the net sums of movements by currency. They are printed in the order of the currencies.
func sums(movements []db.DisputeMovement) map[string]int64 {
	net := map[string]int64{}
	for _, m := range movements {
		net[m.Currency] += m.NetMinor
	}
	return net
}

func movementsAt(d stripe.Dispute) (movements []db.DisputeMovement) {
	for _, m := range d.Movements {
		movements = append(movements, db.DisputeMovement{
			ID: m.ID, Kind: compare.DisputeMovementKind(m), NetMinor: m.NetMinor, Currency: m.Currency,
		})
	}
	return movements
}

// compareMissing is nil if the payment of a dispute that is not recorded is not ours.
func (s *Service) compareMissing(ctx context.Context, d stripe.Dispute) (*postgres.Violation, error) {
	intent, err := s.gateway.GetIntent(ctx, d.IntentID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return nil, nil
	}
	if err == nil {
		intent, err = payments.OwnIntent(ctx, s.pool.Queries, intent)
	}
	if err != nil {
		return nil, fmt.Errorf("read the intent of dispute %s: %w", d.ID, err)
	}
	if !ids.Is(ids.Tenant, intent.TenantID) {
		return nil, nil
	}
	p, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return nil, nil // The comparison of payments shows that its payment is missing.
	}
	if err != nil {
		return nil, fmt.Errorf("find the payment of dispute %s: %w", d.ID, err)
	}
	return &postgres.Violation{
		Subject: p.TenantID + " " + d.ID + " " + p.ID,
		Detail:  fmt.Sprintf("%s at Stripe for %d %s, and missing here", d.Status, d.AmountMinor, d.Currency),
	}, nil
}
