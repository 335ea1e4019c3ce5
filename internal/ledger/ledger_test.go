package ledger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

const tenant = "tnt_a"

func event(aggregateID string, version int64, kind string, amount int) outbox.Event {
	return outbox.Event{TenantID: tenant, AggregateID: aggregateID, Version: version, Type: kind,
		Data: fmt.Appendf(nil, `{"id":%q,"amount":%d,"currency":"eur"}`, aggregateID, amount)}
}

func message(t testing.TB, e outbox.Event) inbox.Message {
	t.Helper()
	body, err := json.Marshal(outbox.Envelope{ID: outbox.EventID(e.AggregateID, e.Version), Type: e.Type,
		Subject:  e.AggregateID,
		TenantID: e.TenantID, Version: e.Version, Time: time.Now(), Data: e.Data})
	require.NoError(t, err)
	return inbox.Message{ID: outbox.EventID(e.AggregateID, e.Version), Type: e.Type, TenantID: e.TenantID,
		Subject: e.AggregateID, Version: e.Version, Body: body}
}

// The rows of payments and refunds that the events are about.
const (
	insertPayments = `INSERT INTO payments (tenant_id, id, version, status, order_id, idempotency_key, amount_minor,
		currency, payment_method, intent_number, intent_id, created_at)
		SELECT 'tnt_a', p.id, 2, 'succeeded', 'ord_of_' || p.id, p.id, p.amount, 'eur', 'pm_card_visa', 1,
			'pi_of_' || p.id, now() FROM %s AS p(id, amount)`
	insertRefunds = `INSERT INTO refunds (tenant_id, id, version, status, origin, payment_id, order_id, idempotency_key,
		stripe_key, amount_minor, currency, stripe_refund_id, created_at)
		SELECT 'tnt_a', r.id, r.version, r.status::refund_status, 'api', 'pay_1', 'ord_of_pay_1', r.id, 'tnt_a:' || r.id,
			r.amount, 'eur', 're_of_' || r.id, now() FROM %s AS r(id, amount, version, status)`
)

func run(t testing.TB, pool *postgres.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Raw().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func count(t testing.TB, pool *postgres.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(t.Context(), sql).Scan(&n))
	return n
}

func payments(values string) string { return fmt.Sprintf(insertPayments, "(VALUES "+values+")") }
func refunds(values string) string  { return fmt.Sprintf(insertRefunds, "(VALUES "+values+")") }

