package payments

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
)

// auditOpenMax bounds the findings that an audit looks at again beyond its window.
const auditOpenMax = 10_000

// Comparison is how Stripe's objects and our rows compare.
type Comparison struct {
	Findings []Finding
	// Drift is, for each currency that was met, what the two disagree about, in
	// minor units: the sum of what each finding is off by, whatever its sign.
	Drift map[string]int64
}

// Compare looks at every PaymentIntent and refund that was created since then,
// there or here, and at what the reconciler found earlier and could not settle.
// It changes nothing. Money on its way, which somebody works on, is no finding;
// money that the reconciler would adopt is.
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
	open, err := pool.FindingsOpen(ctx, auditOpenMax)
	if err != nil {
		return result, fmt.Errorf("read the open findings: %w", err)
	}
	return result, c.again(ctx, open)
}
