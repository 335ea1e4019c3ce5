package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/plans"
)

// TestListedStatusesKeepPaymentsHeapOnly: a payment that succeeds, and its order, never enter the indexes of the lists.
func TestListedStatusesKeepPaymentsHeapOnly(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec := plans.Executes(t, tx)
	exec(`INSERT INTO orders (tenant_id, id, currency, amount_minor, items, created_at, customer_reference)
		VALUES ('ten_1', 'ord_1', 'usd', 1000, '[]', now(), 'ann'), ('ten_1', 'ord_2', 'usd', 1000, '[]', now(), 'ann')`)
	exec(`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, created_at)
		VALUES ('ten_1', 'pay_1', 'ord_1', 'k', 1000, 'usd', 'pm_1', 1, now())`)
	exec(`UPDATE payments SET intent_id = 'pi_1', confirm_sent_at = now()`)
	exec(`UPDATE payments SET status = 'succeeded', version = 2, charge_id = 'ch_1'`)
	exec(`UPDATE orders SET status = 'paid', version = 2, payment_id = 'pay_1' WHERE id = 'ord_1'`)
	var orders, payments int
	heapOnly := func() {
		t.Helper()
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_hot_updated('orders'::regclass),
			pg_stat_get_xact_tuples_hot_updated('payments'::regclass)`).Scan(&orders, &payments))
	}
	heapOnly()
	require.Equal(t, []int{1, 2}, []int{orders, payments})
	exec(`UPDATE orders SET status = 'canceled', version = 2 WHERE id = 'ord_2'`)
	heapOnly()
	require.Equal(t, 1, orders, "one that is canceled enters its index")
}

// TestConditionOfAnIndexStaysInAQuery: PostgreSQL 17 takes IS NOT NULL on a column that is never null out of a query,
// which then implies no such condition of an index, and does not use it.
func TestConditionOfAnIndexStaysInAQuery(t *testing.T) {
	t.Parallel()
	var unused []string
	require.NoError(t, dbtest.Fresh(t).Raw().QueryRow(t.Context(), `SELECT array_agg(i.indexrelid::regclass || ': ' || a.attname)
		FROM pg_index i
		JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'public'::regnamespace
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0 AND a.attnotnull
		WHERE pg_get_expr(i.indpred, i.indrelid) ~ ('\m' || a.attname || '"? IS NOT NULL')`).Scan(&unused))
	require.Empty(t, unused)
}
