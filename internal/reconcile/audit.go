package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

const (
	auditOpenMax = 10_000 // findings that an audit looks at again beyond its window
	// auditAwayMax is how many objects in a row may be without a response before Stripe is taken to be away. It is more
	// than the reconciler's, because what the audit leaves out is not read again in a minute.
	auditAwayMax = 10
)

// Comparison is the result of comparing Stripe's objects with our rows.
type Comparison struct {
	Discrepancies []compare.Discrepancy
	// Drift is, for each currency seen, the amount in dispute in minor units: the sum
	// of the absolute drifts of its discrepancies.
	Drift map[string]int64
	// PassedBy is, for each currency, what PaymentIntents of tenants that are not here have taken.
	PassedBy map[string]PassedBy
}

// PassedBy is what this database cannot compare.
type PassedBy struct {
	Objects int
	Minor   int64
}

// Compare compares every PaymentIntent and refund created since then, at Stripe or
// here, every PaymentIntent that can still be paid, however old, and every open finding of the reconciler. It changes
// nothing. A payment or
// refund that is still in progress is no discrepancy; money that the reconciler would
// adopt is. So is an object that Stripe refuses to show. One that Stripe gives no response about may be readable
// tomorrow: it is in the error, and all others are compared. The result is what was found, with an error as well.
func Compare(
	ctx context.Context, pool *postgres.Pool, gateway payments.Gateway, service *payments.Service, since time.Time,
) (Comparison, error) {
	result := Comparison{Drift: map[string]int64{}, PassedBy: map[string]PassedBy{}}
	found := map[string]bool{}
	note := func(d compare.Difference) {
		f := d.Discrepancy
		disagrees := d.Result == compare.Adoptable || d.Result == compare.StatusChanged || d.Result == compare.Differs
		if !disagrees || found[f.TenantID+" "+f.ObjectID] {
			return
		}
		found[f.TenantID+" "+f.ObjectID] = true
		result.Discrepancies = append(result.Discrepancies, f)
		result.Drift[f.Currency] += max(f.DriftMinor, -f.DriftMinor)
	}
	unanswered, inARow := map[string]error{}, 0
	visit := func(d compare.Difference) error { inARow = 0; note(d); return nil }
	w := walker{
		pool: pool, gateway: gateway, service: service,
		onCompared: func(currency string) { result.Drift[currency] += 0 },
		onPassedBy: func(_ context.Context, object localRef, minor int64) error {
			sum := result.PassedBy[object.currency]
			result.PassedBy[object.currency] = PassedBy{sum.Objects + 1, sum.Minor + minor}
			return nil
		},
		afterPage: func(context.Context) error { return nil },
		intent:    func(_ context.Context, _ stripe.Intent, d compare.Difference) error { return visit(d) },
		refund:    func(_ context.Context, _ stripe.Refund, d compare.Difference) error { return visit(d) },
		onUnreadable: func(ctx context.Context, object string, row localRef, why error) error {
			if errors.Is(why, stripe.ErrAway) {
				unanswered[row.objectID] = fmt.Errorf("read %s: %w", row.objectID, why)
				if inARow++; inARow < auditAwayMax {
					return nil
				}
			}
			if !ofTheObject(ctx, why) {
				return why
			}
			return visit(compare.Difference{Result: compare.Differs, Discrepancy: unreadable(object, row, why)})
		},
	}
	err := w.audit(ctx, since)
	for _, id := range slices.Sorted(maps.Keys(unanswered)) {
		err = errors.Join(err, unanswered[id])
	}
	return result, err
}

// audit goes through everything that Compare compares.
func (c *walker) audit(ctx context.Context, since time.Time) error {
	if err := c.walk(ctx, since); err != nil {
		return err
	}
	for after, more := "", true; more; {
		last, err := c.walkConfirmable(ctx, time.Time{}, endOfTime, after, confirmableMax)
		if err != nil {
			return err
		}
		if more = last != nil; more {
			after = *last
		}
	}
	open, err := c.pool.DiscrepanciesOpen(ctx, auditOpenMax)
	if err != nil {
		return fmt.Errorf("read the open discrepancies: %w", err)
	}
	return c.recheck(ctx, open)
}
