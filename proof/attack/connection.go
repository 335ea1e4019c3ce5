package main

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// stolenConnection: the service's own role is refused what the service never does.
var stolenConnection = attack{
	name: "stolen connection string", who: "who has the service's connection string",
	tries: "to read without naming a tenant, and what others type in their sessions; as all tenants: another role, the guards taken away, programs and files of the server, money moved on, answers, events, bookings and the trail changed or deleted",
	holds: "no row without a tenant; each statement is refused, and the victim's rows are as they were",
	run: func(ctx context.Context, s *site) (string, error) {
		pool, err := postgres.Open(ctx, s.service, postgres.Options{MaxConn: 1})
		if err != nil {
			return "", fmt.Errorf("connect as the service does: %w", err)
		}
		defer pool.Close()
		read, err := readUnnamed(ctx, pool)
		if err != nil {
			return "", err
		}
		conn, err := pool.Raw().Acquire(ctx)
		if err != nil {
			return "", err
		}
		defer conn.Release()
		if _, err := conn.Exec(ctx, "SET payonce.tenants = '*'"); err != nil {
			return "", err
		}
		if err := s.readsNoSQLOfOthers(ctx, conn.Conn()); err != nil {
			return "", err
		}
		tried := 0
		err = s.untouched(ctx, func() error {
			for _, sql := range notForTheService {
				tag, err := conn.Exec(ctx, s.owned.in(sql))
				var refused interface{ SQLState() string }
				switch {
				case err == nil && tag.RowsAffected() == 0 && (tag.Update() || tag.Delete()):
					return fmt.Errorf("%s: there is no such row to try it on", sql)
				case err == nil:
					return didNotHold("%s: %s", sql, tag)
				case !errors.As(err, &refused):
					return fmt.Errorf("%s: %w", sql, err)
				}
				switch refused.SQLState() {
				case "42501", "23000", "23505", "23514": // no permission; a trigger, an index, a constraint
				default:
					return fmt.Errorf("%s: %w", sql, err)
				}
				tried++
			}
			return nil
		})
		return fmt.Sprintf("no row of %d tables without a tenant; %d statements, each refused", read, tried), err
	},
}

