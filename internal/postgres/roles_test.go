package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

const permissionDenied = "42501"

// TestServiceOwnsNothing: what the service's role may do to each table, read from the catalogue of a migrated database.
func TestServiceOwnsNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	type table struct {
		Name, Owner   string
		Insert, Never bool
		Change        string // all, some columns or none
		Remove, Wall  bool
		Tenant        bool
	}
	tables := all[table](t, pool, `
		SELECT c.relname AS name, c.relowner::regrole::text AS owner,
			has_any_column_privilege('payonce_service', c.oid, 'INSERT') AS insert,
			has_table_privilege('payonce_service', c.oid, 'TRUNCATE')
				OR has_table_privilege('payonce_service', c.oid, 'TRIGGER')
				OR has_table_privilege('payonce_service', c.oid, 'REFERENCES') AS never,
			CASE WHEN has_table_privilege('payonce_service', c.oid, 'UPDATE') THEN 'all'
				WHEN has_any_column_privilege('payonce_service', c.oid, 'UPDATE') THEN 'some' ELSE 'none' END AS change,
			has_table_privilege('payonce_service', c.oid, 'DELETE') AS remove,
			c.relrowsecurity AS wall,
			EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id') AS tenant
		FROM pg_class c
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`)
	require.NotEmpty(t, tables)
	changes := map[string]string{
		"tenants": "some", "outbox_events": "some", "orders": "some", "erasures": "none", "lives": "none", "idempotency_keys": "some",
		"webhook_deliveries":      "some", // part: webhooks
		"webhook_endpoints":       "some", // part: webhooks
		"webhook_secrets":         "some", // part: webhooks
		"unaccounted_intents":     "none",
		"ledger_entries":          "none", // part: ledger
		"operator_actions":        "some", // part: operator
		"dispute_movements":       "none", // part: disputes
		"cdc_events":              "none", // part: cdc
		"operator_sessions_ended": "none", // part: operator
	}
	removes := map[string]bool{
		"idempotency_keys": true, "outbox_events": true, "outbox_leases": true, "inbox_events": true,
		"cdc_events":              true, // part: cdc
		"webhook_deliveries":      true, // part: webhooks
		"webhook_secrets":         true, // part: webhooks
		"operator_sessions_ended": true, // part: operator
	}
	for _, c := range tables {
		require.Equal(t, "payonce_owner", c.Owner, c.Name)
		require.False(t, c.Never, c.Name)
		require.True(t, c.Wall || !c.Tenant, "%s has tenants and no policy", c.Name)
		if slices.Contains([]string{"goose_db_version", "cell", "data_keys", "retention_floor"}, c.Name) {
			require.False(t, c.Insert || c.Change != "none" || c.Remove, "only the owner migrates")
			continue
		}
		// An erasure is recorded by the function that makes it, a life by the owner.
		require.Equal(t, c.Name != "erasures" && c.Name != "lives", c.Insert, "%s is not in db/rights.sql", c.Name)
		change, ok := changes[c.Name]
		if !ok {
			change = "all"
		}
		require.Equal(t, change, c.Change, c.Name)
		require.Equal(t, removes[c.Name], c.Remove, c.Name)
		delete(changes, c.Name)
		delete(removes, c.Name)
	}
	require.Empty(t, changes)
	require.Empty(t, removes)
}

