package payments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
)

// StripeEvents is the name of the inbox consumer of Stripe's webhooks.
const StripeEvents = "stripe"

// ErrBadWebhook says that a webhook is not a signed event of Stripe's.
var ErrBadWebhook = errors.New("not a signed event of Stripe's")

// webhookSeen is what was read about an event before its transaction.
type webhookSeen struct {
	intent  Intent // as Stripe shows it; if we know the payment, only its ids
	refunds []StripeRefund
}

// WebhookHandler applies Stripe's events. It never changes a payment: it wakes the
// payment's key, and the operation that owns it reads the state at Stripe and
// finishes, as it would have done later without the event. A refund's status may
// change long after its key is finished, so that is applied here, as read from
// Stripe.
func (s *Service) WebhookHandler() inbox.Handler {
	return inbox.Handler{Prepare: s.prepareWebhook, Apply: s.applyWebhook}
}

// prepareWebhook finds out what an event is about. The event is only a hint: its
// snapshot may be old or of another API version, and it may arrive twice or in any
// order. For a payment that we know Stripe need not be asked, because the payment's
// own operation will.
func (s *Service) prepareWebhook(ctx context.Context, e inbox.Event) (any, error) {
	event, err := readEvent(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inbox.ErrPoison, err) // It could be read when it was stored.
	}
	hint := event.hint()
	if hint.ID == "" {
		return webhookSeen{}, nil
	}
	aboutRefund := strings.Contains(e.Type, "refund")
	if !aboutRefund && hint.TenantID != "" {
		_, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{TenantID: hint.TenantID, OrderID: hint.OrderID, IntentID: &hint.ID})
		if err == nil {
			return webhookSeen{intent: hint}, nil
		}
		if !errors.Is(err, db.ErrNoRows) {
			return nil, fmt.Errorf("find the payment of %s: %w", hint.ID, err)
		}
	}
	intent, err := s.gateway.GetIntent(ctx, hint.ID)
	if errors.Is(err, ErrNoSuchObject) {
		return webhookSeen{}, nil // Of another account, or another mode.
	}
	if err != nil {
		return nil, err
	}
	seen := webhookSeen{intent: intent}
	if aboutRefund {
		seen.refunds, err = s.gateway.RefundsOf(ctx, hint.ID)
	}
	return seen, err
}

// Webhook is what is read of an event before it is stored.
type Webhook struct {
	ID, Type string
	IntentID string // the PaymentIntent it is about, or empty; links webhooks to their payment
}

// ReadWebhook reads an event of Stripe's.
func ReadWebhook(payload []byte) (Webhook, error) {
	event, err := readEvent(payload)
	if err != nil {
		return Webhook{}, fmt.Errorf("%w: %w", ErrBadWebhook, err)
	}
	if event.ID == "" || len(event.ID) > stripeIDMax || strings.ContainsRune(event.ID+event.Type, 0) {
		return Webhook{}, fmt.Errorf("%w: it has no id", ErrBadWebhook)
	}
	w := Webhook{ID: event.ID, Type: event.Type, IntentID: event.hint().ID}
	if len(w.IntentID) > stripeIDMax || strings.ContainsRune(w.IntentID, 0) {
		w.IntentID = ""
	}
	return w, nil
}

const stripeIDMax = 255 // Stripe's own promise

// stripeEvent is as much of an event as we look at.
type stripeEvent struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object struct {
			ID            string            `json:"id"`
			Object        string            `json:"object"`
			PaymentIntent jsontext.Value    `json:"payment_intent"` // its id, or all of it
			Metadata      map[string]string `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// readEvent reads an event, without its object if that does not look as expected: it
// is an event all the same.
func readEvent(payload []byte) (event stripeEvent, err error) {
	if readStripes(payload, &event) == nil {
		return event, nil
	}
	var head struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	err = readStripes(payload, &head)
	return stripeEvent{ID: head.ID, Type: head.Type}, err
}

// readStripes reads Stripe's JSON, leniently and in one pass. encoding/json scans
// everything twice, and took a third of a webhook's processor time.
func readStripes(payload []byte, into any) error {
	return json.Unmarshal(payload, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// hint is the PaymentIntent that the event's object is or belongs to, with the ids
// from its metadata.
func (e stripeEvent) hint() Intent {
	object := e.Data.Object
	hint := Intent{TenantID: object.Metadata["tenant_id"], OrderID: object.Metadata["order_id"]}
	if object.Object == "payment_intent" {
		hint.ID = object.ID
		return hint
	}
	var expanded struct {
		ID string `json:"id"`
	}
	if readStripes(object.PaymentIntent, &hint.ID) != nil && readStripes(object.PaymentIntent, &expanded) == nil {
		hint.ID = expanded.ID
	}
	return hint
}

// applyWebhook applies the event in the transaction of its row.
func (s *Service) applyWebhook(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
	seen := prepared.(webhookSeen)
	if seen.intent.TenantID == "" {
		return nil
	}
	if ours, err := q.TenantExists(ctx, seen.intent.TenantID); err != nil || !ours {
		return err // It belongs to another installation on the same account.
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
	case errors.Is(err, db.ErrNoRows) && intent.Status == IntentSucceeded && intent.RefundedMinor == intent.ReceivedMinor:
		return nil // It was refunded in full. There is nothing left for a payment.
	case errors.Is(err, db.ErrNoRows) && (intent.Status == IntentSucceeded || intent.Status == IntentProcessing || intent.Status == IntentRequiresAction):
		return fmt.Errorf("PaymentIntent %s is %s and belongs to no payment yet", intent.ID, intent.Status) // It arrived before our own commit. Kept, and tried again.
	case errors.Is(err, db.ErrNoRows):
		return nil // No money can have moved.
	case err != nil:
		return fmt.Errorf("find the payment of %s: %w", intent.ID, err)
	case p.Status == db.PaymentStatusProcessing, p.Status == db.PaymentStatusRequiresAction:
		return idempotency.HurryHolder(ctx, q, p.TenantID, p.IdempotencyKey)
	}
	return nil // Final here. If Stripe disagrees, the reconciler finds it.
}

func (s *Service) applyRefundSeen(ctx context.Context, q *db.Queries, seen StripeRefund) error {
	if seen.RefundID == "" || seen.Status == db.RefundStatusPending {
		return nil
	}
	row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: seen.TenantID, ID: seen.RefundID})
	if errors.Is(err, db.ErrNoRows) {
		return s.applyGhostRefundSeen(ctx, q, seen)
	}
	if err != nil {
		return fmt.Errorf("find refund %s: %w", seen.RefundID, err)
	}
	if !seen.is(row) {
		return nil // It was made in the name of that one. The reconciler says so.
	}
	if row, err = s.applyRefund(ctx, q, row.TenantID, row.ID, seen); err != nil {
		return err
	}
	return idempotency.Hurry(ctx, q, row.TenantID, row.IdempotencyKey)
}

// applyGhostRefundSeen is for a refund without a row: of money that belongs to no
// payment here.
func (s *Service) applyGhostRefundSeen(ctx context.Context, q *db.Queries, seen StripeRefund) error {
	refunds, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: seen.TenantID, Keys: ghostKeys(seen.IntentID)})
	if err != nil {
		return fmt.Errorf("find refund %s: %w", seen.RefundID, err)
	}
	for _, r := range refunds {
		if r.ResourceID == seen.RefundID {
			return idempotency.Hurry(ctx, q, seen.TenantID, r.Key)
		}
	}
	return fmt.Errorf("refund %s is not known yet", seen.ID)
}
