package postgres_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// withoutTable are the queries that have no truth table, each with the reason.
var withoutTable = map[string]string{
	"ErasureSecret":    "its bytes would be a line each; TestReferenceIsHashed compares with them",
	"LifeLockWithin":   "it has no rows; TestBeginWaitsForWriters of lives meets the timeout",
	"LifeOfEvents":     "it changes a default; TestEventsOfALostLife of lives reads the events that follow",
	"LifeWhere":        "it is about the server; TestBeginTwice of lives compares two restores",
	"OutboxLock":       "it has no rows; TestLeases of the outbox waits for it",
	"PlanByIndex":      "it has no rows; TestPlanByIndex reads the settings",
	"StandbyAwait":     "it has no rows; TestStandbyIsKnownToTheStatements asks whether its transaction has a number",
	"TimeoutsForAudit": "it has no rows; TestTimeoutsForAudit reads the setting",
}

// TestEachQueryHasATable reads the tables as source, so that it can run alone.
func TestEachQueryHasATable(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("queries_*_test.go")
	require.NoError(t, err)
	tables := map[string]bool{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if field, ok := n.(*ast.KeyValueExpr); ok {
				key, isName := field.Key.(*ast.Ident)
				query, isMethod := field.Value.(*ast.SelectorExpr)
				if isName && isMethod && key.Name == "query" {
					tables[query.Sel.Name] = true
				}
			}
			return true
		})
	}
	queries := reflect.TypeFor[*db.Queries]()
	for i := range queries.NumMethod() {
		method := queries.Method(i).Type
		if method.NumIn() < 2 || method.In(1) != reflect.TypeFor[context.Context]() {
			continue // DB, WithTx
		}
		name := queries.Method(i).Name
		reason := withoutTable[name]
		require.False(t, tables[name] && reason != "", "%s has a truth table, and is listed as without one", name)
		require.True(t, tables[name] || reason != "", "no case of a truth table runs %s: add one in queries_*_test.go, or the reason to "+
			"withoutTable", name)
	}
}

// TestPlanByIndex: a row that runs by itself is planned as those of a batch are.
func TestPlanByIndex(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	settings := func(q *db.Queries) (are string) {
		require.NoError(t, q.DB().QueryRow(t.Context(), `SELECT string_agg(name || ' ' || setting, ', ' ORDER BY name)
			FROM pg_settings WHERE name = 'plan_cache_mode' OR name ~ '^(jit|enable_(seqscan|bitmapscan|hashjoin|mergejoin))$'`).Scan(&are))
		return are
	}
	const byIndex = "enable_bitmapscan off, enable_hashjoin off, enable_mergejoin off, enable_seqscan off, jit off, " +
		"plan_cache_mode force_generic_plan"
	b := postgres.NewBatched(pool, postgres.Statement[string, string]{
		Run: func(_ context.Context, q *db.Queries, _ []string, done func(int32, string)) error {
			done(1, settings(q))
			return nil
		},
		Tenant: func(*string) string { return "" },
	})
	is, err := b.Do(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, byIndex, is)
	require.NoError(t, pool.InTx(t.Context(), func(q *db.Queries) error {
		require.NotEqual(t, byIndex, settings(q))
		require.NoError(t, q.PlanByIndex(t.Context()))
		require.Equal(t, byIndex, settings(q))
		return nil
	}))
	require.NotEqual(t, byIndex, settings(pool.Queries), "until the transaction ends")
}

func TestTimeoutsForAudit(t *testing.T) {
	t.Parallel()
	conn := connect(t, dbtest.URL(t))
	timeout := func() (is string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&is))
		return is
	}
	before := timeout()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.New(tx).TimeoutsForAudit(t.Context(), "7000"))
	require.Equal(t, "7s", timeout())
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, before, timeout(), "it is for the transaction alone")
}
