package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/plans"
)

// TestHotPathPlans holds the statements that run in batches to the rows that they are asked for. A new database has no
// statistics, its tables are small, and a connection keeps the plan that it makes then: one that looks as good on ten
// pages, and asks an index for less than it knows, reads every payment of a tenant an hour later. With statistics, and
// many rows, the plan is the same.
//
// 20 000 rows stand for ten million: each scan is a look-up by a whole key, whose cost hardly grows with the table, and
// the generic plan does not depend on the values. The bench of the reference measures ten million keys.
func TestHotPathPlans(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	plans.HotPathByIndex(t, pool)
	for _, sql := range []string{
		`INSERT INTO orders (tenant_id, id, currency, amount_minor, items, created_at)
			SELECT 'ten_' || n % 3, 'ord_' || n, 'usd', 1000, '[]', now() FROM generate_series(1, 20000) n`,
		`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
				intent_number, created_at)
			SELECT tenant_id, 'pay_' || id, id, 'k' || id, 1000, 'usd', 'pm_1', 1, now() FROM orders`,
		`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id,
				resource_id, recovery_point, claim_token, leased_until, next_attempt_at, history)
			SELECT tenant_id, idempotency_key, 'create_payment', sha256('x'), 1, 'req', id, 'payment_recorded',
				gen_random_uuid(), now(), now(), '{}' FROM payments`,
		`INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256)
			SELECT tenant_id, tenant_id || ':' || id, 'confirm', id, sha256('x') FROM payments`,
		`INSERT INTO refunds (tenant_id, id, origin, payment_id, order_id, idempotency_key, stripe_key, amount_minor,
				currency, created_at)
			SELECT tenant_id, 'ref_' || id, 'api', id, order_id, 'r' || id, tenant_id || ':' || id, 1000, 'usd', now()
			FROM payments`,
		`ANALYZE`,
	} {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	plans.HotPathByIndex(t, pool)
}

// TestDeliveriesThatWaitAreNotRead: an endpoint was disabled, another of its tenant is down, and
// both have a backlog. Who looks each second for a delivery that may be sent passes
// both by, as a planner without statistics sees them and as one with.
func TestDeliveriesThatWaitAreNotRead(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url, disabled_at)
		SELECT 'ten_1', 'whe_' || name, n, 'https://example.com', CASE name WHEN 'disabled' THEN now() END
		FROM unnest('{disabled,down,well}'::text[]) WITH ORDINALITY AS e (name, n)`)
	exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
		SELECT tenant_id, id, 1, sha256('x') FROM webhook_endpoints`)
	backlog := func(endpoint, due string, n int) {
		exec(
			fmt.Sprintf(
				`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body, leased_until)
					SELECT 'ten_1', gen_random_uuid(), 'whe_%s', gen_random_uuid(), 't', '', %s FROM generate_series(1, %d)`,
				endpoint, due, n,
			),
		)
	}
	backlog("disabled", "'-infinity'", 20000)
	backlog("down", "now() + interval '1 hour'", 20000)
	backlog("down", "'-infinity'", 2)
	backlog("well", "now() - interval '1 minute'", 3)
	lease := func(busy, among string, rows int) (read int) {
		t.Helper()
		read, plan := plans.Explained(t, pool, plans.Generic, db.DeliveryLease, "EXECUTE s('1 minute', '"+busy+"', '"+among+"', 8, 8)")
		first, _, _ := strings.Cut(plan, "\n")
		require.Contains(t, first, fmt.Sprintf("rows=%d loops=1)", rows), plan)
		require.Less(t, read, 300, plan)
		return read
	}
	for _, analyze := range []bool{false, true} {
		if analyze {
			exec("ANALYZE webhook_deliveries, webhook_endpoints")
		}
		lease("{}", "{}", 5)
		lease("{whe_down}", "{}", 3)
		lease("{}", "{whe_down,whe_disabled}", 2)
		require.Less(t, lease("{whe_down,whe_well}", "{}", 0), 50, "nobody may be told of anything")
		for _, list := range []string{
			"EXECUTE s('{pending,delivered,failed,skipped}', 'ten_1', 'whe_down', '', 21)",
			"EXECUTE s('{pending}', 'ten_1', 'whe_down', 'z', 21)", "EXECUTE s('{failed}', 'ten_1', 'whe_down', '', 21)",
		} {
			read, plan := plans.Explained(t, pool, plans.Generic, db.DeliveryList, list)
			require.Less(t, read, 600, plan) // most are the catalogue's, where the function plans its statement
		}
		read, plan := plans.Explained(t, pool, plans.Generic, db.DeliveriesSkip, "EXECUTE s(5)")
		require.Less(t, read, 300, plan)
	}
}

