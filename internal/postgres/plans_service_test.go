package postgres_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// TestPoliciesCostNoIndex: the service's role asks each index for as much as a superuser does, whom the policies do not
// bind. PostgreSQL tests a condition before the policy, in an index, only if it is certain that the condition reveals
// nothing: one with a coalesce, a cast to text or a function is no look-up for the service, and reads every row of the
// tenant instead (contain_leaked_vars in PostgreSQL's clauses.c).
func TestPoliciesCostNoIndex(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	conn, err := pool.Raw().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	otherwise := map[string]string{
		"APIKeyAuthenticate":  "the other table is asked first, by its whole key",
		"CellSet":             "the owner's",
		"CheckoutStepAdvance": "a checkout has few steps", // part: checkouts
		"DataKeyIntroduce":    "the owner's",
		"DataKeysRest":        "the owner's",
		"DataKeysResume":      "the owner's",
		"DisputeStats":        "a look-up by the whole key", // part: disputes
		"EventsAfterConsumer": "a look-up by the whole key", // part: consumers
		"LifeBegin":           "the owner's",
		"ReconcileOrders":     "of a checkout; on an empty table its indexes cost the same", // part: checkouts
		"RefundOtherInFlight": "a payment has few refunds, and is asked for",
		"RefundsOwedDue":      "a look-up by the whole key",
		"ReconcileRefunded":   "the index by time",
		"ReservationOverdue":  "a checkout has few steps", // part: checkouts
		"ReservationsStuck":   "a checkout has few steps", // part: checkouts
	}
	looked := 0
	for name, sql := range queryTexts(t) {
		if otherwise[name] != "" || strings.HasPrefix(name, "Invariant") { // which read whole tables, and join them by hash
			continue
		}
		t.Run(name, func(t *testing.T) {
			asSuperuser, asService := indexConditions(t, conn.Conn(), sql, false), indexConditions(t, conn.Conn(), sql, true)
			looked += len(asSuperuser)
			for _, condition := range asSuperuser {
				if !slices.Contains(asService, condition) {
					t.Errorf("%s\n  as the service:\n%s", condition, strings.Join(asService, "\n"))
				}
			}
		})
	}
	require.Greater(t, looked, 80, "the plans were not read")
}

// queryTexts is the SQL of each query, as sqlc has it in package db.
func queryTexts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../db/*.sql.go")
	require.NoError(t, err)
	texts := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			c, ok := n.(*ast.ValueSpec)
			if !ok || len(c.Values) != 1 {
				return true
			}
			literal, ok := c.Values[0].(*ast.BasicLit)
			if ok && literal.Kind == token.STRING && strings.Contains(literal.Value, "-- name: ") {
				texts[c.Names[0].Name], err = strconv.Unquote(literal.Value)
				require.NoError(t, err)
			}
			return true
		})
	}
	require.Greater(t, len(texts), 50)
	return texts
}

// indexConditions are those of a statement's plan, whatever the values: each index with what it is asked for.
func indexConditions(t *testing.T, conn *pgx.Conn, sql string, asService bool) (list []string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()); _, _ = conn.Exec(t.Context(), "DEALLOCATE s") }()
	run := func(sql string) (lines []string) {
		t.Helper()
		got, err := tx.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
		for _, row := range got[0].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	run(`SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL payonce.tenants = '*'`)
	if asService {
		run("SET LOCAL ROLE payonce_service")
	}
	run("PREPARE s AS " + sql)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(),
		"SELECT coalesce(cardinality(parameter_types), 0) FROM pg_prepared_statements WHERE name = 's'").Scan(&n))
	execute := "EXECUTE s"
	if n > 0 {
		execute = fmt.Sprintf("EXECUTE s(%s)", strings.TrimSuffix(strings.Repeat("NULL,", n), ","))
	}
	on, parameter := regexp.MustCompile(`Index(?: Only)? Scan(?: Backward)? using (\S+)`), regexp.MustCompile(`\$\d+|\(InitPlan \d+\)\.col\d+`)
	index := ""
	for _, line := range run("EXPLAIN " + execute) {
		if m := on.FindStringSubmatch(line); m != nil {
			index = m[1]
		}
		if _, condition, is := strings.Cut(line, "Index Cond: "); is {
			list = append(list, index+" "+parameter.ReplaceAllString(condition, "$"))
		}
	}
	return list
}
