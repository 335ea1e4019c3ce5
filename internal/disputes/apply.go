package disputes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// errMoved says that another process has recorded the dispute since this one began to
// read it. What was read may be older, so it is read again.
var errMoved = errors.New("the dispute was recorded by another process while it was read")

// errNotAdopted says that the intent of a dispute is ours and succeeded, but that no payment
// of it is recorded yet. It is adopted once nothing else works on it.
var errNotAdopted = errors.New("the disputed PaymentIntent belongs to no payment yet")

// reading is a dispute as it was read at Stripe, and what was recorded before.
type reading struct {
	dispute stripe.Dispute
	before  db.Dispute    // recorded before the dispute was read
	intent  stripe.Intent // names the order of a dispute that is not recorded
}

// read reads a dispute at Stripe. order is the order of its payment; empty: its intent says which.
func (s *Service) read(ctx context.Context, stripeID string, order compare.OrderRef) (r reading, err error) {
	r.before, err = s.pool.DisputeOfStripeID(ctx, stripeID)
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return reading{}, fmt.Errorf("look for dispute %s: %w", stripeID, err)
	}
	if r.dispute, err = s.gateway.GetDispute(ctx, stripeID); err != nil {
		return reading{}, err
	}
	if r.before.Version > 0 {
		return r, nil
	}
	if r.dispute.IntentID == "" { // What the account charged without an intent is not ours.
		return reading{}, nil
	}
	r.intent, err = s.gateway.GetIntent(ctx, stripe.NoTenant, r.dispute.IntentID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return reading{}, nil
	}
	switch {
	case err != nil:
		return r, err
	case order.TenantID != "": // whatever its metadata says by now
		r.intent.TenantID, r.intent.OrderID, r.intent.Operation = order.TenantID, order.OrderID, ""
		return r, nil
	}
	if r.intent, err = payments.LocateIntent(ctx, s.pool.Queries, r.intent); err != nil {
		return r, err
	}
	pending, err := s.adopt(ctx, r.intent)
	if err == nil && !pending {
		s.log.Warn("a dispute is of a PaymentIntent that no payment has; the reconciler reports the intent",
			"tenant_id", r.intent.TenantID, "order_id", r.intent.OrderID, "payment_intent", r.intent.ID,
			"stripe_dispute", stripeID, "status", r.dispute.Status)
		return reading{}, nil
	}
	return r, err
}

// adopt has an intent adopted that was paid without this service, so that its dispute can be recorded. Not pending: no
// payment will have the intent.
func (s *Service) adopt(ctx context.Context, i stripe.Intent) (pending bool, err error) {
	if s.adopter == nil || i.TenantID == "" || i.Operation != "" || i.Status != stripe.IntentSucceeded {
		return true, nil
	}
	p, err := s.pool.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: i.TenantID, OrderID: i.OrderID, IntentID: &i.ID,
	})
	switch {
	case err != nil && !errors.Is(err, postgres.ErrNoRows):
		return true, fmt.Errorf("find the payment of %s: %w", i.ID, err)
	case p.Status == db.PaymentStatusSucceeded:
		return true, nil
	}
	return s.adopter.AdoptDisputed(ctx, i)
}

// readAttempts bounds how often a dispute is read again because another process recorded it meanwhile.
const readAttempts = 3

// Read reads a dispute at Stripe and records what has changed.
func (s *Service) Read(ctx context.Context, stripeID string) error {
	return s.readAs(ctx, stripeID, compare.OrderRef{})
}

func (s *Service) readAs(ctx context.Context, stripeID string, order compare.OrderRef) (err error) {
	for range readAttempts {
		var r reading
		if r, err = s.read(ctx, stripeID, order); err != nil {
			return err
		}
		err = s.pool.InTx(ctx, func(q *db.Queries) error { return s.record(ctx, q, r) })
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	return err
}

// record joins q's transaction, and locks order, payment and dispute, in the order used everywhere.
func (s *Service) record(ctx context.Context, q *db.Queries, r reading) error {
	p, err := s.paymentOf(ctx, q, r)
	if p.ID == "" {
		return err
	}
	id := ids.Keyed(ids.Dispute, p.TenantID, r.dispute.ID)
	row, err := q.DisputeLock(ctx, db.DisputeLockParams{TenantID: p.TenantID, ID: id})
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return fmt.Errorf("lock dispute %s: %w", id, err)
	}
	if row.Version != r.before.Version {
		return errMoved
	}
	return s.change(ctx, q, p, row, r.dispute)
}

