package payments

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
)

// auditOpenMax bounds the findings that an audit looks at again beyond its window.
const auditOpenMax = 10_000

// Comparison is the result of comparing Stripe's objects with our rows.
type Comparison struct {
	Findings []Finding
	// Drift is, for each currency seen, the amount in dispute in minor units: the sum
	// of the absolute drifts of its findings.
	Drift map[string]int64
}

// Compare compares every PaymentIntent and refund created since then, at Stripe or
// here, and every open finding of the reconciler. It changes nothing. A payment or
// refund that is still in progress is no finding; money that the reconciler would
// adopt is.
func Compare(ctx context.Context, pool *db.Pool, gateway Gateway, since time.Time) (Comparison, error) {
	result := Comparison{Drift: map[string]int64{}}
	found := map[string]bool{}
	note := func(j judgment) {
		f := j.finding
		if j.ruling != orphaned && j.ruling != moved && j.ruling != disagrees || found[f.TenantID+" "+f.ObjectID] {
			return
		}
		found[f.TenantID+" "+f.ObjectID] = true
		result.Findings = append(result.Findings, f)
		result.Drift[f.Currency] += max(f.DriftMinor, -f.DriftMinor)
	}
	c := comparer{
		pool: pool, gateway: gateway,
		saw:    func(currency string) { result.Drift[currency] += 0 },
		paged:  func(context.Context) error { return nil },
		intent: func(_ context.Context, _ Intent, j judgment) error { note(j); return nil },
		refund: func(_ context.Context, _ StripeRefund, j judgment) error { note(j); return nil },
	}
	if err := c.walk(ctx, since); err != nil {
		return result, err
	}
	open, err := pool.DiscrepanciesOpen(ctx, auditOpenMax)
	if err != nil {
		return result, fmt.Errorf("read the open findings: %w", err)
	}
	return result, c.again(ctx, open)
}
