package disputes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
)

// WebhookHandler applies Stripe's events about disputes, and passes all others to next.
// An event only says which dispute to read: its own copy of the dispute may be old.
func (s *Service) WebhookHandler(next inbox.Handler) inbox.Handler {
	about := func(e inbox.Event) bool { return strings.HasPrefix(stripe.SnapshotType(e.Type), "charge.dispute.") }
	handler := inbox.Handler{
		Types: slices.Clone(next.Types),
		Prepare: func(ctx context.Context, e inbox.Event) (any, error) {
			if !about(e) {
				return next.Prepare(ctx, e)
			}
			return s.prepare(ctx, e)
		},
		Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
			if !about(e) {
				return next.Apply(ctx, q, e, prepared)
			}
			if err := s.record(ctx, q, prepared.(reading)); err != nil {
				return fmt.Errorf("%s: %w", e.Type, err)
			}
			return nil
		},
	}
	if next.Settled != nil {
		handler.Settled = func(ctx context.Context, events []inbox.Event) ([]string, error) {
			return next.Settled(ctx, slices.DeleteFunc(slices.Clone(events), about))
		}
	}
	return handler
}

func (s *Service) prepare(ctx context.Context, e inbox.Event) (reading, error) {
	event, err := stripe.ReadWebhook(e.Payload)
	if err != nil {
		return reading{}, fmt.Errorf("%w: %w", inbox.ErrPoison, err) // It could be read when it was stored.
	}
	if event.ObjectID == "" {
		return reading{}, nil
	}
	r, err := s.read(ctx, event.ObjectID, compare.OrderRef{})
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return reading{}, nil // Of another account, or another mode.
	}
	return r, payments.AwayWithStripe(err)
}
