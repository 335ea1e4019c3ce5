package payments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// webhooks applies Stripe's events.
type webhooks struct{ *Service }

// StripeEvents is the name of the inbox consumer of Stripe's webhooks.
const StripeEvents = "stripe"

// webhookSeen is what was read about an event before its transaction.
type webhookSeen struct {
	intent  stripe.Intent // as Stripe shows it; if a payment of ours works on it, only its ids
	adopt   adoption      // if it was paid after its payment had ended
	refunds []stripe.Refund
}

// WebhookHandler applies Stripe's events. It never changes a payment: it wakes the payment's key,
// and the operation that owns it reads the state at Stripe and finishes, as it would have done
// later without the event. What changes at Stripe when no operation works on it is applied here, as read
// from Stripe: a refund's status, and an intent that was paid after its payment had failed.
func (s *Service) WebhookHandler() inbox.Handler {
	h := webhooks{s}
	return inbox.Handler{Prepare: func(ctx context.Context, e inbox.Event) (any, error) {
		e.Type = stripe.SnapshotType(e.Type)
		seen, err := h.prepare(ctx, e)
		return seen, AwayWithStripe(err)
	}, Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
		e.Type = stripe.SnapshotType(e.Type)
		return h.apply(ctx, q, e, prepared)
	}, Settled: h.settled}
}

// AwayWithStripe is err, marked as no failure of the event if Stripe is away.
func AwayWithStripe(err error) error {
	if errors.Is(err, stripe.ErrAway) || errors.Is(err, stripe.ErrThrottled) || errors.Is(err, stripe.ErrUnavailable) {
		return fmt.Errorf("%w: %w", inbox.ErrAway, err)
	}
	return err
}

// prepare finds out what an event is about. The event is only a hint: its snapshot may be old or of
// another API version, and it may arrive twice or in any order. For a payment that we know Stripe
// need not be asked, because the payment's own operation will.
func (s webhooks) prepare(ctx context.Context, e inbox.Event) (any, error) {
	event, err := stripe.ReadWebhook(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inbox.ErrPoison, err) // It could be read when it was stored.
	}
	hint := event.Intent
	if hint.ID == "" && event.Related != "" {
		hint.ID, err = s.gateway.IntentOf(ctx, event.Related, event.ObjectID)
		if errors.Is(err, stripe.ErrNoSuchObject) {
			return webhookSeen{}, nil // Of another account, or another mode.
		}
		if err != nil {
			return nil, err
		}
	}
	if hint.ID == "" {
		return webhookSeen{}, nil
	}
	if !aboutRefund(e) && hint.TenantID != "" {
		p, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
			TenantID: hint.TenantID, OrderID: hint.OrderID, IntentID: &hint.ID,
		})
		if err == nil && !mayChange(p.Status, p.EndedID != nil, e.Type) {
			return webhookSeen{intent: hint}, nil
		}
		if err == nil {
			return s.readEnded(ctx, hint)
		}
		if !errors.Is(err, postgres.ErrNoRows) {
			return nil, fmt.Errorf("find the payment of %s: %w", hint.ID, err)
		}
	}
	if hint.Operation != "" && !aboutRefund(e) {
		return webhookSeen{intent: hint}, nil // The operation that made it reads it itself.
	}
	intent, err := s.gateway.GetIntent(ctx, stripe.NoTenant, hint.ID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return webhookSeen{}, nil // Of another account, or another mode.
	}
	if err == nil {
		intent, err = s.locate(ctx, intent)
	}
	if err != nil {
		return nil, err
	}
	seen := webhookSeen{intent: intent}
	if aboutRefund(e) {
		seen.refunds, err = s.gateway.RefundsOf(ctx, stripe.NoTenant, hint.ID)
		if err != nil {
			return nil, err
		}
		return s.withAdoption(ctx, seen)
	}
	if e.Attempt >= adoptAfter && intent.Status == stripe.IntentSucceeded {
		seen.adopt, err = s.Repairs().adoptionOf(ctx, intent)
	}
	return seen, err
}

// adoptAfter is the attempt of an event, three and a half seconds after the first, from which on the money of an intent that no payment
// has is adopted: by then the operation that made the intent has committed. The reconciler would adopt it half a minute later.
const adoptAfter = 4

