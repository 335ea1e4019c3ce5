package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
)

// StripeEvents names the inbox's consumer of Stripe's webhooks.
const StripeEvents = "stripe"

// ErrBadWebhook says that a webhook is not a signed event of Stripe's.
var ErrBadWebhook = errors.New("not a signed event of Stripe's")

// webhookSeen is what Stripe showed when it was asked about an event's object.
// The event itself is a hint that there is something to see: its snapshot may be
// old, its version foreign, and it may come twice or in any order.
type webhookSeen struct {
	intent  Intent
	refunds []StripeRefund
}

// WebhookHandler applies Stripe's events. A payment is never changed here: its
// key is hurried along, and the operation that owns it looks and finishes, as it
// would have without the event. A refund's status may change long after its key
// is finished, so that is applied.
func (s *Service) WebhookHandler() inbox.Handler {
	return inbox.Handler{Prepare: s.prepareWebhook, Apply: s.applyWebhook}
}

// prepareWebhook reads the objects that the event is about from Stripe.
func (s *Service) prepareWebhook(ctx context.Context, e inbox.Event) (any, error) {
	intentID := intentOfEvent(e.Payload)
	if intentID == "" {
		return webhookSeen{}, nil
	}
	intent, err := s.gateway.GetIntent(ctx, intentID)
	if errors.Is(err, ErrNoSuchObject) {
		return webhookSeen{}, nil // Another account's, or another mode's.
	}
	if err != nil {
		return nil, err
	}
	seen := webhookSeen{intent: intent}
	if strings.Contains(e.Type, "refund") {
		seen.refunds, err = s.gateway.RefundsOf(ctx, intentID)
	}
	return seen, err
}

// intentOfEvent finds the PaymentIntent that an event's object is, or belongs to.
func intentOfEvent(payload []byte) string {
	var event struct {
		Data *struct {
			Object struct {
				ID            string          `json:"id"`
				Object        string          `json:"object"`
				PaymentIntent json.RawMessage `json:"payment_intent"`
			} `json:"object"`
		} `json:"data"`
	}
	if json.Unmarshal(payload, &event) != nil || event.Data == nil {
		return ""
	}
	object := event.Data.Object
	if object.Object == "payment_intent" {
		return object.ID
	}
	var id string
	if json.Unmarshal(object.PaymentIntent, &id) == nil {
		return id
	}
	var expanded struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(object.PaymentIntent, &expanded)
	return expanded.ID
}

// applyWebhook makes the effect, in the transaction of the event's row.
func (s *Service) applyWebhook(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
	seen := prepared.(webhookSeen)
	if seen.intent.TenantID == "" {
		return nil
	}
	if ours, err := q.TenantExists(ctx, seen.intent.TenantID); err != nil || !ours {
		return err // Another installation on the same account. Not ours to judge.
	}
	if err := s.applyIntentSeen(ctx, q, seen.intent); err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	for _, refund := range seen.refunds {
		if err := s.applyRefundSeen(ctx, q, refund); err != nil {
			return fmt.Errorf("%s: %w", e.Type, err)
		}
	}
	return nil
}

func (s *Service) applyIntentSeen(ctx context.Context, q *db.Queries, intent Intent) error {
	p, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID})
	switch {
	case errors.Is(err, db.ErrNoRows) && (intent.Status == IntentSucceeded || intent.Status == IntentProcessing || intent.Status == IntentRequiresAction):
		return fmt.Errorf("PaymentIntent %s is %s and belongs to no payment yet", intent.ID, intent.Status) // Ahead of our own commit. Kept, and tried again.
	case errors.Is(err, db.ErrNoRows):
		return nil // No money can have moved.
	case err != nil:
		return fmt.Errorf("find the payment of %s: %w", intent.ID, err)
	case p.Status == db.PaymentStatusProcessing, p.Status == db.PaymentStatusRequiresAction:
		return idempotency.Hurry(ctx, q, p.TenantID, p.IdempotencyKey)
	}
	return nil // Final here. Where Stripe disagrees, the reconciler says so.
}

func (s *Service) applyRefundSeen(ctx context.Context, q *db.Queries, seen StripeRefund) error {
	if seen.RefundID == "" || seen.Status == db.RefundStatusPending {
		return nil
	}
	row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: seen.TenantID, ID: seen.RefundID})
	if errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("refund %s is not known yet", seen.ID)
	}
	if err != nil {
		return fmt.Errorf("find refund %s: %w", seen.RefundID, err)
	}
	if row, err = s.applyRefund(ctx, q, row.TenantID, row.ID, seen); err != nil {
		return err
	}
	return idempotency.Hurry(ctx, q, row.TenantID, row.IdempotencyKey)
}
