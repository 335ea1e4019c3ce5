package checkout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// The promises of a checkout, as sagaViolations looks for them once everything
// has come to rest.
const (
	sagasEnd        = "a checkout ends completed or compensated"
	undoneOnce      = "what was done and had to be undone was undone, once, and nothing else was"
	neverUnknown    = "nothing is undone while the payment may still turn out to be made"
	moneyAsItEnded  = "completed means paid, compensated means that nothing is kept"
	stockAddsUp     = "what is reserved is what checkouts hold"
	stockAsItEnded  = "completed means consumed, compensated means released"
	orderAsItEnded  = "completed means a paid order, compensated one that is closed"
	oneEventAtEnd   = "the end of a checkout is one event"
	stripeAsItEnded = "Stripe has charged once for what was completed and keeps nothing of what was compensated"
)

var sagaQueries = map[string]string{
	sagasEnd: `SELECT id || ' is ' || status FROM checkouts WHERE status = 'processing'`,
	undoneOnce: `SELECT c.id || ' ' || s.step || ' is ' || s.status FROM checkouts c
		JOIN checkout_steps s ON (s.tenant_id, s.checkout_id) = (c.tenant_id, c.id)
		LEFT JOIN checkout_steps u ON (u.tenant_id, u.checkout_id) = (c.tenant_id, c.id)
			AND (s.step, u.step) IN (('create_order', 'cancel_order'), ('reserve_stock', 'release_stock'), ('pay', 'refund'),
				('authorize', 'release_payment'), ('capture', 'refund'))
		WHERE c.status = 'compensated' AND s.step IN ('create_order', 'authorize', 'reserve_stock', 'pay', 'capture', 'notify')
			AND (s.status NOT IN ('compensated', 'failed', 'skipped')
			OR (s.status = 'compensated') <> (coalesce(u.status, 'skipped') = 'done'))`,
	neverUnknown: `SELECT s.checkout_id || ' ' || s.step FROM checkout_steps s
		JOIN checkouts c ON (c.tenant_id, c.id) = (s.tenant_id, s.checkout_id)
		JOIN stripe_calls k ON k.tenant_id = c.tenant_id
		AND k.stripe_key IN (c.tenant_id || ':' || c.idempotency_key || ':confirm',
			c.tenant_id || ':' || c.idempotency_key || ':capture')
		WHERE s.step IN ('refund', 'release_stock', 'release_payment', 'cancel_order') AND s.status NOT IN ('pending', 'skipped')
		AND k.outcome IN ('sent', 'unknown')`,
	moneyAsItEnded: `SELECT c.id || ' ' || coalesce(p.status::text, 'without payment') FROM checkouts c
		LEFT JOIN payments p ON (p.tenant_id, p.id) = (c.tenant_id, c.payment_id)
		WHERE (c.status = 'completed' AND p.status IS DISTINCT FROM 'succeeded')
			OR (c.status = 'compensated' AND (p.status IN ('processing', 'requires_action', 'authorized') OR (p.status = 'succeeded'
			AND p.amount_refunded_minor <> coalesce(p.captured_minor, p.amount_minor))))`,
	stockAddsUp: `SELECT s.sku || ' ' || s.reserved FROM stock s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		WHERE (r.tenant_id, r.sku) = (s.tenant_id, s.sku) AND r.status = 'held')`,
	stockAsItEnded: `SELECT r.checkout_id || ' ' || r.sku || ' is ' || r.status FROM reservations r
		JOIN checkouts c ON (c.tenant_id, c.id) = (r.tenant_id, r.checkout_id)
		WHERE (c.status = 'completed' AND r.status <> 'consumed') OR (c.status = 'compensated' AND r.status <> 'released')`,
	orderAsItEnded: `SELECT c.id || ' ' || o.status FROM checkouts c
		JOIN orders o ON (o.tenant_id, o.id) = (c.tenant_id, c.order_id)
		WHERE (c.status = 'completed' AND o.status <> 'paid') OR (c.status = 'compensated'
		AND o.status NOT IN ('canceled', 'refunded'))`,
	oneEventAtEnd: `SELECT c.id || ' version ' || c.version FROM checkouts c
		LEFT JOIN outbox_events e ON (e.tenant_id, e.aggregate_id) = (c.tenant_id, c.id)
		WHERE (c.status = 'processing') <> (e.version IS NULL) OR (e.version IS NOT NULL AND (e.version <> 1
		OR e.type <> 'checkout.' || c.status))`,
}

