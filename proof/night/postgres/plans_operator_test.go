package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/plans"
)

// TestAuthorizationsAndSearchesReadLittle: the operator's page and the metrics look at what is held and search for what
// Stripe or a customer named, however many payments there are. The indexes cost an update of a payment that is not
// authorized first nothing: it stays heap-only (TestConfirmablePaymentsAreRead).
func TestAuthorizationsAndSearchesReadLittle(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	exec("ALTER TABLE payments DISABLE TRIGGER USER")
	// Three are authorized, three expired, and three are of one customer.
	exec(`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, intent_id, charge_id, created_at, status, manual_capture, capture_before, failure_code,
			intent_closed)
		SELECT 'ten_' || n % 2, 'pay_' || n, 'ord_' || n, 'k' || n, 1000, 'usd', 'pm_1', 1, 'pi_' || n, 'ch_' || n, now(),
			CASE WHEN n <= 3 THEN 'authorized' WHEN n <= 6 THEN 'canceled' ELSE 'succeeded' END::payment_status, n <= 6,
			CASE WHEN n <= 3 THEN now() + n * interval '1 hour' END,
			CASE WHEN n BETWEEN 4 AND 6 THEN 'authorization_expired' END,
			n BETWEEN 4 AND 6
		FROM generate_series(1, 40000) n`)
	exec(`INSERT INTO orders (tenant_id, id, currency, items, amount_minor, created_at, customer_reference)
		SELECT 'ten_1', 'ord_' || n, 'usd', '[]', 1000, now(), CASE WHEN n <= 3 THEN 'Ann' WHEN n % 2 = 0 THEN 'c' || n END
		FROM generate_series(1, 40000) n`)
	exec("ALTER TABLE refunds DISABLE TRIGGER USER")
	exec(`INSERT INTO refunds (tenant_id, id, payment_id, order_id, idempotency_key, stripe_key, amount_minor, currency,
			created_at, stripe_refund_id, origin)
		SELECT 'ten_1', 'rfd_' || n, 'pay_' || n, 'ord_' || n, 'r' || n, 'ten_1:r' || n, 1, 'usd', now(), 're_' || n, 'api'
		FROM generate_series(1, 20000) n`)
	for _, c := range []struct{ name, sql, execute, index, rows string }{
		{"OperatorAuthorizations", db.OperatorAuthorizations, "EXECUTE s('24 hours', 50)", "payments_authorized", "rows=3"},
		{"OperatorAuthorizationCounts", db.OperatorAuthorizationCounts, "EXECUTE s('24 hours', 5000)",
			"payments_authorized", "rows=3"},
		{"OperatorAuthorizationsExpired", db.OperatorAuthorizationsExpired, "EXECUTE s(5000, 50)", "payments_uncaptured", "rows=3"},
		{"AuthorizationStats", db.AuthorizationStats, "EXECUTE s", "payments_authorized", "rows=3"},
		{"OperatorFindReference", db.OperatorFindReference, "EXECUTE s('Ann', 50)", "orders_of_reference", "rows=3"},
		{"OperatorFindRefund", db.OperatorFindRefund, "EXECUTE s('re_77')", "one_row_per_stripe_refund", "rows=1"},
	} {
		for _, analyze := range []bool{false, true} {
			if analyze {
				exec("ANALYZE")
			}
			for _, mode := range []string{plans.Generic, plans.Custom} {
				read, plan := plans.Explained(t, pool, mode, c.sql, c.execute)
				require.Contains(t, plan, c.index, "%s, analyzed %t\n%s", c.name, analyze, plan)
				require.Contains(t, plan, c.rows, "%s, analyzed %t\n%s", c.name, analyze, plan)
				require.Less(t, read, 200, "%s, analyzed %t\n%s", c.name, analyze, plan)
			}
		}
	}
	// What has no index is searched among the newest of each tenant.
	for _, mode := range []string{plans.Generic, plans.Custom} {
		read, plan := plans.Explained(t, pool, mode, db.OperatorFindAtStripe, "EXECUTE s('ch_0', '{ten_0,ten_1}', 200)")
		require.Contains(t, plan, "payments_pkey", plan)
		require.NotContains(t, plan, "Seq Scan on payments", plan)
		require.Contains(t, plan, "rows=400", plan)
		require.Less(t, read, 600, plan)
	}
}