// TestRolesAreRefused: the database refuses the service's own role, and the auditor's.
func TestRolesAreRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	refused := map[string][]string{
		"payonce_service": {
			"ALTER TABLE payments DISABLE TRIGGER ALL",
			"ALTER TABLE payments NO FORCE ROW LEVEL SECURITY",
			"DROP POLICY tenants_in_scope ON payments",
			"SET session_replication_role = replica",
			"TRUNCATE outbox_events",
			"DROP TABLE payments",
			"CREATE TABLE mine ()",
			"CREATE TEMP TABLE orders ()",
			"CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
			"UPDATE outbox_events SET data = NULL",
			"UPDATE outbox_events SET data = without_customer(data, '{}')",
			"UPDATE orders SET customer_reference = NULL, metadata = '{}'",
			"UPDATE webhook_deliveries SET body = without_customer(body, '{data}')", // part: webhooks
			"INSERT INTO erasures (tenant_id, reference_mac, actor, orders, keys, events, deliveries) " +
				"VALUES ('ten_1', sha256(''), '', 1, 0, 0, 0)",
			"DELETE FROM erasures",
			"UPDATE outbox_events SET version = 2",
			"UPDATE idempotency_keys SET created_at = '2020-01-01'",
			"INSERT INTO idempotency_keys (created_at) VALUES ('2020-01-01')",
			"INSERT INTO idempotency_keys (answer_body) VALUES ('')",
			"INSERT INTO data_keys (id, plain_until) VALUES ('aaaa', now())",
			"UPDATE data_keys SET plain_until = 'infinity'",
			"UPDATE retention_floor SET answers = '0'",
			"DELETE FROM orders",
			"DELETE FROM payments",
			"UPDATE tenants SET name = ''",
			"UPDATE ledger_entries SET amount_minor = 1", // part: ledger
			"DELETE FROM ledger_entries",                 // part: ledger
			"DELETE FROM operator_actions",               // part: operator
			"UPDATE operator_actions SET reason = ''",    // part: operator
		},
		"payonce_audit": {
			"INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_1', 'x', '')",
			"UPDATE orders SET amount_minor = 1",
			"DELETE FROM outbox_events",
			"SELECT * FROM orders FOR UPDATE",
			"CREATE TEMP TABLE orders ()",
			"TRUNCATE orders",
			"SELECT erase_customer('ten_1', 'ada', sha256(''), '', '{}', '{}', now())",
		},
	}
	bypassing := bypassingRole(t, url)
	refused[bypassing] = refused["payonce_service"]
	for role, writes := range refused {
		conn := connect(t, devpg.As(url, role))
		_, err := conn.Exec(t.Context(), "SET payonce.tenants = '*'") // the policies would refuse some of them, too
		require.NoError(t, err)
		for _, sql := range writes {
			_, err := conn.Exec(t.Context(), sql)
			requirePermissionDenied(t, err, sql)
		}
		_, err = conn.Exec(t.Context(), "SELECT * FROM orders, payments, tenants")
		require.NoError(t, err, role)
	}
}

// TestOwnsTables: serve warns of a role that neither rights nor policies bind.
func TestOwnsTables(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	for role, owns := range map[string]bool{
		"": true, "payonce_owner": true, "payonce_service": false, "payonce_audit": false, // "": a superuser
	} {
		found, err := openAs(t, devpg.As(url, role)).OwnsTables(t.Context())
		require.NoError(t, err)
		require.Equal(t, owns, found, role)
	}
	nothing, err := openAs(t, devpg.As(url, "payonce_service")).Migrate(t.Context())
	require.NoError(t, err, "a service with AUTO_MIGRATE that finds a current schema")
	require.Empty(t, nothing)
}

// TestSessionsOfOthers: neither role sees the SQL of another role's sessions, among which may be a password, nor ends such a
// session; how old the oldest transaction is, the service sees.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	owner := connect(t, devpg.As(url, "payonce_owner"))
	_, err := owner.Exec(t.Context(), "BEGIN; SELECT 'of the owner'")
	require.NoError(t, err)
	var seconds float64
	require.NoError(t, connect(t, devpg.As(url, "payonce_service")).QueryRow(t.Context(),
		"SELECT oldest_transaction_seconds(pg_backend_pid())").Scan(&seconds))
	require.Positive(t, seconds)
	for _, role := range []string{"payonce_service", "payonce_audit"} {
		conn := connect(t, devpg.As(url, role))
		var open bool
		var query string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT xact_start IS NOT NULL, query FROM pg_stat_activity WHERE pid = $1",
			owner.PgConn().PID()).Scan(&open, &query))
		require.False(t, open, role)
		require.NotContains(t, query, "of the owner", role)
		_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", owner.PgConn().PID())
		requirePermissionDenied(t, err, role)
		another := connect(t, devpg.As(url, role))
		_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", another.PgConn().PID())
		require.NoError(t, err, role)
	}
}