// querier is the pool, or a transaction that will be rolled back.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// sagaViolations asks both witnesses, the database and Stripe's effect log,
// which promises are broken.
func sagaViolations(t testing.TB, q querier, sim *stripesim.Sim) (broken []string) {
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
	for promise, query := range sagaQueries {
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
				fmt.Sprintf("%s: %s is %s, charged %d times, kept %d", stripeAsItEnded, order, status, charges[order],
					kept[order]))
		}
		return err
	})
	return broken
}

// requireWhole is for when everything has come to rest. but are checks that the test itself has made fail.
func (s shop) requireWhole(but ...string) {
	s.w.T.Helper()
	require.Empty(s.w.T, sagaViolations(s.w.T, s.w.DB.Raw(), s.w.Sim))
	s.w.RequireSound()
	checks, err := s.w.DB.Invariants(context.Background())
	require.NoError(s.w.T, err)
	for _, check := range checks {
		if !slices.Contains(but, check.ID) {
			require.Empty(s.w.T, check.Rows, "%s %s", check.ID, check.Name)
		}
	}
}

// A judge who lets everything pass finds every test green. So each promise is
// broken by hand here, with the database's own guards switched off.
func TestCheckout_TheAuditSees(t *testing.T) {
	t.Parallel()
	s := newShop(t, world.LocalOptions{})
	done, undone := sagaOf(t, s.checkout("done", twoTeas("pm_card_visa"))),
		sagaOf(t, s.checkout("declined", twoTeas("pm_card_visa_chargeDeclined")))
	require.Equal(t, allDone, done.steps())
	require.Equal(t, allUndone, undone.steps())
	s.requireWhole()

	breaks := map[string][]string{
		sagasEnd: {`UPDATE checkouts SET status = 'processing', version = 0 WHERE id = DONE`},
		undoneOnce: {
			`UPDATE checkout_steps SET status = 'done' WHERE checkout_id = UNDONE AND step = 'reserve_stock'`,
			`UPDATE checkout_steps SET status = 'running' WHERE checkout_id = UNDONE AND step = 'release_stock'`,
			`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE checkout_id = UNDONE
				AND step = 'refund'`,
		},
		neverUnknown: {`UPDATE stripe_calls SET outcome = 'unknown' WHERE stripe_key LIKE '%:declined:confirm'`},
		moneyAsItEnded: {
			`UPDATE payments SET status = 'failed', failure_code = 'x' WHERE id = (SELECT payment_id FROM checkouts
				WHERE id = DONE)`,
			`UPDATE payments SET status = 'succeeded', failure_code = NULL WHERE id = (SELECT payment_id FROM checkouts
				WHERE id = UNDONE)`,
		},
		stockAddsUp: {`UPDATE stock SET reserved = reserved + 1`},
		stockAsItEnded: {`UPDATE reservations SET status = 'consumed' WHERE checkout_id = UNDONE`,
			`UPDATE reservations SET status = 'released' WHERE checkout_id = DONE`},
		orderAsItEnded: {`UPDATE orders SET status = 'open' WHERE id = (SELECT order_id FROM checkouts WHERE id = UNDONE)`},
		oneEventAtEnd: {`UPDATE outbox_events SET version = 2 WHERE aggregate_id = DONE`,
			`DELETE FROM outbox_events WHERE aggregate_id = UNDONE`},
		stripeAsItEnded: {`UPDATE checkouts SET order_id = (SELECT order_id FROM checkouts WHERE id = DONE)
			WHERE id = UNDONE`},
	}
	require.Len(t, breaks, len(sagaQueries)+1, "a promise that nobody breaks")
	for promise, ways := range breaks {
		for _, sql := range ways {
			require.Contains(t,
				s.brokenBy(strings.NewReplacer("UNDONE", "'"+undone.ID+"'", "DONE", "'"+done.ID+"'").Replace(sql)),
				promise+": ", sql)
		}
	}
}

// brokenBy is what the audit sees after a statement that no guard refused. It
// is rolled back.
func (s shop) brokenBy(sql string) string {
	t := s.w.T
	t.Helper()
	tx, err := s.w.DB.Raw().Begin(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	for _, table := range []string{"checkouts", "checkout_steps", "payments", "orders", "reservations", "stripe_call_rows",
		"outbox_events"} {
		_, err = tx.Exec(context.Background(), "ALTER TABLE "+table+" DISABLE TRIGGER USER")
		require.NoError(t, err)
	}
	tag, err := tx.Exec(context.Background(), sql)
	require.NoError(t, err, sql)
	require.NotZero(t, tag.RowsAffected(), sql)
	return strings.Join(sagaViolations(t, tx, s.w.Sim), "\n")
}
