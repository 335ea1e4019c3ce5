package shop

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// The promises of a checkout, as Violations looks for them once everything
// has come to rest.
const (
	SagasEnd        = "a checkout ends completed or compensated"
	UndoneOnce      = "what was done and had to be undone was undone, once, and nothing else was"
	NeverUnknown    = "nothing is undone while the payment may still turn out to be made"
	MoneyAsItEnded  = "completed means paid, compensated means that nothing is kept"
	StockAddsUp     = "what is reserved is what checkouts hold"
	StockAsItEnded  = "completed means consumed, compensated means released"
	OrderAsItEnded  = "completed means a paid order, compensated one that is closed"
	OneEventAtEnd   = "the end of a checkout is one event"
	StripeAsItEnded = "Stripe has charged once for what was completed and keeps nothing of what was compensated"
)

// Promises is how many promises Violations looks for.
const Promises = 9

var queries = map[string]string{
	SagasEnd: `SELECT id || ' is ' || status FROM checkouts WHERE status = 'processing'`,
	UndoneOnce: `SELECT c.id || ' ' || s.step || ' is ' || s.status FROM checkouts c
		JOIN checkout_steps s ON (s.tenant_id, s.checkout_id) = (c.tenant_id, c.id)
		LEFT JOIN checkout_steps u ON (u.tenant_id, u.checkout_id) = (c.tenant_id, c.id)
			AND (s.step, u.step) IN (('create_order', 'cancel_order'), ('reserve_stock', 'release_stock'), ('pay', 'refund'),
				('authorize', 'release_payment'), ('capture', 'refund'))
		WHERE c.status = 'compensated' AND s.step IN ('create_order', 'authorize', 'reserve_stock', 'pay', 'capture', 'notify')
			AND (s.status NOT IN ('compensated', 'failed', 'skipped')
			OR (s.status = 'compensated') <> (coalesce(u.status, 'skipped') = 'done'))`,
	NeverUnknown: `SELECT s.checkout_id || ' ' || s.step FROM checkout_steps s
		JOIN checkouts c ON (c.tenant_id, c.id) = (s.tenant_id, s.checkout_id)
		JOIN stripe_calls k ON k.tenant_id = c.tenant_id
		AND k.stripe_key IN (c.tenant_id || ':' || c.idempotency_key || ':confirm',
			c.tenant_id || ':' || c.idempotency_key || ':capture')
		WHERE s.step IN ('refund', 'release_stock', 'release_payment', 'cancel_order') AND s.status NOT IN ('pending', 'skipped')
		AND k.outcome IN ('sent', 'unknown')`,
	MoneyAsItEnded: `SELECT c.id || ' ' || coalesce(p.status::text, 'without payment') FROM checkouts c
		LEFT JOIN payments p ON (p.tenant_id, p.id) = (c.tenant_id, c.payment_id)
		WHERE (c.status = 'completed' AND p.status IS DISTINCT FROM 'succeeded')
			OR (c.status = 'compensated' AND (p.status IN ('processing', 'requires_action', 'authorized') OR (p.status = 'succeeded'
			AND p.amount_refunded_minor <> coalesce(p.captured_minor, p.amount_minor))))`,
	StockAddsUp: `SELECT s.sku || ' ' || s.reserved FROM stock s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		WHERE (r.tenant_id, r.sku) = (s.tenant_id, s.sku) AND r.status = 'held')`,
	StockAsItEnded: `SELECT r.checkout_id || ' ' || r.sku || ' is ' || r.status FROM reservations r
		JOIN checkouts c ON (c.tenant_id, c.id) = (r.tenant_id, r.checkout_id)
		WHERE (c.status = 'completed' AND r.status <> 'consumed') OR (c.status = 'compensated' AND r.status <> 'released')`,
	OrderAsItEnded: `SELECT c.id || ' ' || o.status FROM checkouts c
		JOIN orders o ON (o.tenant_id, o.id) = (c.tenant_id, c.order_id)
		WHERE (c.status = 'completed' AND o.status <> 'paid') OR (c.status = 'compensated'
		AND o.status NOT IN ('canceled', 'refunded'))`,
	OneEventAtEnd: `SELECT c.id || ' version ' || c.version FROM checkouts c
		LEFT JOIN outbox_events e ON (e.tenant_id, e.aggregate_id) = (c.tenant_id, c.id)
		WHERE (c.status = 'processing') <> (e.version IS NULL) OR (e.version IS NOT NULL AND (e.version <> 1
		OR e.type <> 'checkout.' || c.status))`,
}

// Querier is the pool, or a transaction that will be rolled back.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Violations asks both witnesses, the database and Stripe's effect log, which promises are broken. Each is
// named with what breaks it.
func Violations(t testing.TB, q Querier, sim *stripesim.Sim) (broken []string) {
	t.Helper()
	each := func(sql string, scan func(pgx.Rows) error) {
		rows, err := q.Query(context.Background(), sql)
		require.NoError(t, err, sql)
		defer rows.Close()
		for rows.Next() {
			require.NoError(t, scan(rows))
		}
		require.NoError(t, rows.Err(), sql)
	}
	for promise, query := range queries {
		each(query, func(rows pgx.Rows) error {
			var who string
			err := rows.Scan(&who)
			broken = append(broken, promise+": "+who)
			return err
		})
	}
	charges, kept := map[string]int{}, map[string]int64{}
	for _, e := range sim.Effects() {
		switch order := e.Metadata["order_id"]; e.Kind {
		case stripesim.EffectCharge:
			charges[order]++
			kept[order] += e.Amount
		case stripesim.EffectRefund:
			kept[order] -= e.Amount
		case stripesim.EffectRefundFailed: // It came back.
			kept[order] += e.Amount
		}
	}
	each(`SELECT c.status::text, c.order_id, o.amount_minor FROM checkouts c
		JOIN orders o ON (o.tenant_id, o.id) = (c.tenant_id, c.order_id)`, func(rows pgx.Rows) error {
		var status, order string
		var amount int64
		err := rows.Scan(&status, &order, &amount)
		if status == "completed" && (charges[order] != 1 || kept[order] != amount) || status == "compensated" &&
			kept[order] != 0 {
			broken = append(broken,
				fmt.Sprintf("%s: %s is %s, charged %d times, kept %d", StripeAsItEnded, order, status, charges[order],
					kept[order]))
		}
		return err
	})
	return broken
}

// RequireWhole fails the test unless every promise and every invariant holds. It is for when everything has come to
// rest. but are the ids of the invariants that the test itself has broken.
func (s Shop) RequireWhole(but ...string) {
	s.World.T.Helper()
	require.Empty(s.World.T, Violations(s.World.T, s.World.DB.Raw(), s.World.Sim))
	s.World.RequireSound()
	checks, err := s.World.DB.Invariants(context.Background())
	require.NoError(s.World.T, err)
	for _, check := range checks {
		if !slices.Contains(but, check.ID) {
			require.Empty(s.World.T, check.Rows, "%s %s", check.ID, check.Name)
		}
	}
}