// TestServiceDeletesOnlyOldEvents: those that were written and published more than a day ago, by times that the service
// cannot set. The reaper's retention is longer.
func TestServiceDeletesOnlyOldEvents(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	for name, role := range map[string]string{"RowSecurity": "payonce_service", "BypassRLS": bypassingRole(t, url)} {
		t.Run(name, func(t *testing.T) { deletesOnlyOldEvents(t, url, role) })
	}
}

func deletesOnlyOldEvents(t *testing.T, url, role string) {
	t.Helper()
	admin, service := connect(t, url), connect(t, devpg.As(url, role))
	for i, event := range [][2]string{
		{"stuck", "now() - interval '2 days', NULL"},
		{"fresh", "now(), now()"},
		{"late", "now() - interval '2 days', now() - interval '23 hours'"},
		{"oldest", "now() - interval '25 hours', now() - interval '25 hours'"},
	} {
		_, err := admin.Exec(t.Context(), fmt.Sprintf(`
			INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, position, created_at, published_at)
			VALUES ('ten_1', '%s', 1, 'order.canceled', '{}', %d, %s)`, event[0], i+1, event[1]))
		require.NoError(t, err)
	}
	_, err := service.Exec(t.Context(), "SET payonce.tenants = '*'")
	require.NoError(t, err)
	for _, event := range []string{"stuck", "fresh", "late"} {
		of := " WHERE aggregate_id = '" + event + "'"
		for _, published := range []string{"'2020-01-01'", "'-infinity'", "created_at - interval '2 days'", "'infinity'"} {
			_, err := service.Exec(t.Context(), "UPDATE outbox_events SET published_at = "+published+of)
			require.True(t, postgres.Violates(err, "published_at_is_now"), "%s %s: %v", event, published, err)
		}
		for _, step := range []string{
			"SELECT", "UPDATE outbox_events SET published_at = NULL" + of, // as a replay does
			"UPDATE outbox_events SET published_at = clock_timestamp()" + of, // as the relay does
		} {
			_, err := service.Exec(t.Context(), step)
			require.NoError(t, err, event)
			_, err = service.Exec(t.Context(), "DELETE FROM outbox_events"+of)
			require.True(t, postgres.Violates(err, "only_old_events_are_deleted") ||
				postgres.Violates(err, "unpublished_is_never_deleted"), "%s after %s: %v", event, step, err)
		}
		_, err := service.Exec(t.Context(), "UPDATE outbox_events SET created_at = '2020-01-01'"+of)
		requirePermissionDenied(t, err)
		_, err = admin.Exec(t.Context(), "UPDATE outbox_events SET published_at = now()"+of+"; DELETE FROM outbox_events"+of)
		require.NoError(t, err, "the owner may")
	}
	done, err := service.Exec(t.Context(), "DELETE FROM outbox_events WHERE aggregate_id = 'oldest'")
	require.NoError(t, err)
	require.EqualValues(t, 1, done.RowsAffected())
}