// paymentOf finds the payment of a dispute and locks it. Anybody with access to the Stripe
// account can edit metadata: it only says where to look, and the payment whose intent it
// is decides. Without an id: the dispute is not of a payment of ours.
func (s *Service) paymentOf(ctx context.Context, q *db.Queries, r reading) (db.Payment, error) {
	if r.before.Version > 0 {
		if ours, err := q.TenantServedHere(ctx, r.before.TenantID); !ours {
			return db.Payment{}, err // It was moved to another cell.
		}
		return lock(ctx, q, r.before.TenantID, r.before.OrderID, r.before.PaymentID)
	}
	intent := r.intent
	if intent.Status != stripe.IntentSucceeded {
		return db.Payment{}, nil
	}
	if ours, err := q.TenantServedHere(ctx, intent.TenantID); !ours {
		return db.Payment{}, err // It belongs to another installation on the same account.
	}
	p, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: intent.TenantID, OrderID: intent.OrderID, IntentID: &intent.ID,
	})
	switch {
	case err != nil && !errors.Is(err, postgres.ErrNoRows):
		return db.Payment{}, fmt.Errorf("find the payment of %s: %w", intent.ID, err)
	case p.Status == db.PaymentStatusSucceeded:
		return lock(ctx, q, p.TenantID, p.OrderID, p.ID)
	case p.ID == "" && intent.Operation != "":
		return db.Payment{}, nil // Another operation charged it, and keeps its own records.
	}
	return db.Payment{}, fmt.Errorf("%w: %s", errNotAdopted, intent.ID)
}

func lock(ctx context.Context, q *db.Queries, tenantID, orderID, paymentID string) (db.Payment, error) {
	if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: tenantID, ID: orderID}); err != nil {
		return db.Payment{}, fmt.Errorf("lock order %s: %w", orderID, err)
	}
	p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: paymentID})
	if err != nil {
		return db.Payment{}, fmt.Errorf("lock payment %s: %w", paymentID, err)
	}
	return p, nil
}

// change records what has changed since before, which is empty if nothing is recorded yet.
func (s *Service) change(ctx context.Context, q *db.Queries, p db.Payment, before db.Dispute, d stripe.Dispute) error {
	id := ids.Keyed(ids.Dispute, p.TenantID, d.ID)
	movements, fresh, err := movementsOf(ctx, q, p.TenantID, id, d)
	if err != nil {
		return err
	}
	row, kinds := changed(before, p, d, movements, len(fresh))
	if len(kinds) == 0 {
		return nil
	}
	for _, m := range fresh {
		m.Version = before.Version + 1
		if err := q.DisputeMovementInsert(ctx, m); err != nil {
			return fmt.Errorf("record movement %s of dispute %s: %w", m.ID, row.ID, err)
		}
	}
	if err := write(ctx, q, before, row); err != nil {
		return err
	}
	if err := hold(ctx, q, row, row.WithdrawnMinor-before.WithdrawnMinor); err != nil {
		return err
	}
	var events []outbox.Event
	for i, kind := range kinds {
		events = append(events, outbox.Event{
			TenantID: row.TenantID, AggregateID: row.ID, Version: before.Version + 1 + int64(i), Type: kind,
			Data: outbox.Data(disputeOf(row)),
		})
	}
	if err := outbox.Append(ctx, q, events...); err != nil {
		return err
	}
	s.log.Warn("dispute recorded", "tenant_id", row.TenantID, "dispute_id", row.ID, "payment_id", row.PaymentID,
		"stripe_dispute", row.StripeDisputeID, "status", row.Status, "amount_minor", row.AmountMinor,
		"withdrawn_minor", row.WithdrawnMinor, "currency", row.Currency)
	return nil
}

// changed is what a dispute's row becomes, and the events that say so, one for each new version. No events: nothing has
// changed that the API shows or that money depends on. fresh is how many of the movements are not recorded yet.
func changed(
	before db.Dispute, p db.Payment, d stripe.Dispute, movements []db.DisputeMovement, fresh int,
) (row db.Dispute, events []string) {
	row, events = before, []string{"dispute.updated"}
	if before.Version == 0 {
		row.TenantID, row.ID = p.TenantID, ids.Keyed(ids.Dispute, p.TenantID, d.ID)
		row.PaymentID, row.OrderID, row.Currency = p.ID, p.OrderID, d.Currency
		row.StripeDisputeID, row.ChargeID, row.CreatedAt = d.ID, d.ChargeID, d.CreatedAt
		events = []string{"dispute.created"}
	}
	row.Status, row.Reason, row.AmountMinor, row.EvidenceDueBy = d.Status, d.Reason, d.AmountMinor, nil
	if !d.DueBy.IsZero() {
		row.EvidenceDueBy = &d.DueBy
	}
	row.WithdrawnMinor = compare.DisputeHolds(row.AmountMinor, d.Currency, movements)
	row.FeeMinor = compare.DisputeFees(movements)
	if before.Version > 0 && fresh == 0 && same(before, row) {
		return before, nil
	}
	if end := endOf(row.Status); end != "" && before.Status != row.Status {
		if before.Version > 0 {
			events = nil
		}
		events = append(events, end) // One that has ended already is created and then ends.
	}
	row.Version = before.Version + int64(len(events))
	return row, events
}