// readsNoSQLOfOthers looks for what somebody types in another session of the server, as a new password.
func (s *site) readsNoSQLOfOthers(ctx context.Context, conn db.DBTX) error {
	const typed = "a password that somebody types"
	if _, err := s.pool.Raw().Exec(ctx, "SELECT '"+typed+"'"); err != nil {
		return err
	}
	var others, shown int
	if err := conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE query LIKE '%' || $1 || '%') FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`, typed).Scan(&others, &shown); err != nil {
		return fmt.Errorf("read pg_stat_activity: %w", err)
	}
	switch {
	case shown > 0:
		return didNotHold("the SQL of another session is shown")
	case others == 0:
		return errors.New("there is no other session")
	}
	return nil
}

// notForTheService are statements of which the victim's objects, or all, are the subject.
var notForTheService = []string{
	// Another role, and the guards.
	"SET ROLE payonce_owner",
	"SET SESSION AUTHORIZATION payonce_owner",
	"SET session_replication_role = replica",
	"ALTER ROLE payonce_service SUPERUSER",
	"CREATE ROLE friend LOGIN",
	"GRANT payonce_owner TO payonce_service",
	"ALTER TABLE payments DISABLE TRIGGER ALL",
	"ALTER TABLE payments DROP CONSTRAINT refunds_never_exceed_payment",
	"DROP TRIGGER payment_transition_is_legal ON payments",
	"DROP POLICY tenants_in_scope ON payments",
	"CREATE OR REPLACE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
	"CREATE TABLE loot AS SELECT * FROM payments",
	"CREATE TEMP TABLE ledger_entries (LIKE ledger_entries)", // which a trigger would read
	"TRUNCATE payments CASCADE",
	"DROP TABLE ledger_entries",
	// The server.
	"ALTER SYSTEM SET fsync = off",
	"COPY payments TO PROGRAM 'cat'",
	"SELECT pg_read_file('postgresql.conf')",
	"SELECT lo_import('/etc/passwd')",
	"CREATE EXTENSION dblink",
	// Money.
	"UPDATE payments SET amount_minor = 1 WHERE id = 'PAYMENT'",
	"UPDATE payments SET status = 'failed', failure_code = 'x' WHERE id = 'PAYMENT'",
	"UPDATE payments SET intent_id = 'pi_of_another' WHERE id = 'PAYMENT'",
	"UPDATE payments SET charge_id = 'ch_of_another' WHERE id = 'PAYMENT'",
	"UPDATE payments SET amount_refunding_minor = amount_minor + 1 WHERE id = 'PAYMENT'",
	"UPDATE payments SET version = 1 WHERE id = 'PAYMENT'",
	"DELETE FROM payments WHERE id = 'PAYMENT'",
	"UPDATE orders SET amount_minor = 1 WHERE id = 'ORDER'",
	"UPDATE orders SET status = 'open' WHERE id = 'ORDER'",
	"UPDATE orders SET payment_id = 'pay_of_another' WHERE id = 'ORDER'",
	"DELETE FROM orders WHERE id = 'ORDER'",
	"UPDATE refunds SET amount_minor = 1 WHERE id = 'REFUND'",
	"UPDATE refunds SET status = 'pending' WHERE id = 'REFUND'",
	"DELETE FROM refunds WHERE id = 'REFUND'",
	`INSERT INTO payments (tenant_id, id, order_id, idempotency_key, currency, payment_method, created_at, amount_minor, intent_number)
		SELECT tenant_id, 'pay_of_another', id, 'another', currency, 'pm', now(), amount_minor, 1 FROM orders WHERE id = 'ORDER'`,
	// What was promised under a key.
	"UPDATE idempotency_keys SET answer_body = 'x' WHERE key = 'KEY'",
	"UPDATE idempotency_keys SET answer_status = 402 WHERE key = 'KEY'",
	"UPDATE idempotency_keys SET fingerprint = sha256('x') WHERE key = 'KEY'",
	"UPDATE idempotency_keys SET resource_id = 'pay_of_another' WHERE key = 'KEY'",
	"DELETE FROM idempotency_keys WHERE key = 'KEY'",
	// A response that is dropped, deleted and inserted again, with what makes the key look old.
	`UPDATE idempotency_keys SET answer_dropped_at = now(), request = NULL, answer_version = NULL, answer_status = NULL,
		answer_headers = NULL, answer_body = NULL WHERE key = 'KEY'`,
	"UPDATE idempotency_keys SET created_at = '2020-01-01' WHERE key = 'KEY'",
	"UPDATE idempotency_keys SET finished_at = '2020-01-01' WHERE key = 'KEY'",
	`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, resource_id, request_id,
			claim_token, leased_until, next_attempt_at, recovery_point, finished_at, answer_version, answer_status, answer_headers, answer_body)
		SELECT tenant_id, 'another', operation, fingerprint, 1, resource_id, 'req', claim_token, now(), now(), 'finished', now(), 1, 201, '', '{}'
		FROM idempotency_keys WHERE key = 'KEY'`,
	// Any bytes behind the mark of an encrypted value: under a key that is unknown, and under the one that is in use.
	"UPDATE idempotency_keys SET answer_body = '\\x00504f0199999999'::bytea || substr(answer_body, 9) WHERE key = 'KEY'",
	"UPDATE idempotency_keys SET answer_body = overlay(answer_body PLACING '\\x99' FROM 45) WHERE key = 'KEY'",
	"UPDATE tenants SET fingerprint_secret = '\\x00504f0199999999'::bytea || substr(fingerprint_secret, 9)",
	`INSERT INTO tenants (id, name, fingerprint_secret)
		SELECT 'ten_of_another', 'x', '\x00504f0199999999'::bytea || substr(fingerprint_secret, 9) FROM tenants LIMIT 1`,
	"UPDATE webhook_secrets SET secret = '\\x00504f0199999999'::bytea || substr(secret, 9)",
	"INSERT INTO data_keys (id, plain_until) VALUES ('\\x99999999', 'infinity')",
	"UPDATE data_keys SET plain_until = 'infinity'",
	"UPDATE retention_floor SET answers = '0', tombstones = '0'",
	// What was said, booked and done.
	"UPDATE outbox_events SET type = 'order.created' WHERE aggregate_id = 'PAYMENT'",
	"UPDATE outbox_events SET data = '{}' WHERE aggregate_id = 'PAYMENT'",
	"UPDATE outbox_events SET published_at = now() - interval '1 year' WHERE aggregate_id = 'PAYMENT'",
	"DELETE FROM outbox_events WHERE aggregate_id = 'PAYMENT'",
	"UPDATE ledger_entries SET amount_minor = -amount_minor",
	"DELETE FROM ledger_entries",
	`INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
		SELECT tenant_id, 'evt_of_another', 1, 'cash', 1, 'usd', id FROM payments WHERE id = 'PAYMENT'`,
	"UPDATE operator_actions SET reason = 'none'",
	"DELETE FROM operator_actions",
	"DELETE FROM erasures",
	"UPDATE tenants SET fingerprint_secret = sha256('x')",
	"DELETE FROM tenants",
}

// readUnnamed reads every table of tenants without saying whose rows are meant.
func readUnnamed(ctx context.Context, pool *postgres.Pool) (tables int, err error) {
	rows, err := pool.Raw().Query(ctx, `
		SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND column_name = 'tenant_id'`)
	if err != nil {
		return 0, fmt.Errorf("list the tables of tenants: %w", err)
	}
	names := []string{"tenants"}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, fmt.Errorf("list the tables of tenants: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("list the tables of tenants: %w", err)
	}
	for _, name := range names {
		var n int
		if err := pool.Raw().QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %q", name)).Scan(&n); err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		if n > 0 {
			return 0, didNotHold("%d rows of %s without a tenant", n, name)
		}
		tables++
	}
	if tables < 10 {
		return 0, fmt.Errorf("%d tables have tenants", tables)
	}
	return tables, nil
}
