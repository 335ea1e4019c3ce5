package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// with opens a database in which statements have run, $db being its name.
func with(t *testing.T, statements ...string) *postgres.Pool {
	t.Helper()
	url := dbtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	for _, sql := range statements {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(sql, pgx.Identifier{conn.Config().Database}.Sanitize()))
		require.NoError(t, err, sql)
	}
	require.NoError(t, conn.Close(t.Context()))
	pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConn: 4})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestSettingsArePinned: what a database has changed is as the code needs it in the service's sessions.
func TestSettingsArePinned(t *testing.T) {
	t.Parallel()
	pool := with(t, "ALTER DATABASE %s SET default_transaction_isolation = 'serializable'",
		"ALTER DATABASE %s SET datestyle = 'German'", "ALTER DATABASE %s SET intervalstyle = 'iso_8601'",
		"ALTER DATABASE %s SET standard_conforming_strings = off", "ALTER DATABASE %s SET row_security = off",
		"ALTER DATABASE %s SET bytea_output = 'escape'")
	require.NoError(t, pool.Check(t.Context()))
	for name, want := range map[string]string{
		"transaction_isolation": "read committed", "datestyle": "ISO, MDY", "intervalstyle": "postgres",
		"standard_conforming_strings": "on", "row_security": "on", "bytea_output": "hex",
	} {
		var is string
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&is))
		require.Equal(t, want, is, name)
	}
}

// TestSettingsAreRefused: a service does not start with settings that no session can change.
func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for set, says := range map[string]string{
		"ALTER DATABASE %s SET session_replication_role = replica": "session_replication_role = replica, and the service needs origin",
		"ALTER DATABASE %s SET search_path = elsewhere":            `the tables of the service are in the schema "public"`,
	} {
		pool := with(t, "CREATE SCHEMA elsewhere -- %s", set)
		err := pool.Check(t.Context())
		if err == nil {
			_, err = pool.Migrate(t.Context())
		}
		require.ErrorContains(t, err, says)
	}
}

// TestMissingGuards: a guard that is gone or disabled is named.
func TestMissingGuards(t *testing.T) {
	t.Parallel()
	missing := func(statements ...string) []string {
		t.Helper()
		list, err := with(t, statements...).MissingGuards(t.Context())
		require.NoError(t, err)
		return list
	}
	require.Empty(t, missing())
	for sql, name := range map[string]string{
		"DROP INDEX one_live_payment_per_order -- %s":                            "the unique index one_live_payment_per_order of payments",
		"ALTER TABLE orders DROP CONSTRAINT amount_is_positive -- %s":            "the constraint amount_is_positive of orders",
		"ALTER TABLE payments DISABLE TRIGGER payment_transition_is_legal -- %s": "the trigger payment_transition_is_legal of payments",
		"ALTER TABLE api_keys DISABLE TRIGGER ALL -- %s":                         "the constraint api_keys_tenant_id_fkey of api_keys",
		"ALTER TABLE orders DISABLE ROW LEVEL SECURITY -- %s":                    "the policy of orders",
	} {
		require.Contains(t, missing(sql), name)
	}
	require.Empty(t, missing("ALTER TABLE orders DISABLE TRIGGER USER -- %s", "INSERT INTO goose_db_version (version_id, is_applied) "+
		"VALUES (9999, true) -- %s"), "the guards of a newer schema are those of another program")
}