func TestLedger(t *testing.T) {
	t.Parallel()

	setup := func(t *testing.T, rows ...string) (*postgres.Pool, func(...outbox.Event)) {
		pool := dbtest.New(t)
		for _, sql := range rows {
			run(t, pool, sql)
		}
		c := inbox.NewConsumer(pool, ledger.Name, ledger.Handler(), nil)
		return pool, func(events ...outbox.Event) {
			for _, e := range events {
				require.NoError(t, c.Handle(t.Context(), message(t, e)))
			}
		}
	}
	balances := func(t *testing.T, pool *postgres.Pool) map[string]int64 {
		list, err := ledger.Balances(t.Context(), pool.Queries, tenant)
		require.NoError(t, err)
		sums := map[string]int64{}
		for _, b := range list {
			sums[b.Account+" "+b.Currency] = b.AmountMinor
		}
		return sums
	}

	t.Run("BooksPaymentsAndRefundsOnce", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t, payments("('pay_1', 5000)"), refunds("('rfd_1', 1200, 2, 'succeeded')"))
		for range 3 {
			handle(event("pay_1", 1, "payment.created", 5000), event("pay_1", 2, "payment.succeeded", 5000),
				event("rfd_1", 1, "refund.created", 1200), event("rfd_1", 2, "refund.succeeded", 1200))
		}
		require.Equal(t, map[string]int64{"stripe eur": 3800, "sales eur": -5000, "refunds eur": 1200},
			balances(t, pool))
		require.Equal(t, 4, count(t, pool, "SELECT count(*) FROM ledger_entries"))
	})

	// What was reserved is not the shop's yet, and what was not captured never will be.
	t.Run("BooksWhatWasCapturedOfAnAuthorization", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t, `INSERT INTO payments (tenant_id, id, version, status, order_id, idempotency_key,
			amount_minor, currency, payment_method, intent_number, intent_id, manual_capture, capture_before, created_at)
			VALUES ('tnt_a', 'pay_1', 2, 'authorized', 'ord_1', 'k', 5000, 'eur', 'pm_card_visa', 1, 'pi_1', true,
				now() + interval '7 days', now())`)
		about := func(version int64, kind string, captured int) outbox.Event {
			e := event("pay_1", version, kind, 5000)
			e.Data = fmt.Appendf(nil, `{"id":"pay_1","amount":5000,"amount_captured":%d,"currency":"eur"}`, captured)
			return e
		}
		handle(about(2, "payment.authorized", 0), about(3, "payment.canceled", 0))
		require.Empty(t, balances(t, pool))
		require.Zero(t, count(t, pool, "SELECT count(*) FROM inbox_events WHERE status = 'parked'"))

		run(t, pool, `UPDATE payments SET status = 'succeeded', captured_minor = 1700, capture_before = NULL,
			version = 3`)
		handle(about(3, "payment.succeeded", 1700))
		require.Equal(t, map[string]int64{"stripe eur": 1700, "sales eur": -1700}, balances(t, pool))
	})

	t.Run("ReversesARefundThatTheBankReturned", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t, payments("('pay_1', 5000)"),
			refunds("('rfd_1', 1200, 3, 'failed'), ('rfd_2', 700, 2, 'failed')"))
		handle(event("pay_1", 2, "payment.succeeded", 5000), event("rfd_1", 2, "refund.succeeded", 1200),
			event("rfd_1", 3, "refund.failed", 1200),
			event("rfd_2", 2, "refund.failed", 700)) // this one never succeeded
		require.Equal(t, map[string]int64{"stripe eur": 5000, "sales eur": -5000, "refunds eur": 0}, balances(t, pool))
	})

	// In Stripe's dashboard, and its success is received after its end.
	t.Run("BooksARefundThatWasCanceledAfterItsSuccess", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t, payments("('pay_1', 5000)"), refunds("('rfd_1', 1200, 3, 'canceled')"))
		handle(event("pay_1", 2, "payment.succeeded", 5000), event("rfd_1", 2, "refund.succeeded", 1200),
			event("rfd_1", 3, "refund.failed", 1200))
		require.Equal(t, map[string]int64{"stripe eur": 5000, "sales eur": -5000, "refunds eur": 0}, balances(t, pool))
	})

	t.Run("ParksEventsItCannotBook", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t)
		handle(event("pay_1", 2, "payment.succeeded", 0), event("pay_2", 2, "payment.succeeded", -5))
		nonsense := event("pay_3", 2, "payment.succeeded", 1)
		nonsense.Data = []byte(`"five euros"`)
		handle(nonsense)
		require.Equal(t, 3, count(t, pool, "SELECT count(*) FROM inbox_events WHERE status = 'parked'"))
		require.Empty(t, balances(t, pool))
	})

	t.Run("DatabaseRefusesUnbalancedEntries", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t, payments("('pay_1', 5000)"))
		book := func(amounts ...int64) error {
			return pool.InTx(t.Context(), func(q *db.Queries) error {
				return q.LedgerBook(t.Context(), db.LedgerBookParams{TenantID: tenant, EventID: "evt",
					Currency: "eur", ResourceID: "pay_1",
					Accounts: []string{"stripe", "sales"}, AmountsMinor: amounts})
			})
		}
		require.True(t, postgres.Violates(book(100, -99), "entries_of_an_event_sum_to_zero"))
		require.NoError(t, book(100, -100))
		require.True(t, postgres.Violates(book(100, -100), "ledger_entries_pkey"))
		handle(event("pay_1", 2, "payment.succeeded", 5000))
		for _, sql := range []string{"UPDATE ledger_entries SET amount_minor = 1", "DELETE FROM ledger_entries"} {
			_, err := pool.Raw().Exec(t.Context(), sql)
			require.True(t, postgres.Violates(err, "ledger_entry_is_immutable"), "%v", err)
		}
		// Half of another event's entries, in the same transaction as balanced ones.
		_, err := pool.Raw().Exec(t.Context(), `INSERT INTO ledger_entries (tenant_id, event_id, line, account,
			amount_minor, currency, resource_id)
			VALUES ('tnt_a', 'evt2', 1, 'stripe', 5, 'eur', 'x'), ('tnt_a', 'evt2', 2, 'sales', -5, 'usd', 'x')`)
		require.True(t, postgres.Violates(err, "entries_of_an_event_sum_to_zero"), "each currency on its own: %v", err)
	})
}

