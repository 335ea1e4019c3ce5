package db_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/db/dbtest"
)

// TestHotPathPlans holds the statements of a payment to one row each. A new
// database has no statistics, its tables are small, and a connection keeps the
// plan that it makes then: one that looks as good on ten pages, and asks an index
// for less than it knows, reads every payment of a tenant an hour later.
func TestHotPathPlans(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	conn, err := pool.Raw().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)

	parameter := regexp.MustCompile(`\$(\d+)`)
	scan := regexp.MustCompile(`(Seq Scan|Index Scan|Index Only Scan|Bitmap Index Scan)(?: using (\S+))? on (\S+)`)
	whole := map[string][]string{ // what an index must be asked for
		"idempotency_keys_pkey": {"tenant_id", "key"}, "orders_pkey": {"tenant_id", "id"}, "payments_pkey": {"tenant_id", "id"},
		"stripe_calls_pkey": {"tenant_id", "stripe_key"}, "one_live_payment_per_order": {"order_id"}, "payments_of_order": {"order_id"},
	}
	scans := 0
	for i, sql := range db.HotPath() {
		most := 0
		for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
			var n int
			_, err := fmt.Sscan(m[1], &n)
			require.NoError(t, err)
			most = max(most, n)
		}
		_, err := conn.Conn().PgConn().Exec(t.Context(), fmt.Sprintf("PREPARE s%d AS %s", i, sql)).ReadAll()
		require.NoError(t, err)
		got, err := conn.Conn().PgConn().Exec(t.Context(), fmt.Sprintf("EXPLAIN EXECUTE s%d(%s)", i, strings.TrimSuffix(strings.Repeat("NULL,", most), ","))).ReadAll()
		require.NoError(t, err)
		var plan []string
		for _, row := range got[0].Rows {
			plan = append(plan, string(row[0]))
		}
		all := strings.Join(plan, "\n")
		for n, line := range plan {
			m := scan.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			scans++
			columns, known := whole[m[2]]
			require.True(t, m[1] == "Index Scan" && known, "%s\nin\n%s", line, all)
			for _, column := range columns {
				require.Contains(t, plan[n+1], "("+column+" = ", "%s\nin\n%s", line, all)
			}
		}
	}
	require.Greater(t, scans, 8, "the plans were not read")
}
