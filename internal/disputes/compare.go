package disputes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

const (
	compareBatch = 200 // disputes that the audit reads from the database at once
	// endedFor is how long the audit compares a dispute that has ended: a bank may still give back what was lost, or
	// take what was won, and the loop reads it again only if a webhook says so.
	endedFor = 90 * 24 * time.Hour
	// unansweredMax is how many disputes in a row may be without a response before Stripe is taken to be away. It is
	// more than the loop's, because what the audit leaves out is not read again in a minute.
	unansweredMax = 10
)

// Compare compares the disputes of our payments that were created since, and those that
// are open or ended lately whatever their age, with Stripe's. It only reads. Disputes of other charges of the
// account are not ours to compare. A dispute that cannot be read is a violation, and all
// others are compared. An error means that the database or Stripe is away; the
// differences are those that were found before.
func (s *Service) Compare(ctx context.Context, since time.Time) (differences []postgres.Violation, err error) {
	c := comparison{Service: s, seen: map[string]bool{}}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return c.compareListed(ctx, since) }, c.compareRecorded, c.compareUnanswered,
	} {
		if err = step(ctx); err != nil {
			return c.differences, errors.Join(err, c.unread())
		}
	}
	return c.differences, nil
}

// comparison is one run of Compare.
type comparison struct {
	*Service
	seen        map[string]bool // by Stripe's ids
	differences []postgres.Violation
	unanswered  []unanswered
	inARow      int // of the disputes tried last, how many are unanswered
}

// unanswered is a dispute that Stripe gave no response about.
type unanswered struct {
	subject string
	compare func(context.Context) (*postgres.Violation, error)
	err     error
}

