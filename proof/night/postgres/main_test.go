package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// unattended is a pool on a database whose tables have statistics only after a test's own ANALYZE.
func unattended(t *testing.T) *postgres.Pool {
	t.Helper()
	pool := dbtest.Fresh(t)
	_, err := pool.Raw().Exec(t.Context(), `DO $$ DECLARE r regclass; BEGIN
		FOR r IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
			EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', r);
		END LOOP;
	END $$`)
	require.NoError(t, err)
	return pool
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// openAs is a pool on url.
func openAs(t *testing.T, url string) *postgres.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConn: 4})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func requirePermissionDenied(t *testing.T, err error) {
	t.Helper()
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "42501", refused.Code, err)
}