// TestRetentionReadsWhatIsOld: a reaper looks each minute at tables that keep millions of rows for days, and reads those
// that are past their time. A bound that the planner may not give to the index, such as a volatile function, would be
// compared with every row that is kept.
func TestRetentionReadsWhatIsOld(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	// Three of each are old.
	exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id, resource_id,
			recovery_point, claim_token, leased_until, next_attempt_at, finished_at, answer_version, answer_status,
			answer_headers, answer_body, answer_dropped_at)
		SELECT 'ten_1', 'k' || n, 'create_payment', sha256('x'), 1, 'req', 'pay', 'finished', gen_random_uuid(), now(), now(),
			now() - CASE WHEN n <= 6 THEN 9 ELSE 1 END * interval '1 hour',
			CASE n % 2 WHEN 0 THEN 1 END, CASE n % 2 WHEN 0 THEN 201 END, CASE n % 2 WHEN 0 THEN ''::bytea END,
			CASE n % 2 WHEN 0 THEN ''::bytea END,
			CASE n % 2 WHEN 1 THEN now() - CASE WHEN n <= 6 THEN 9 ELSE 1 END * interval '1 hour' END
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO inbox_events (consumer, event_id, status, type, done_at)
		SELECT 'stripe', 'evt_' || n, 'done', 't', now() - CASE WHEN n <= 3 THEN 9 ELSE 1 END * interval '1 hour'
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, position, created_at, published_at)
		SELECT 'ten_1', 'ord_' || n, 1, 't', '{}', n, now() - interval '10 days',
			now() - CASE WHEN n <= 3 THEN 9 ELSE 2 END * interval '1 day'
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO event_feeds (tenant_id, last_position) VALUES ('ten_1', 20000)`)
	statements := map[string]string{
		"KeyDropAnswers":      "EXECUTE s('5 hours', 0, 20)",
		"KeyDeleteTombstones": "EXECUTE s('5 hours', 0, 20)",
		"InboxReap":           "EXECUTE s('5 hours', 0, 20)",
		"FeedReap":            "EXECUTE s('ten_1', 20, '5 days')",
	}
	sql := map[string]string{"KeyDropAnswers": db.KeyDropAnswers, "KeyDeleteTombstones": db.KeyDeleteTombstones,
		"InboxReap": db.InboxReap, "FeedReap": db.FeedReap}
	exec(`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body, status, ended_at)
		SELECT 'ten_1', 'whd_' || n, 'whe_1', 'evt_' || n, 't', '', 'delivered', now() - CASE WHEN n <= 3 THEN 9 ELSE 1 END * interval '1 hour'
		FROM generate_series(1, 20000) n`)
	statements["DeliveryReap"], sql["DeliveryReap"] = "EXECUTE s('5 hours', 0, 20)", db.DeliveryReap
	for _, analyze := range []bool{false, true} {
		if analyze {
			exec("ANALYZE")
		}
		for name, execute := range statements {
			read, plan := plans.Explained(t, pool, plans.Custom, sql[name], execute)
			require.Regexp(t, `(Delete|Update) on .*\(.*loops=1\)`, plan, name)
			// Without statistics a feed is taken for a 200th of the outbox, and PostgreSQL 17 sorts all of it.
			if analyze || name != "FeedReap" {
				require.Less(t, read, 200, "%s, analyzed %t\n%s", name, analyze, plan)
			}
			require.Contains(t, plan, "rows=3", name)
		}
	}
	// The oldest that is kept is asked for each minute, too.
	read, plan := plans.Explained(t, pool, plans.Custom, db.KeyOldestResponse, "EXECUTE s")
	require.Less(t, read, 20, plan)
}

// TestResealingReadsWhatWaits: outside of finished keys what waits is looked at each minute, without what is done, and
// although it is read in an order that no index has.
func TestResealingReadsWhatWaits(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id, resource_id,
			recovery_point, claim_token, leased_until, next_attempt_at, finished_at, answer_dropped_at, request)
		SELECT 'ten_1', 'k' || n, 'create_payment', sha256('x'), 1, 'req', 'pay', CASE WHEN n > 3 THEN 'finished' ELSE '' END,
			gen_random_uuid(), now(), now(), CASE WHEN n > 3 THEN now() END, CASE WHEN n > 3 THEN now() END,
			CASE WHEN n <= 3 THEN 'r'::bytea END
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO inbox_events (consumer, event_id, status, type, done_at, payload)
		SELECT 'stripe', 'evt_' || n, CASE WHEN n > 3 THEN 'done' ELSE 'pending' END::inbox_status, 't',
			CASE WHEN n > 3 THEN now() END, CASE WHEN n <= 3 THEN 'p'::bytea END
		FROM generate_series(1, 20000) n`)
	exec("ANALYZE") // as autovacuum does: a planner without statistics takes most events for waiting
	for _, mode := range []string{plans.Generic, plans.Custom} {
		for _, after := range []string{"'', '', ''", "'inbox_events', 'stripe', 'evt_'"} {
			read, plan := plans.Explained(t, pool, mode, db.SealedOtherwise, `EXECUTE s('\x01', `+after+`, 100)`)
			require.Less(t, read, 100, plan)
		}
	}
}