// TestServiceErasesByTheFunctionAlone: with the owner's rights, in the tables that the owner means, for a tenant in scope.
func TestServiceErasesByTheFunctionAlone(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin, service := connect(t, url), connect(t, devpg.As(url, "payonce_service"))
	_, err := admin.Exec(t.Context(), `INSERT INTO orders (tenant_id, id, currency, items, customer_reference, created_at,
		amount_minor) VALUES ('ten_1', 'ord_1', 'usd', '[]', 'ada', now(), 1000)`)
	require.NoError(t, err)
	mayMakeTemporaryTables(t, admin)
	_, err = service.Exec(t.Context(), `CREATE TEMP TABLE orders AS SELECT * FROM public.orders`)
	require.NoError(t, err)
	erase := func(scope string) (made string, err error) {
		_, err = service.Exec(t.Context(), "SET payonce.tenants = '"+scope+"'")
		require.NoError(t, err)
		err = service.QueryRow(t.Context(),
			"SELECT erase_customer('ten_1', 'ada', sha256('ada'), '', '{ord_1}', '{}', now())::text").Scan(&made)
		return made, err
	}
	_, err = erase("ten_2")
	require.ErrorContains(t, err, "scope")
	made, err := erase("ten_2,ten_1")
	require.NoError(t, err)
	require.Contains(t, made, `"orders": 1`)
	var left, role string
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT coalesce(customer_reference, ''), db_role
		FROM orders JOIN erasures USING (tenant_id)`).Scan(&left, &role))
	require.Empty(t, left)
	require.Equal(t, "payonce_service", role)
}

// mayMakeTemporaryTables gives every role what deploy/roles.sql takes, as in a database in which it has not run again.
func mayMakeTemporaryTables(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	var database string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT current_database()").Scan(&database))
	_, err := admin.Exec(t.Context(), "GRANT TEMPORARY ON DATABASE "+pgx.Identifier{database}.Sanitize()+" TO PUBLIC")
	require.NoError(t, err)
}

// TestTemporaryTablesHideNothing: what a trigger reads is ours, also in a session that has tables of the same names.
func TestTemporaryTablesHideNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin, service := connect(t, url), connect(t, devpg.As(url, "payonce_service"))
	mayMakeTemporaryTables(t, admin)
	var bare []string
	rows, err := admin.Query(t.Context(), `SELECT proname FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace AND prosrc ~ '\m(FROM|UPDATE|INTO|JOIN) (pg_)?[a-z_]+\M( [a-z]+)?\s*(JOIN|WHERE|SET|\()'
			AND NOT coalesce(proconfig @> '{"search_path=public, pg_temp"}', false)`)
	require.NoError(t, err)
	bare, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, bare, "read tables by a path of the session's")

	for _, sql := range []string{
		"SET payonce.tenants = '*'",
		"CREATE TEMP TABLE pg_class AS SELECT oid, current_user::regrole::oid AS relowner FROM pg_catalog.pg_class",
		"CREATE TEMP TABLE ledger_entries (LIKE public.ledger_entries)", // part: ledger
	} {
		_, err := service.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_, err = admin.Exec(t.Context(), `
		INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, position, created_at, published_at)
		VALUES ('ten_1', 'fresh', 1, 'order.canceled', '{}', 1, now(), now())`)
	require.NoError(t, err)
	_, err = service.Exec(t.Context(), "DELETE FROM outbox_events")
	require.True(t, postgres.Violates(err, "only_old_events_are_deleted"), "%v", err)
	// part: ledger {
	_, err = service.Exec(t.Context(), `INSERT INTO public.ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
		VALUES ('ten_1', 'evt_1', 1, 'cash', 1, 'usd', 'pay_1')`)
	require.True(t, postgres.Violates(err, "entries_of_an_event_sum_to_zero"), "%v", err)
	// part: ledger }

	_, err = devpg.MakeRoles(t.Context(), url)
	require.NoError(t, err)
	_, err = service.Exec(t.Context(), "CREATE TEMP TABLE payments (LIKE public.payments)")
	requirePermissionDenied(t, err, "deploy/roles.sql takes the right to make them")
}

// TestFunctionsOfOthersStayAsTheyAre: a migration alters none of them, and does not fail for them.
func TestFunctionsOfOthersStayAsTheyAre(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin := connect(t, url)
	_, err := admin.Exec(t.Context(), "CREATE FUNCTION report() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM payments'")
	require.NoError(t, err)
	for _, migrates := range []string{devpg.As(url, "payonce_owner"), url} {
		_, err = openAs(t, migrates).Migrate(t.Context())
		require.NoError(t, err)
	}
	var settings []string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT proconfig FROM pg_proc WHERE proname = 'report'").Scan(&settings))
	require.Empty(t, settings)
}

// TestScope: a statement sees and writes the rows of the tenants in its scope, whatever it asks for.
func TestScope(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin := connect(t, url)
	for _, tenant := range []string{"ten_1", "ten_2"} {
		_, err := admin.Exec(t.Context(), "INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, "+
			"params_sha256, first_sent_at, last_sent_at, outcome) VALUES ($1, $1 || ':k', 'refund', 'r', sha256(''), now(), now(), 'sent')",
			tenant)
		require.NoError(t, err)
	}
	pool := openAs(t, devpg.As(url, "payonce_service"))
	read := func(ctx context.Context, q *db.Queries) (tenants []string) {
		rows, err := q.DB().Query(ctx, "SELECT tenant_id FROM stripe_calls ORDER BY 1") // a view
		require.NoError(t, err)
		tenants, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return tenants
	}
	for name, scope := range map[string]struct {
		ctx  context.Context //nolint:containedctx // of one case
		sees []string
	}{
		"Nobody":     {t.Context(), []string{}},
		"OneTenant":  {postgres.ForTenant(t.Context(), "ten_2"), []string{"ten_2"}},
		"Another":    {postgres.ForTenant(t.Context(), "ten_3"), []string{}},
		"AllTenants": {postgres.ForAllTenants(t.Context(), "test"), []string{"ten_1", "ten_2"}},
		"Narrowed": {
			postgres.ForTenant(postgres.ForAllTenants(t.Context(), "test"), "ten_1"), []string{"ten_1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, scope.sees, read(scope.ctx, pool.Queries), "by itself")
			require.NoError(t, pool.InTx(scope.ctx, func(q *db.Queries) error {
				require.Equal(t, scope.sees, read(scope.ctx, q), "in a transaction")
				return nil
			}))
			require.Empty(t, read(t.Context(), pool.Queries), "the session keeps nothing of it")
		})
	}

	t.Run("WritesOfOthersAreRefused", func(t *testing.T) {
		ctx := postgres.ForTenant(t.Context(), "ten_1")
		_, err := pool.DB().Exec(ctx, "UPDATE stripe_call_rows SET tenant_id = 'ten_2', stripe_key = 'ten_2:moved'")
		require.ErrorContains(t, err, "row-level security")
		done, err := pool.DB().Exec(ctx, "UPDATE stripe_call_rows SET attempts = 9")
		require.NoError(t, err)
		require.EqualValues(t, 1, done.RowsAffected())
		_, err = pool.DB().Exec(ctx, "INSERT INTO event_feeds (tenant_id) VALUES ('ten_2')")
		require.ErrorContains(t, err, "row-level security")
	})

	t.Run("IdThatIsNone", func(t *testing.T) {
		ctx := postgres.ForTenant(t.Context(), "x'; DROP TABLE orders; --")
		require.ErrorContains(t, pool.InTx(ctx, func(*db.Queries) error { return errors.New("it began") }), "cannot be one")
		require.Empty(t, read(ctx, pool.Queries))
	})
	require.Panics(t, func() { postgres.ForAllTenants(t.Context(), "") }, "who works for all says so")
}

// TestEveryTableIsScoped: a query without its tenant's condition, of any table that has tenants, returns no other tenant's rows.
// TestForgottenTenant does so over HTTP, for some of them.
func TestEveryTableIsScoped(t *testing.T) {
	t.Parallel()
	c := openCatalogue(t) // with rows of the tenant "ten" in each
	count := func(role, scope, table string) string {
		results, err := c.conn.Exec(t.Context(), fmt.Sprintf("BEGIN; SET LOCAL ROLE %s; SET LOCAL payonce.tenants = '%s'; "+
			"SELECT count(*) FROM %s; ROLLBACK", role, scope, table)).ReadAll()
		require.NoError(t, err, table)
		return string(results[3].Rows[0][0])
	}
	tables, err := c.conn.Exec(t.Context(), `SELECT a.attrelid::regclass FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'v') AND c.relnamespace = 'public'::regnamespace`).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(tables[0].Rows), 10)
	require.NoError(t, c.exec("INSERT INTO inbox_events (event_id, tenant_id) VALUES ('of ten', 'ten')"))
	require.NoError(t, c.exec("INSERT INTO operator_actions (tenant_id) VALUES ('ten')")) // part: operator
	for _, row := range tables[0].Rows {
		table := string(row[0])
		for _, role := range []string{"payonce_service", "payonce_audit"} {
			require.Equal(t, "0", count(role, "another", table), table)
			require.Equal(t, "0", count(role, "", table), table)
			assert.NotEqual(t, "0", count(role, "ten", table), "%s has no rows: the test proves nothing", table)
		}
	}
}

// TestRowSecurityIsAChoice: without it the service works, and statements see what their own WHERE says.
func TestRowSecurityIsAChoice(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	for role, scoped := range map[string]bool{"payonce_service": true, bypassingRole(t, url): false, "payonce_owner": false} {
		pool := openAs(t, devpg.As(url, role))
		facts, err := pool.Facts(t.Context())
		require.NoError(t, err)
		require.Equal(t, scoped, facts.Scoped, role)
		require.Equal(t, role == "payonce_owner", facts.Owns, role)
		require.Empty(t, facts.Lacks, role)

		ctx := postgres.ForTenant(t.Context(), "ten_1")
		write := fmt.Sprintf("INSERT INTO event_feeds (tenant_id) VALUES ('%.20s')", "ten_2"+role)
		_, err = pool.DB().Exec(ctx, write)
		if scoped {
			require.ErrorContains(t, err, "row-level security")
			continue
		}
		require.NoError(t, err, role)
		done, err := pool.DB().Exec(ctx, "UPDATE event_feeds SET last_position = 1")
		require.NoError(t, err, role)
		require.Positive(t, done.RowsAffected(), role)
	}
}

// TestScopeCommits: the statement and its scope are one transaction, whose COMMIT comes after the last row. A row that
// is refused then is not reported as written.
func TestScopeCommits(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	_, err := connect(t, url).Exec(t.Context(), `
		CREATE TABLE late (id integer PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
		GRANT SELECT, INSERT ON late TO payonce_service;`)
	require.NoError(t, err)
	pool := openAs(t, devpg.As(url, "payonce_service"))
	ctx := postgres.ForTenant(t.Context(), "ten_1")
	const twice = "INSERT INTO late VALUES (1), (1)"
	_, err = pool.DB().Exec(ctx, twice)
	require.True(t, postgres.Violates(err, "late_pkey"), err)
	rows, err := pool.DB().Query(ctx, twice+" RETURNING id")
	require.NoError(t, err)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.True(t, postgres.Violates(err, "late_pkey"), err)
	var id int
	err = pool.DB().QueryRow(ctx, twice+" RETURNING id").Scan(&id)
	require.True(t, postgres.Violates(err, "late_pkey"), err)

	require.NoError(t, pool.DB().QueryRow(ctx, "INSERT INTO late VALUES (1) RETURNING id").Scan(&id))
	require.ErrorIs(t, pool.DB().QueryRow(ctx, "SELECT id FROM late WHERE id = 2").Scan(&id), pgx.ErrNoRows)
	require.Zero(t, pool.Stat().InUse, "each connection was given back")
}

// bypassingRole makes a role with the rights of the service's, which no policy binds. Roles belong to the server, which
// tests share, so it is not the service's own.
func bypassingRole(t *testing.T, url string) string {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	name := fmt.Sprintf("payonce_bypassing_%s", strings.ToLower(rand.Text()))
	_, err = admin.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN BYPASSRLS IN ROLE payonce_service PASSWORD '%s'",
		name, admin.Config().Password))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+name)
		require.NoError(t, err)
		_ = admin.Close(context.WithoutCancel(t.Context()))
	})
	return name
}

func requirePermissionDenied(t *testing.T, err error, of ...any) {
	t.Helper()
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused, of...)
	require.Equal(t, permissionDenied, refused.Code, of...)
}

func openAs(t *testing.T, url string) *postgres.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), url, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
