package reconcile

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// auditOpenMax bounds the findings that an audit looks at again beyond its window.
const auditOpenMax = 10_000

// Comparison is the result of comparing Stripe's objects with our rows.
type Comparison struct {
	Discrepancies []compare.Discrepancy
	// Drift is, for each currency seen, the amount in dispute in minor units: the sum
	// of the absolute drifts of its discrepancies.
	Drift map[string]int64
}

// Compare compares every PaymentIntent and refund created since then, at Stripe or
// here, every PaymentIntent that can still be paid, however old, and every open finding of the reconciler. It changes
// nothing. A payment or
// refund that is still in progress is no discrepancy; money that the reconciler would
// adopt is.
func Compare(
	ctx context.Context, pool *postgres.Pool, gateway payments.Gateway, service *payments.Service, since time.Time,
) (Comparison, error) {
	result := Comparison{Drift: map[string]int64{}}
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
	w := walker{
		pool: pool, gateway: gateway, service: service,
		onCompared: func(currency string) { result.Drift[currency] += 0 },
		afterPage:  func(context.Context) error { return nil },
		intent:     func(_ context.Context, _ stripe.Intent, d compare.Difference) error { note(d); return nil },
		refund:     func(_ context.Context, _ stripe.Refund, d compare.Difference) error { note(d); return nil },
		onUnreadable: func(ctx context.Context, object string, row localRef, why error) error {
			if !ofTheObject(ctx, why) {
				return why
			}
			note(compare.Difference{Result: compare.Differs, Discrepancy: unreadable(object, row, why)})
			return nil
		},
	}
	if err := w.walk(ctx, since); err != nil {
		return result, err
	}
	for after, more := "", true; more; {
		last, err := w.walkConfirmable(ctx, time.Time{}, endOfTime, after, confirmableMax)
		if err != nil {
			return result, err
		}
		if more = last != nil; more {
			after = *last
		}
	}
	open, err := pool.DiscrepanciesOpen(ctx, auditOpenMax)
	if err != nil {
		return result, fmt.Errorf("read the open discrepancies: %w", err)
	}
	return result, w.recheck(ctx, open)
}