// TestLooksForWhatIsDueReadLittle: every process looks at all queues, more than once a second. What waits for its
// customer, for a slow endpoint or for the next attempt is not read.
func TestLooksForWhatIsDueReadLittle(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id, resource_id,
			recovery_point, claim_token, leased_until, next_attempt_at)
		SELECT 'ten_1', 'k' || n, 'create_payment', sha256('x'), 1, 'req', 'pay', 'customer_must_act', gen_random_uuid(), now(),
			now() + interval '1 hour'
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO inbox_events (consumer, event_id, status, type, payload, leased_until)
		SELECT 'stripe', 'evt_' || n, 'pending', 't', '', now() + interval '1 hour' FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, position, published_at)
		SELECT 'ten_1', 'ord_' || n, 1, 't', '{}', n, now() FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url) VALUES ('ten_1', 'whe_1', 1, 'https://example.com')`)
	exec(`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body, leased_until)
		SELECT 'ten_1', 'whd_' || n, 'whe_1', 'evt_' || n, 't', '', now() + interval '1 hour' FROM generate_series(1, 20000) n`)
	for _, analyze := range []bool{false, true} {
		if analyze {
			exec("ANALYZE")
		}
		for _, mode := range []string{plans.Generic, plans.Custom} {
			read, plan := plans.Explained(t, pool, mode, db.LoopsDue, "EXECUTE s('{stripe,ledger}')")
			require.Contains(t, plan, "rows=0 loops=1", plan)
			require.Less(t, read, 40, "%s, analyzed %t\n%s", mode, analyze, plan)
		}
	}
}

// TestCompleterPassesABacklogBy: who looks for what is due of other tenants passes the keys of one by, in the index of
// those that are unfinished, and reads no key that is finished.
func TestCompleterPassesABacklogBy(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	exec := plans.Executes(t, pool.Raw())
	keys := func(tenant string, n int, finished bool) {
		exec(fmt.Sprintf(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id,
				resource_id, recovery_point, claim_token, leased_until, next_attempt_at, finished_at, answer_version,
				answer_status, answer_headers, answer_body)
			SELECT '%s', 'k' || finished || n, 'create_payment', sha256('x'), 1, 'req', 'pay',
				CASE WHEN finished THEN 'finished' ELSE 'started' END, gen_random_uuid(), '-infinity',
				now() - interval '1 hour' + n * interval '1 ms', CASE WHEN finished THEN now() END,
				CASE WHEN finished THEN 1 END, CASE WHEN finished THEN 201 END, CASE WHEN finished THEN ''::bytea END,
				CASE WHEN finished THEN ''::bytea END
			FROM generate_series(1, %d) n, (SELECT %t AS finished) f`, tenant, n, finished))
	}
	keys("ten_many", 50_000, true)
	keys("ten_many", 2000, false)
	keys("ten_other", 3, false)
	for _, analyze := range []bool{false, true} {
		if analyze {
			exec("ANALYZE")
		}
		for _, mode := range []string{plans.Generic, plans.Custom} {
			_, plan := plans.Explained(t, pool, mode, db.KeyTakeOverDue,
				"EXECUTE s('00000000-0000-0000-0000-000000000001', '1 minute', '{ten_many}', 4)")
			require.Contains(t, plan, "idempotency_keys_unfinished", "%s, analyzed %t", mode, analyze)
			require.NotContains(t, plan, "Seq Scan", "%s, analyzed %t", mode, analyze)
			require.NotContains(t, plan, "Hash", "%s, analyzed %t", mode, analyze)
		}
	}
}

