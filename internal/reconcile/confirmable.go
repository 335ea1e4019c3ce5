package reconcile

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/postgres"
)

// An intent is listed by when it was created, and may be paid at any time after that: by a browser that has its
// client secret, or by another program. So the intents of payments that have ended without success are read one by
// one, for as long as they can be confirmed, whatever their age. They stay few: an intent that no payment has used
// for a day is canceled.

// The ages of a payment by which its intent is read again: every few minutes, or daily.
const (
	young    = "young"
	old      = "old"
	youngFor = 48 * time.Hour
)

const (
	// confirmableMax is how many intents one run reads, and confirmablePause the time until the next continues. So a
	// long list delays no other window for more than a minute, and takes ten calls a second of what Stripe allows:
	// two thousand intents every few minutes. Of more than that, each is read less often.
	confirmableMax   = 200
	confirmablePause = 10 * time.Second
	confirmableBatch = 20 // read between two renewals of the lease
)

// scanConfirmable reads the intents of a window from where the last run stopped. It returns where the next
// continues, or nil if there are no more.
func scanConfirmable(
	ctx context.Context, c *walker, w scanWindow, claim db.ReconcileClaimRow,
) (*string, error) {
	from, until := claim.Now.Add(-youngFor), endOfTime
	if w.confirmable == old {
		from, until = time.Time{}, from
	}
	return c.walkConfirmable(ctx, from, until, postgres.Deref(claim.Position), confirmableMax)
}

// walkConfirmable reads up to limit intents that can still be confirmed, of payments created from from until until,
// beginning after a payment. It returns the last payment, or nil if there are no more after it.
func (c *walker) walkConfirmable(
	ctx context.Context, from, until time.Time, after string, limit int,
) (*string, error) {
	for read := 0; read < limit; {
		rows, err := c.pool.PaymentsConfirmable(ctx, db.PaymentsConfirmableParams{
			AfterID: after, FromAt: from, UntilAt: until, LimitRows: confirmableBatch,
		})
		if err != nil {
			return nil, fmt.Errorf("read the payments whose intents can be confirmed: %w", err)
		}
		for _, p := range rows {
			c.onCompared(p.Currency)
			if err := readAndVisit(ctx, c, c.intents(), localRef{
				OrderRef: compare.OrderRef{TenantID: p.TenantID, OrderID: p.OrderID}, id: p.ID, objectID: *p.IntentID,
				intentID: *p.IntentID, currency: p.Currency,
			}); err != nil {
				return nil, err
			}
			after = p.ID
		}
		if err := c.afterPage(ctx); err != nil {
			return nil, err
		}
		if len(rows) < confirmableBatch {
			return nil, nil
		}
		read += len(rows)
	}
	return &after, nil
}