// endOf is the event of an end that decides who has the money; empty for every other status.
func endOf(status string) string {
	switch status {
	case "won":
		return "dispute.won"
	case "lost":
		return "dispute.lost"
	}
	return ""
}

// same reports whether nothing has changed that the API shows or that money depends on.
func same(a, b db.Dispute) bool {
	return deadline(a).Equal(deadline(b)) && a.Status == b.Status && a.Reason == b.Reason && a.AmountMinor == b.AmountMinor &&
		a.WithdrawnMinor == b.WithdrawnMinor && a.FeeMinor == b.FeeMinor
}

// deadline is zero if there is none.
func deadline(d db.Dispute) (due time.Time) {
	if d.EvidenceDueBy != nil {
		due = *d.EvidenceDueBy
	}
	return due
}

// movementsOf are the movements of a dispute, and those among them that are not recorded yet.
func movementsOf(ctx context.Context, q *db.Queries, tenantID, id string, d stripe.Dispute) (
	all []db.DisputeMovement, fresh []db.DisputeMovementInsertParams, err error,
) {
	if all, err = q.DisputeMovements(ctx, db.DisputeMovementsParams{TenantID: tenantID, DisputeID: id}); err != nil {
		return nil, nil, fmt.Errorf("read the movements of dispute %s: %w", id, err)
	}
	recorded := map[string]bool{}
	for _, m := range all {
		recorded[m.ID] = true
	}
	for _, m := range d.Movements {
		if recorded[m.ID] {
			continue
		}
		recorded[m.ID] = true
		n := db.DisputeMovement{
			TenantID: tenantID, ID: m.ID, DisputeID: id, Kind: compare.DisputeMovementKind(m),
			AmountMinor: m.AmountMinor, FeeMinor: m.FeeMinor, NetMinor: m.NetMinor, Currency: m.Currency,
			CreatedAt: m.CreatedAt,
		}
		all, fresh = append(all, n), append(fresh, db.DisputeMovementInsertParams(n))
	}
	return all, fresh, nil
}

func write(ctx context.Context, q *db.Queries, before, row db.Dispute) error {
	if before.Version == 0 {
		err := q.DisputeInsert(ctx, db.DisputeInsertParams{
			TenantID: row.TenantID, ID: row.ID, Version: row.Version, Status: row.Status, PaymentID: row.PaymentID,
			OrderID: row.OrderID, StripeDisputeID: row.StripeDisputeID, ChargeID: row.ChargeID,
			AmountMinor: row.AmountMinor, Currency: row.Currency, Reason: row.Reason, EvidenceDueBy: row.EvidenceDueBy,
			WithdrawnMinor: row.WithdrawnMinor, FeeMinor: row.FeeMinor, CreatedAt: row.CreatedAt,
			Again: again(row.CreatedAt),
		})
		if err != nil {
			return fmt.Errorf("insert dispute %s: %w", row.ID, err)
		}
		return nil
	}
	n, err := q.DisputeChange(ctx, db.DisputeChangeParams{
		TenantID: row.TenantID, ID: row.ID, SeenVersion: before.Version, Status: row.Status,
		AmountMinor: row.AmountMinor, Reason: row.Reason, EvidenceDueBy: row.EvidenceDueBy,
		WithdrawnMinor: row.WithdrawnMinor, FeeMinor: row.FeeMinor, Again: again(row.CreatedAt),
	})
	if err == nil && n == 0 {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("change dispute %s: %w", row.ID, err)
	}
	return nil
}

// hold adds to what the payment and its order show as disputed.
func hold(ctx context.Context, q *db.Queries, row db.Dispute, amount int64) error {
	if amount == 0 {
		return nil
	}
	err := q.PaymentApplyDispute(ctx, db.PaymentApplyDisputeParams{
		TenantID: row.TenantID, ID: row.PaymentID, AmountMinor: amount,
	})
	if err == nil {
		err = q.OrderApplyDispute(ctx, db.OrderApplyDisputeParams{
			TenantID: row.TenantID, ID: row.OrderID, AmountMinor: amount,
		})
	}
	if err != nil {
		return fmt.Errorf("update what dispute %s holds of payment %s: %w", row.ID, row.PaymentID, err)
	}
	return nil
}

// again is the pause before an open dispute is read again without a webhook. Most happens in its first days; after
// that a bank takes weeks.
func again(created time.Time) time.Duration {
	if time.Since(created) < 49*time.Hour {
		return 4 * time.Minute
	}
	return 12 * time.Hour
}