// After a restore the broker still delivers events of payments that the database does not
// contain any more.
func TestLedgerWaitsForPaymentsLostInARestore(t *testing.T) {
	t.Parallel()

	type books struct {
		pool      *postgres.Pool
		handle    func(outbox.Event)
		processor *inbox.Processor
	}
	setup := func(t *testing.T, rows ...string) books {
		pool := dbtest.New(t)
		run(t, pool, `INSERT INTO tenants (id, name, fingerprint_secret)
			VALUES ('tnt_a', 'test', '0123456789abcdef0123456789abcdef')`)
		for _, sql := range rows {
			run(t, pool, sql)
		}
		c := inbox.NewConsumer(pool, ledger.Name, ledger.Handler(), nil)
		return books{pool, func(e outbox.Event) { require.NoError(t, c.Handle(t.Context(), message(t, e))) },
			inbox.NewProcessor(pool, map[string]inbox.Handler{ledger.Name: ledger.Handler()}, inbox.ProcessorOptions{})}
	}
	again := func(t *testing.T, b books) {
		t.Helper()
		run(t, b.pool, "UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'")
		_, err := b.processor.RunOnce(t.Context())
		require.NoError(t, err)
	}
	status := func(t *testing.T, b books, event string) (s string) {
		t.Helper()
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(), "SELECT status FROM inbox_events WHERE event_id = $1",
			event).Scan(&s))
		return s
	}
	booked := func(t *testing.T, b books) int {
		return count(t, b.pool, "SELECT count(DISTINCT event_id) FROM ledger_entries")
	}
	unbalanced := func(t *testing.T, b books) (rows []postgres.Violation) {
		t.Helper()
		checks, err := b.pool.Invariants(t.Context())
		require.NoError(t, err)
		for _, c := range checks {
			if c.ID == "I7a" || c.ID == "I8a" || c.ID == "I8b" {
				rows = append(rows, c.Rows...)
			}
		}
		return rows
	}

	for name, wrong := range map[string]string{
		"NotHere": "SELECT 1",
		"NotThereYet": strings.NewReplacer("'succeeded'", "'processing'", ", 2, ",
			", 1, ").Replace(payments("('pay_1', 5000)")),
		"OfAnotherAmount": payments("('pay_1', 4999)"),
	} {
		t.Run("APayment/"+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, wrong)
			b.handle(event("pay_1", 2, "payment.succeeded", 5000))
			require.Equal(t, "pending", status(t, b, "pay_1-2"))
			again(t, b)
			require.Zero(t, booked(t, b))
			require.Equal(t, 1, count(t, b.pool,
				"SELECT count(*) FROM inbox_events WHERE last_error LIKE '%older copy restored%'"))

			run(t, b.pool, "DELETE FROM payments") // and then it is as it should be
			run(t, b.pool, payments("('pay_1', 5000)"))
			again(t, b)
			require.Equal(t, "done", status(t, b, "pay_1-2"))
			require.Equal(t, 1, booked(t, b))
			require.Empty(t, unbalanced(t, b))
		})
	}

	t.Run("DoesNotBookAPaymentImportedUnderAnotherID", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		lost := event("pay_lost", 2, "payment.succeeded", 5000)
		lost.Data = []byte(`{"id":"pay_lost","amount":5000,"currency":"eur","order_id":"ord_of_pay_1",` +
			`"stripe":{"payment_intent":"pi_of_pay_1"}}`)
		b.handle(lost)
		again(t, b)
		require.Equal(t, "pending", status(t, b, "pay_lost-2"))
		run(t, b.pool, payments("('pay_1', 5000)"))
		b.handle(event("pay_1", 2, "payment.succeeded", 5000))
		again(t, b)
		require.Equal(t, "done", status(t, b, "pay_lost-2"))
		require.Equal(t, 1, booked(t, b), "the money came once")
		require.Empty(t, unbalanced(t, b))
	})

	t.Run("ARefund", func(t *testing.T) {
		t.Parallel()
		b := setup(t, refunds("('rfd_1', 1200, 1, 'pending'), ('rfd_3', 500, 2, 'failed')"))
		b.handle(event("rfd_1", 2, "refund.succeeded", 1200))
		b.handle(event("rfd_1", 3, "refund.failed", 1200))
		b.handle(event("rfd_2", 2, "refund.succeeded", 700))
		b.handle(event("rfd_3", 2, "refund.succeeded", 500)) // here it failed instead
		again(t, b)
		require.Zero(t, booked(t, b))
		run(t, b.pool, "UPDATE refunds SET status = 'succeeded', version = 2 WHERE id = 'rfd_1'")
		run(t, b.pool, refunds("('rfd_2', 700, 2, 'succeeded')"))
		again(t, b)
		again(t, b)
		require.Equal(t, "done", status(t, b, "rfd_1-2"))
		require.Equal(t, "pending", status(t, b, "rfd_1-3"), "it has not failed here")
		require.Equal(t, "done", status(t, b, "rfd_2-2"))
		require.Equal(t, "pending", status(t, b, "rfd_3-2"))
		run(t, b.pool, "UPDATE refunds SET status = 'failed', version = 3 WHERE id = 'rfd_1'")
		again(t, b)
		require.Equal(t, "done", status(t, b, "rfd_1-3"))
		require.Equal(t, 700, count(t, b.pool,
			"SELECT sum(amount_minor) FROM ledger_entries WHERE account = 'refunds'"))
		require.Empty(t, unbalanced(t, b))
	})

	t.Run("ParksEventsWhosePaymentNeverAppears", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.handle(event("pay_1", 2, "payment.succeeded", 5000))
		run(t, b.pool, "UPDATE inbox_events SET attempts = 19")
		again(t, b)
		require.Equal(t, "parked", status(t, b, "pay_1-2"))
		require.Zero(t, booked(t, b))
	})
}