// settled finds the events about payments that are final and that say nothing of what may have happened to their
// intents since: prepare asks Stripe nothing about them and apply changes nothing.
func (s webhooks) settled(ctx context.Context, events []inbox.Event) ([]string, error) {
	var of db.PaymentsOfIntentsParams
	var asked []inbox.Event
	for _, e := range events {
		if aboutRefund(e) {
			continue
		}
		event, _ := stripe.ReadWebhook(e.Payload) // One that cannot be read names no intent, and no payment has none.
		of.TenantIds, of.OrderIds = append(of.TenantIds, event.Intent.TenantID), append(of.OrderIds, event.Intent.OrderID)
		of.IntentIds, asked = append(of.IntentIds, event.Intent.ID), append(asked, e)
	}
	found, err := s.pool.PaymentsOfIntents(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("find the payments of %d intents: %w", len(asked), err)
	}
	var ids []string
	for _, p := range found {
		e := asked[p.N-1]
		if !unfinished(p.Status) && !mayChange(p.Status, p.Ended, e.Type) {
			ids = append(ids, e.ID)
		}
	}
	return ids, nil
}

func unfinished(status db.PaymentStatus) bool {
	return status == db.PaymentStatusProcessing || status == db.PaymentStatusRequiresAction
}

// mayChange reports whether an event may say something new of a payment that no operation works on: one that has ended
// without success, or is authorized.
func mayChange(status db.PaymentStatus, ended bool, eventType string) bool {
	return ended && endsIntent(eventType) || status == db.PaymentStatusAuthorized && endsAuthorization(eventType)
}

func aboutRefund(e inbox.Event) bool { return strings.Contains(e.Type, "refund") } // a snapshot's type and a thin event's

// locate is LocateIntent, if metadata names a tenant of ours. An account may have many payments of other programs.
func (s webhooks) locate(ctx context.Context, i stripe.Intent) (stripe.Intent, error) {
	for _, tenant := range []string{i.TenantID, i.Charged.TenantID} {
		ours, err := s.pool.TenantServedHere(ctx, tenant)
		if err != nil {
			return i, fmt.Errorf("look for tenant %s: %w", tenant, err)
		}
		if ours {
			return LocateIntent(ctx, s.pool.Queries, i)
		}
	}
	return i, nil
}

// withAdoption is for an intent that was paid after its payment had ended: its refunds are recorded with the payment
// that it becomes.
func (s webhooks) withAdoption(ctx context.Context, seen webhookSeen) (any, error) {
	intent := seen.intent
	p, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID,
	})
	switch {
	case errors.Is(err, postgres.ErrNoRows):
	case err != nil:
		return nil, fmt.Errorf("find the payment of %s: %w", intent.ID, err)
	case p.EndedID != nil && intent.Status == stripe.IntentSucceeded:
		seen.adopt = adoptionWith(intent, seen.refunds)
	}
	return seen, nil
}

// endsIntent reports whether an event says that an intent cannot be confirmed any more.
func endsIntent(eventType string) bool {
	eventType = stripe.SnapshotType(eventType)
	return eventType == "payment_intent.succeeded" || eventType == "payment_intent.canceled"
}

// endsAuthorization reports whether an event says that an authorization was captured or released.
func endsAuthorization(eventType string) bool {
	eventType = stripe.SnapshotType(eventType)
	return endsIntent(eventType) || eventType == "charge.captured" || eventType == "charge.expired"
}

// readEnded reads the intent of a payment that has failed, was canceled or is authorized.
func (s webhooks) readEnded(ctx context.Context, hint stripe.Intent) (any, error) {
	intent, err := s.gateway.GetIntent(ctx, stripe.NoTenant, hint.ID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return webhookSeen{}, nil
	}
	if err != nil {
		return nil, err
	}
	intent.TenantID, intent.OrderID = hint.TenantID, hint.OrderID // of our row, whatever its metadata says by now
	seen := webhookSeen{intent: intent}
	if intent.Status != stripe.IntentSucceeded {
		return seen, nil
	}
	seen.adopt, err = s.Repairs().adoptionOf(ctx, intent)
	return seen, err
}

// apply applies the event in the transaction of its row.
func (s webhooks) apply(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
	seen := prepared.(webhookSeen)
	if seen.intent.TenantID == "" {
		return nil
	}
	if ours, err := q.TenantServedHere(ctx, seen.intent.TenantID); !ours {
		return err // It belongs to another installation on the same account.
	}
	charge, err := s.isCharge(ctx, q, seen.intent)
	if err == nil {
		err = s.applySeen(ctx, q, e.Type, seen, charge)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	return nil
}

func (s webhooks) applySeen(
	ctx context.Context, q *db.Queries, eventType string, seen webhookSeen, charge bool,
) error {
	if charge {
		return s.applyChargeSeen(ctx, q, seen)
	}
	if err := s.applyIntentSeen(ctx, q, eventType, seen.intent, seen.adopt); err != nil {
		return err
	}
	return s.applyRefundsSeen(ctx, q, seen)
}

// isCharge reports whether a registered operation has made the intent. Anybody with access to
// the Stripe account can edit metadata, so an intent of a payment's row is the payment's.
func (s webhooks) isCharge(ctx context.Context, q *db.Queries, intent stripe.Intent) (bool, error) {
	if intent.Operation == "" {
		return false, nil
	}
	_, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return true, nil
	}
	return false, err
}

