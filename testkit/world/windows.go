package world

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

// windows are the names of what the reconciler reads.
var windows = []string{"recent", "days", "month", "refunds_young", "refunds", "confirmable", "confirmable_old"}

// Begun is when the attempt made its order, less a second, because Stripe's times have no fractions. What is older
// is of other attempts.
func (a *Attempt) Begun() (at time.Time) {
	a.Helper()
	order, err := a.DB.OrderGet(context.Background(), db.OrderGetParams{TenantID: a.Tenant.ID, ID: a.Order})
	require.NoError(a, err)
	return order.CreatedAt.Add(-time.Second)
}

// ReadsWindow is the Run of a scene in which the reconciler reads one window, as if no other were due and Stripe had
// nothing that is older than the attempt.
func ReadsWindow(name string) func(a *Attempt) {
	return func(a *Attempt) {
		a.Exec(`INSERT INTO reconciliation_windows (name, next_at) SELECT unnest($1::text[]), 'infinity'
			ON CONFLICT (name) DO UPDATE SET next_at = 'infinity'`, windows)
		a.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity', leased_until = '-infinity', position = NULL,
			covered_through = $2::timestamptz + interval '5 minutes' WHERE name = $1`, name, a.Begun())
		_, err := a.Reconciler.RunOnce(context.Background())
		a.Failed(err)
	}
}

// RequirePaid fails the test unless the attempt's order was charged once and is paid.
func (a *Attempt) RequirePaid() {
	require.Equal(a, "paid", a.Text(`SELECT status FROM orders WHERE id = $1`, a.Order))
	require.Equal(a, 1, a.Sim.ChargeCount(a.Order))
	require.Equal(a, 1, a.Count(`SELECT count(*) FROM payments WHERE order_id = $1 AND status = 'succeeded'`, a.Order))
}

// RequireRoundGoesOn fails the test unless a round reads the second window when another process claims the first window after
// the round has looked for windows that are due.
func RequireRoundGoesOn(t *testing.T, first, second string, round func(api *Local) (int, error)) {
	t.Helper()
	w, api, proxy := Proxied(t, LocalOptions{})
	release := make(chan struct{})
	looked := proxy.Hold("name: ReconcileDue ", release)
	type result struct {
		n   int
		err error
	}
	ended := make(chan result, 1)
	go func() {
		n, err := round(api)
		ended <- result{n, err}
	}()
	looked.Await(t)
	w.Exec(`INSERT INTO reconciliation_windows (name, leased_until) VALUES ($1, 'infinity')`, first)
	close(release)
	require.Equal(t, result{n: 1}, <-ended)
	require.Equal(t, second, w.Text(`SELECT name FROM reconciliation_windows WHERE name <> $1`, first))
}
