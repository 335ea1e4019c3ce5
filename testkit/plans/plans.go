// Package plans reads the plans that PostgreSQL makes of the service's statements: which index a statement asks for what,
// and how many pages it reads.
package plans

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// HotPathByIndex checks the plans of the statements that run in batches, on the connections of the batches: each asks an
// index for a row by its whole key.
func HotPathByIndex(t *testing.T, pool *postgres.Pool) {
	t.Helper()
	parameter := regexp.MustCompile(`\$(\d+)`)
	scan := regexp.MustCompile(`(Seq Scan|Index Scan|Index Only Scan|Bitmap \w+ Scan)(?: using (\S+))? on (\S+)`)
	whole := map[string][]string{ // what an index must be asked for
		"idempotency_keys_pkey": {"tenant_id", "key"}, "orders_pkey": {"tenant_id", "id"},
		"payments_pkey": {"tenant_id", "id"}, "refunds_pkey": {"tenant_id", "id"},
		"stripe_call_rows_pkey": {"tenant_id", "stripe_key"}, "one_live_payment_per_order": {"order_id"},
		"lives_follow_each_other": nil, // a database has few lives
	}
	statements := append(postgres.HotPath(), db.OrderToPay, db.KeyRead, db.OrdersRead, db.PaymentsRead, db.RefundsRead,
		postgres.WebhookIntake()) // which reads no table
	scans := 0
	for i, sql := range statements {
		most := 0
		for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
			var n int
			_, err := fmt.Sscan(m[1], &n)
			require.NoError(t, err)
			most = max(most, n)
		}
		plan, err := pool.PlanOfBatch(t.Context(), fmt.Sprintf("PREPARE s%d AS %s", i, sql),
			fmt.Sprintf("EXPLAIN EXECUTE s%d(%s)", i, strings.TrimSuffix(strings.Repeat("NULL,", most), ",")))
		require.NoError(t, err)
		all := strings.Join(plan, "\n")
		require.NotRegexp(t, "Hash|Merge", all)
		for n, line := range plan {
			m := scan.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			scans++
			columns, known := whole[m[2]]
			require.True(t, strings.HasPrefix(m[1], "Index") && known, "%s\nin\n%s", line, all)
			for _, column := range columns {
				require.Contains(t, plan[n+1], "("+column+" = ", "%s\nin\n%s", line, all)
			}
		}
	}
	require.Greater(t, scans, 12, "the plans were not read")
}

// Executes returns how to run a statement that has no result.
func Executes(t *testing.T, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) func(sql string) {
	t.Helper()
	return func(sql string) {
		t.Helper()
		_, err := on.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

// The modes of Explained.
const (
	Generic = "force_generic_plan" // a plan for any parameters, as where connections keep it
	Custom  = "force_custom_plan"  // a plan for these parameters: what PostgreSQL prefers if it is cheaper
)

// Explained is how many pages a statement read as the service, under the policies, and its plan. What it wrote is rolled
// back.
func Explained(t *testing.T, pool *postgres.Pool, mode, sql, execute string) (read int, plan string) {
	t.Helper()
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	run := func(sql string) []*pgconn.Result {
		t.Helper()
		got, err := tx.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
		return got
	}
	run("SET LOCAL plan_cache_mode = " + mode)
	run("SET LOCAL ROLE payonce_service; SET LOCAL payonce.tenants = '*'")
	run("PREPARE s AS " + sql)
	defer func() { _, _ = tx.Exec(t.Context(), "DEALLOCATE s") }()
	var lines []string
	for _, row := range run("EXPLAIN (ANALYZE, BUFFERS) " + execute)[0].Rows {
		lines = append(lines, string(row[0]))
	}
	plan = strings.Join(lines, "\n")
	m := regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`).FindStringSubmatch(plan)
	require.NotNil(t, m, plan) // those of the whole statement come first
	for _, part := range m[1:] {
		var n int
		_, _ = fmt.Sscan(part, &n)
		read += n
	}
	return read, plan
}