func (s webhooks) applyIntentSeen(
	ctx context.Context, q *db.Queries, eventType string, intent stripe.Intent, adopt adoption,
) error {
	p, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID,
	})
	switch {
	case errors.Is(err, postgres.ErrNoRows) && intent.Status == stripe.IntentSucceeded &&
		intent.RefundedMinor == intent.ReceivedMinor:
		return nil // It was refunded in full. There is nothing left for a payment.
	case errors.Is(err, postgres.ErrNoRows) && adopt.id != "":
		if adopted, err := s.Repairs().adoptFinally(ctx, q, adopt, intent); err != nil || adopted != "" {
			return err
		}
		return fmt.Errorf("PaymentIntent %s has money that is not adopted", intent.ID) // An operation or the reconciler decides.
	case errors.Is(err, postgres.ErrNoRows) && (intent.Status == stripe.IntentSucceeded ||
		intent.Status == stripe.IntentProcessing || intent.Status == stripe.IntentRequiresAction):
		return fmt.Errorf("PaymentIntent %s is %s and belongs to no payment yet", intent.ID,
			intent.Status) // It arrived before our own commit. Kept, and tried again.
	case errors.Is(err, postgres.ErrNoRows):
		return nil // No money can have moved.
	case err != nil:
		return fmt.Errorf("find the payment of %s: %w", intent.ID, err)
	case unfinished(p.Status) && intent.RefundedMinor > 0 && isFor(p, intent): // Of another amount, it waits for all to be returned.
		return fmt.Errorf("payment %s is %s here, and refunded at Stripe", p.ID, p.Status) // Kept, and tried again.
	case unfinished(p.Status) && p.ManualCapture && endsAuthorization(eventType):
		return expediteOrKeep(ctx, q, p, p.IdempotencyKey)
	case unfinished(p.Status):
		return idempotency.ExpediteHolder(ctx, q, p.TenantID, p.IdempotencyKey)
	case p.Status == db.PaymentStatusAuthorized:
		return authorizationSeen(ctx, q, p, intent)
	case adopt.id != "": // If it may not be adopted now, the reconciler reads it again within minutes.
		_, err := s.Repairs().adoptFinally(ctx, q, adopt, intent)
		return err
	case intent.Status == stripe.IntentCanceled:
		return intentEnded(ctx, q, compare.OrderRef{TenantID: p.TenantID, OrderID: p.OrderID}, intent.ID)
	}
	return nil
}

// applyRefundsSeen applies what Stripe lists of an intent's refunds, whoever made them.
func (s webhooks) applyRefundsSeen(ctx context.Context, q *db.Queries, seen webhookSeen) error {
	if len(seen.refunds) == 0 {
		return nil
	}
	ref := compare.OrderRef{TenantID: seen.intent.TenantID, OrderID: seen.intent.OrderID}
	p, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: ref.TenantID, OrderID: ref.OrderID, IntentID: &seen.intent.ID,
	})
	if err == nil && p.Status == db.PaymentStatusAuthorized { // Ours in progress records the capture. Kept, and tried again.
		return fmt.Errorf("payment %s is %s here, and refunded at Stripe", p.ID, p.Status)
	}
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return fmt.Errorf("find the payment of %s: %w", seen.intent.ID, err)
	}
	// part: operator {
	if err := s.expediteOrphanRefunds(ctx, q, seen); err != nil {
		return err
	}
	// part: operator }
	return s.applyRefunds(ctx, q, ref, seen.refunds)
}

// applyChargeSeen is for an intent that another operation than a payment has made. If it is registered,
// the keys of its charges that have not ended are expedited. The intents of an operation that is not
// registered are unknown to this service: their events are done, because no retry could ever apply them.
func (s webhooks) applyChargeSeen(ctx context.Context, q *db.Queries, seen webhookSeen) error {
	intent := seen.intent
	if operation, ok := s.o.Registered[intent.Operation]; ok {
		ref := compare.OrderRef{TenantID: intent.TenantID, OrderID: intent.OrderID}
		charges, err := operation.Charges(ctx, q, []compare.OrderRef{ref})
		if err != nil {
			return fmt.Errorf("read the charges of %s: %w", intent.Operation, err)
		}
		for _, c := range charges {
			if c.Status != compare.ChargePending || c.IntentID != intent.ID && c.IntentID != "" {
				continue
			}
			if err := idempotency.ExpediteHolder(ctx, q, c.TenantID, c.Key); err != nil {
				return err
			}
		}
	}
	// part: operator {
	if len(seen.refunds) > 0 { // Only those that an operator asked for have a key here.
		return s.expediteOrphanRefunds(ctx, q, seen)
	}
	// part: operator }
	return nil
}
