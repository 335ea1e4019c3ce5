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
	"example.com/payonce/testkit/dbtest"
)

// withoutTable are the queries that have no truth table, each with the reason.
var withoutTable = map[string]string{
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