// compareListed compares what Stripe lists.
func (c *comparison) compareListed(ctx context.Context, since time.Time) error {
	for listed, err := range pages(ctx, c.gateway, since) {
		if err != nil {
			return err
		}
		for _, d := range listed {
			if d.IntentID == "" {
				continue
			}
			if err := c.isolate(ctx, d.ID, d.ID+" "+d.IntentID, func(ctx context.Context) (*postgres.Violation, error) {
				return c.compareOne(ctx, d)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareRecorded compares the recorded disputes that were not listed: the open ones one by one, because they are few
// and move.
func (c *comparison) compareRecorded(ctx context.Context) error {
	var ended []db.DisputesToCompareRow
	for last := (db.DisputesToCompareRow{}); ; {
		rows, err := c.pool.DisputesToCompare(ctx, db.DisputesToCompareParams{
			EndedFor: endedFor, AfterTenantID: last.TenantID, AfterID: last.ID, LimitRows: compareBatch,
		})
		if err != nil {
			return fmt.Errorf("read the open disputes: %w", err)
		}
		for _, row := range rows {
			if !row.Watched {
				ended = append(ended, row)
			} else if err := c.readAndCompare(ctx, row); err != nil {
				return err
			}
		}
		if len(rows) < compareBatch {
			return c.compareEnded(ctx, ended)
		}
		last = rows[len(rows)-1]
	}
}

// compareEnded compares disputes that have ended. A page of Stripe's list shows a hundred, newest first, so they are
// looked for there, for as long as that takes no more calls than there are disputes left to read one by one.
func (c *comparison) compareEnded(ctx context.Context, ended []db.DisputesToCompareRow) error {
	left := map[string]db.DisputesToCompareRow{}
	for _, row := range ended {
		if !c.seen[row.StripeDisputeID] {
			left[row.StripeDisputeID] = row
		}
	}
	if len(left) == 0 {
		return nil
	}
	calls := 0
	for listed, err := range pages(ctx, c.gateway, time.Unix(0, 0)) {
		if err != nil {
			return err
		}
		for _, d := range listed {
			row, ok := left[d.ID]
			if !ok {
				continue
			}
			delete(left, d.ID)
			if err := c.isolate(ctx, d.ID, subject(row), func(ctx context.Context) (*postgres.Violation, error) {
				return c.compareOne(ctx, d)
			}); err != nil {
				return err
			}
		}
		if calls++; calls >= len(left) {
			break
		}
	}
	for _, row := range ended {
		if err := c.readAndCompare(ctx, row); err != nil { // does nothing if it was found
			return err
		}
	}
	return nil
}

// readAndCompare reads a recorded dispute at Stripe and compares it, unless it was seen.
func (c *comparison) readAndCompare(ctx context.Context, row db.DisputesToCompareRow) error {
	return c.isolate(ctx, row.StripeDisputeID, subject(row), func(ctx context.Context) (*postgres.Violation, error) {
		d, err := c.gateway.GetDispute(ctx, row.StripeDisputeID)
		if errors.Is(err, stripe.ErrNoSuchObject) {
			return &postgres.Violation{
				Subject: subject(row), Detail: row.Status + " here, and does not exist at Stripe",
			}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read dispute %s: %w", row.StripeDisputeID, err)
		}
		return c.compareOne(ctx, d)
	})
}

// isolate keeps one dispute that cannot be read from ending the comparison of all others. One that was seen is not
// compared again.
func (c *comparison) isolate(
	ctx context.Context, stripeID, subject string, compare func(context.Context) (*postgres.Violation, error),
) error {
	if c.seen[stripeID] {
		return nil
	}
	c.seen[stripeID] = true
	difference, err := compare(ctx)
	if errors.Is(err, stripe.ErrAway) && ctx.Err() == nil {
		if c.inARow++; c.inARow >= unansweredMax {
			return err
		}
		c.unanswered = append(c.unanswered, unanswered{subject, compare, err})
		return nil
	}
	c.inARow = 0
	return c.note(ctx, subject, difference, err)
}

// note adds a difference, if there is one, or a dispute that cannot be read. What it returns is about no dispute.
func (c *comparison) note(ctx context.Context, subject string, difference *postgres.Violation, err error) error {
	if err != nil {
		if !ofTheDispute(ctx, err) && !postgres.IsUnreadable(err) {
			return err
		}
		difference = &postgres.Violation{Subject: subject, Detail: "not compared: " + postgres.ErrorText(err)}
	}
	if difference != nil {
		c.differences = append(c.differences, *difference)
	}
	return nil
}

// compareUnanswered compares those without a response once more. If Stripe responds about everything else, one that
// it still does not respond about is a violation.
func (c *comparison) compareUnanswered(ctx context.Context) error {
	if len(c.unanswered) == 0 {
		return nil
	}
	if _, err := c.gateway.ListDisputes(ctx, stripe.Window{From: time.Now()}); err != nil {
		return fmt.Errorf("list disputes: %w", err)
	}
	for _, u := range c.unanswered {
		difference, err := u.compare(ctx)
		if errors.Is(err, stripe.ErrAway) && ctx.Err() == nil {
			difference = &postgres.Violation{
				Subject: u.subject, Detail: "not compared, Stripe gave no response twice: " + postgres.ErrorText(err),
			}
			err = nil
		}
		if err := c.note(ctx, u.subject, difference, err); err != nil {
			return err
		}
	}
	c.unanswered = nil
	return nil
}

// unread names the disputes without a response, for a comparison that was not completed.
func (c *comparison) unread() error {
	var all []error
	for _, u := range c.unanswered {
		all = append(all, u.err)
	}
	return errors.Join(all...)
}

func subject(row db.DisputesToCompareRow) string {
	return row.TenantID + " " + row.StripeDisputeID + " " + row.ID + " " + row.PaymentID
}

// compareOne is nil if a dispute of Stripe's is recorded as it is, or is not ours: of a tenant that was moved to another
// cell, for one.
func (s *Service) compareOne(ctx context.Context, d stripe.Dispute) (*postgres.Violation, error) {
	row, err := s.pool.DisputeOfStripeID(ctx, d.ID)
	if errors.Is(err, postgres.ErrNoRows) {
		return s.compareMissing(ctx, d)
	}
	if err != nil {
		return nil, fmt.Errorf("look for dispute %s: %w", d.ID, err)
	}
	if served, err := s.pool.TenantServedHere(ctx, row.TenantID); !served {
		return nil, err
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
	return &postgres.Violation{
		Subject: row.TenantID + " " + row.StripeDisputeID + " " + row.ID + " " + row.PaymentID,
		Detail:  "here " + shown + "; at Stripe " + atStripe,
	}, nil
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
	intent, err := s.gateway.GetIntent(ctx, stripe.NoTenant, d.IntentID)
	if errors.Is(err, stripe.ErrNoSuchObject) {
		return nil, nil
	}
	if err == nil {
		intent, err = payments.OwnIntent(ctx, s.pool.Queries, intent)
	}
	if err != nil {
		return nil, fmt.Errorf("read the intent of dispute %s: %w", d.ID, err)
	}
	if served, err := s.pool.TenantServedHere(ctx, intent.TenantID); !served {
		return nil, err
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
	if p.Status != db.PaymentStatusSucceeded {
		return nil, nil // That comparison shows the intent, until it is adopted or nothing is left of it.
	}
	return &postgres.Violation{
		Subject: p.TenantID + " " + d.ID + " " + p.ID,
		Detail:  fmt.Sprintf("%s at Stripe for %d %s, and missing here", d.Status, d.AmountMinor, d.Currency),
	}, nil
}