// TestReconcilerReadsKeysByTheirPrimaryKey, not all that are unfinished for each payment. There are few of those, so
// their index looks cheap.
func TestReconcilerReadsKeysByTheirPrimaryKey(t *testing.T) {
	t.Parallel()
	pool := unattended(t)
	for _, sql := range []string{
		`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id, resource_id,
				recovery_point, claim_token, leased_until, next_attempt_at, finished_at, answer_version, answer_status,
				answer_headers, answer_body)
			SELECT 'ten_1', 'k' || n, 'create_payment', sha256('x'), 1, 'req', 'pay', 'finished', gen_random_uuid(), now(),
				now(), now(), 1, 201, '', '' FROM generate_series(1, 20000) n`,
		`ANALYZE`,
	} {
		_, err := pool.Raw().Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for name, sql := range map[string]string{"payments": db.ReconcilePayments, "refunds": db.ReconcileRefunds,
		"orders": db.ReconcileOrders} {
		execute := "EXECUTE s('{ten_1}', '{ord_1}')"
		if name == "orders" {
			execute = "EXECUTE s('1 hour', '{ten_1}', '{ord_1}')"
		}
		_, plan := plans.Explained(t, pool, plans.Generic, sql, execute)
		require.Contains(t, plan, "idempotency_keys_pkey", name)
		require.NotContains(t, plan, "idempotency_keys_unfinished", name)
	}
}

// TestReconcilerKeepsItsPlans: a connection keeps the plans that it made while the tables were empty, until they are
// analyzed for the first time. A page of a hundred orders is read by their keys all the same.
//
// The test has a server of its own. A connection also drops its plans when it has missed too many changes of schemas: a
// server keeps the last four thousand, of all its databases, and beside this test others make databases and migrate
// them. The connection then plans the statements anew, on filled tables that have no statistics, and reads whole tables.
func TestReconcilerKeepsItsPlans(t *testing.T) {
	t.Parallel()
	pool := dbtest.Migrated(t, dbtest.Server(t, func(o *devpg.Options) {
		o.Settings = map[string]string{"autovacuum": "off"}
	}).URL)
	tx, err := pool.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec := plans.Executes(t, tx)
	run := func(sql string) (lines []string) {
		t.Helper()
		got, err := tx.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
		for _, row := range got[0].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	const tenants = "array_fill('ten_1'::text, '{100}')"
	orders := "'{ord_1"
	for n := 2; n <= 100; n++ {
		orders += fmt.Sprintf(",ord_%d", n)
	}
	orders += "}'"
	execute := map[string]string{
		"payments": "EXECUTE payments(" + tenants + ", " + orders + ")",
		"refunds":  "EXECUTE refunds(" + tenants + ", " + orders + ")",
		"orders":   "EXECUTE orders('1 hour', " + tenants + ", " + orders + ")",
	}
	exec("SET LOCAL plan_cache_mode = force_generic_plan")
	exec("SET LOCAL ROLE payonce_service")
	exec("SET LOCAL payonce.tenants = '*'")
	for name, sql := range map[string]string{
		"payments": db.ReconcilePayments, "refunds": db.ReconcileRefunds, "orders": db.ReconcileOrders,
	} {
		exec("PREPARE " + name + " AS " + sql)
		defer func() { _, _ = tx.Exec(t.Context(), "DEALLOCATE "+name) }()
		run("EXPLAIN " + execute[name])
	}
	exec("RESET ROLE")
	exec(`INSERT INTO orders (tenant_id, id, amount_minor, currency, items, created_at)
		SELECT 'ten_1', 'ord_' || n, 1000, 'usd', '[]', now() FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
			intent_number, intent_id, created_at)
		SELECT 'ten_1', 'pay_' || n, 'ord_' || n, 'k' || n, 1000, 'usd', 'pm_1', 1, 'pi_' || n, now()
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id, resource_id,
			recovery_point, claim_token, leased_until, next_attempt_at, finished_at, answer_version, answer_status,
			answer_headers, answer_body)
		SELECT 'ten_1', 'k' || n, 'create_payment', sha256('x'), 1, 'req', 'pay', 'finished', gen_random_uuid(), now(),
			now(), now(), 1, 201, '', '' FROM generate_series(1, 20000) n`)
	exec("SET LOCAL ROLE payonce_service")
	for name, sql := range execute {
		plan := strings.Join(run("EXPLAIN (ANALYZE, BUFFERS) "+sql), "\n")
		m := regexp.MustCompile(`Buffers: shared hit=(\d+)`).FindStringSubmatch(plan)
		require.NotNil(t, m, plan)
		read := 0
		_, _ = fmt.Sscan(m[1], &read)
		assert.Less(t, read, 100*20, "%s\n%s", name, plan)
	}
}
