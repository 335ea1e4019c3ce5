package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/plans"
)

// TestHotPathPlans holds the statements that run in batches to the rows that they are asked for. A new database has no
// statistics, its tables are small, and a connection keeps the plan that it makes then: one that looks as good on ten
// pages, and asks an index for less than it knows, reads every payment of a tenant an hour later. With statistics, and
// many rows, the plan is the same, as a test of this name shows by night.
func TestHotPathPlans(t *testing.T) {
	t.Parallel()
	plans.HotPathByIndex(t, dbtest.Fresh(t))
}

// TestConfirmablePaymentsAreRead by their own small index, whatever else the table holds; a payment that succeeds
// never enters it, so its update stays heap-only.
func TestConfirmablePaymentsAreRead(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec := plans.Executes(t, tx)
	exec(`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, intent_id, created_at)
		SELECT 'ten_1', 'pay_' || n, 'ord_' || n, 'k' || n, 1000, 'usd', 'pm_1', 1, 'pi_' || n, now()
		FROM generate_series(1, 2000) n`)
	heapOnly := func() (n int) {
		t.Helper()
		require.NoError(t, tx.QueryRow(t.Context(),
			`SELECT pg_stat_get_xact_tuples_hot_updated('payments'::regclass)`).Scan(&n))
		return n
	}
	exec(`UPDATE payments SET status = 'succeeded', charge_id = 'ch_1' WHERE id = 'pay_1'`)
	require.Equal(t, 1, heapOnly())

	exec("ANALYZE payments") // without statistics half of the rows are expected to be confirmable
	exec("SET LOCAL plan_cache_mode = force_generic_plan")
	exec("PREPARE list AS " + db.PaymentsConfirmable)
	defer func() { _, _ = tx.Exec(t.Context(), "DEALLOCATE list") }()
	got, err := tx.Conn().PgConn().Exec(t.Context(),
		"EXPLAIN EXECUTE list('', '-infinity', 'infinity', 20)").ReadAll()
	require.NoError(t, err)
	var plan []string
	for _, row := range got[0].Rows {
		plan = append(plan, string(row[0]))
	}
	all := strings.Join(plan, "\n")
	require.Contains(t, all, "payments_confirmable")
	require.NotContains(t, all, "Seq Scan", all)
}

// TestPaymentsAreFoundByTheirIntent: by an index if that is not the first of its order. Storing a first intent adds
// nothing to an index, so its update stays heap-only.
func TestPaymentsAreFoundByTheirIntent(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec := plans.Executes(t, tx)
	exec(`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, created_at)
		SELECT 'ten_1', 'pay_' || n, 'ord_' || n, 'k' || n, 1000, 'usd', 'pm_1', CASE WHEN n > 1990 THEN 2 ELSE 1 END, now()
		FROM generate_series(1, 2000) n`)
	for _, c := range []struct {
		id       string
		heapOnly int
	}{{"pay_1", 1}, {"pay_2000", 1}} {
		exec(`UPDATE payments SET intent_id = 'pi_' || id WHERE id = '` + c.id + `'`)
		var n int
		require.NoError(t, tx.QueryRow(t.Context(),
			`SELECT pg_stat_get_xact_tuples_hot_updated('payments'::regclass)`).Scan(&n))
		require.Equal(t, c.heapOnly, n, c.id)
	}
	exec("SET LOCAL plan_cache_mode = force_generic_plan")
	exec("PREPARE find AS " + db.PaymentOfIntentElsewhere)
	defer func() { _, _ = tx.Exec(t.Context(), "DEALLOCATE find") }()
	got, err := tx.Conn().PgConn().Exec(t.Context(),
		"EXPLAIN EXECUTE find('pay_~', 'pay_~~', 'pi_pay_2000', 'ten_1', 'ord_1')").ReadAll()
	require.NoError(t, err)
	var plan []string
	for _, row := range got[0].Rows {
		plan = append(plan, string(row[0]))
	}
	require.Contains(t, strings.Join(plan, "\n"), "payments_of_later_intents")
}
