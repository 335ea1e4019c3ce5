package docs_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// TestQueriesRun runs every block of SQL in the documents on the schema as it is. A
// query for three in the morning that names a column of last year is worse
// than none.
func TestQueriesRun(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ran := 0
	for _, d := range readDocuments(t) {
		for _, f := range d.fences {
			if f.language != "sql" {
				continue
			}
			ran++
			ctx := t.Context()
			tx, err := pool.Raw().Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Conn().Exec(ctx, f.text, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err, "%s:\n%s", d.path, f.text)
			require.NoError(t, tx.Rollback(context.WithoutCancel(ctx)))
		}
	}
	require.Greater(t, ran, 10, "the fences were not found")
}
