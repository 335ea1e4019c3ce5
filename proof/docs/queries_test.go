package docs_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestQueriesRun runs all SQL of the documents on the schema as it is, with the rights of the roles that are told to
// run it. A query for three in the morning that names a column of last year, or is refused, is worse than none.
func TestQueriesRun(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	ran := 0
	for _, role := range []string{"payonce_service", "payonce_audit"} {
		psql := connectAs(t, url, role)
		for _, d := range readDocuments(t) {
			for _, sql := range d.sql() {
				if role == "payonce_audit" && !reads(sql) {
					continue
				}
				ran++
				_, err := psql.PgConn().Exec(t.Context(), "BEGIN; "+sql).ReadAll()
				require.NoError(t, err, "%s, as %s:\n%s", d.path, role, sql)
				_, err = psql.Exec(t.Context(), "ROLLBACK")
				require.NoError(t, err)
			}
		}
	}
	require.Greater(t, ran, 100, "the queries were not found")
}

// TestRepairsChangeRows: each UPDATE of the documents changes what it is for, as the service's role. The ids of the rows
// are those that the documents leave open.
func TestRepairsChangeRows(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	_, err = admin.PgConn().Exec(t.Context(), ill).ReadAll()
	require.NoError(t, err)
	psql := connectAs(t, url, "payonce_service")
	repairs := 0
	for _, d := range readDocuments(t) {
		for _, sql := range d.sql() {
			if reads(sql) {
				continue
			}
			results, err := psql.PgConn().Exec(t.Context(), "BEGIN; "+sql).ReadAll()
			require.NoError(t, err, "%s:\n%s", d.path, sql)
			_, err = psql.Exec(t.Context(), "ROLLBACK")
			require.NoError(t, err)
			for _, done := range results {
				if done.CommandTag.Update() {
					repairs++
					require.EqualValues(t, 1, done.CommandTag.RowsAffected(), "%s:\n%s", d.path, sql)
				}
			}
		}
	}
	require.Greater(t, repairs, 5, "the repairs were not found")
}

// ill is one row for each repair.
const ill = `
	INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, resource_id, request_id, fingerprint_version,
		claim_token, leased_until, next_attempt_at, recovery_point, parked_at, request)
	VALUES ('ten_…', 'k', 'create_payment', sha256(''), 'pay_…', 'r', 1, gen_random_uuid(), '-infinity', 'infinity',
		'intent_recorded', now(), '');
	INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, parked_at)
	VALUES ('ten_…', 'ord_…', 1, 'order.canceled', '{}', now());
	INSERT INTO inbox_events (consumer, event_id, status, type, tenant_id, payload, parked_at)
	VALUES ('ledger', 'pay_…-2', 'parked', 'payment.succeeded', 'ten_…', '', now());
	INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_…', 'ill', repeat('s', 32)::bytea);
	INSERT INTO webhook_endpoints (tenant_id, id, number, url) VALUES ('ten_…', 'w', 1, 'https://shop.example/');
	INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, status, body, ended_at) VALUES ('ten_…', 'd', 'w', 'e', 't', 'failed', '', now());
	INSERT INTO refunds_owed (tenant_id, payment_id, order_id, currency, last_refund_id, last_error, next_attempt_at)
	VALUES ('ten_…', 'pay_…', 'ord_…', 'eur', 're_1', '', now());
	INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id, charge_id, amount_minor,
		currency, reason, created_at)
	VALUES ('ten_…', 'dsp_…', 'lost', 'pay_…', 'ord_…', 'du_1', 'ch_1', 1, 'eur', '', now());`

// TestVacuumIsTheOwners: what the documents vacuum by hand is vacuumed by the owner, and left out, with a warning, by
// the service's role.
func TestVacuumIsTheOwners(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	owner, service := connectAs(t, url, "payonce_owner"), connectAs(t, url, "payonce_service")
	found := 0
	for _, d := range readDocuments(t) {
		for _, c := range code.FindAllStringSubmatch(d.prose, -1) {
			if !strings.HasPrefix(c[1], "VACUUM ") {
				continue
			}
			found++
			require.Empty(t, noticesOf(t, owner, c[1]), c[1])
			require.NotEmpty(t, noticesOf(t, service, c[1]), c[1])
		}
	}
	require.Positive(t, found)
}

// connectAs is the session of psql that the handbook begins with.
func connectAs(t *testing.T, url, role string) *pgx.Conn {
	t.Helper()
	handbook, err := inventory.Read("docs/operations.md")
	require.NoError(t, err)
	options := regexp.MustCompile(`(?m)^PGOPTIONS='(.*)' psql "\$DATABASE_URL"`).FindStringSubmatch(handbook)
	require.NotNil(t, options, "the handbook names no tenants")
	config, err := pgx.ParseConfig(devpg.As(url, role))
	require.NoError(t, err)
	config.RuntimeParams["options"] = options[1]
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) { c.CustomData()["notices"] = n.Message }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func noticesOf(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	delete(conn.PgConn().CustomData(), "notices")
	_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err, sql)
	said, _ := conn.PgConn().CustomData()["notices"].(string)
	return said
}

var inlineSQL = regexp.MustCompile(`^(SELECT .* FROM|UPDATE \w+ SET) `)

// sql is what a document has to be given to psql: its fences, and whole statements within its sentences.
func (d document) sql() (list []string) {
	for _, f := range d.fences {
		if f.language == "sql" {
			list = append(list, f.text)
		}
	}
	for _, c := range code.FindAllStringSubmatch(d.prose, -1) {
		if inlineSQL.MatchString(c[1]) {
			list = append(list, c[1])
		}
	}
	return list
}

var writes = regexp.MustCompile(`(?m)^\s*(UPDATE|ALTER) `)

func reads(sql string) bool { return !writes.MatchString(sql) }
