package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/db/dbtest"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
	"example.com/payonce/internal/outbox"
)

const tenant = "tnt_a"

func event(aggregateID string, version int64, kind string, amount int) outbox.Event {
	return outbox.Event{TenantID: tenant, AggregateID: aggregateID, Version: version, Type: kind,
		Data: fmt.Appendf(nil, `{"id":%q,"amount":%d,"currency":"eur"}`, aggregateID, amount)}
}

func message(t testing.TB, e outbox.Event) inbox.Message {
	t.Helper()
	body, err := json.Marshal(outbox.Envelope{ID: outbox.EventID(e.AggregateID, e.Version), Type: e.Type, Subject: e.AggregateID,
		TenantID: e.TenantID, Version: e.Version, Time: time.Now(), Data: e.Data})
	require.NoError(t, err)
	return inbox.Message{ID: outbox.EventID(e.AggregateID, e.Version), Type: e.Type, TenantID: e.TenantID, Subject: e.AggregateID, Version: e.Version, Body: body}
}

func count(t testing.TB, pool *db.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(t.Context(), sql).Scan(&n))
	return n
}

func TestLedger(t *testing.T) {
	t.Parallel()

	setup := func(t *testing.T) (*db.Pool, func(...outbox.Event)) {
		pool := dbtest.New(t)
		c := inbox.NewConsumer(pool, ledger.Name, ledger.Handler(), nil)
		return pool, func(events ...outbox.Event) {
			for _, e := range events {
				require.NoError(t, c.Handle(t.Context(), message(t, e)))
			}
		}
	}
	balances := func(t *testing.T, pool *db.Pool) map[string]int64 {
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
		pool, handle := setup(t)
		for range 3 {
			handle(event("pay_1", 1, "payment.created", 5000), event("pay_1", 2, "payment.succeeded", 5000),
				event("rfd_1", 1, "refund.created", 1200), event("rfd_1", 2, "refund.succeeded", 1200))
		}
		require.Equal(t, map[string]int64{"stripe eur": 3800, "sales eur": -5000, "refunds eur": 1200}, balances(t, pool))
		require.Equal(t, 4, count(t, pool, "SELECT count(*) FROM ledger_entries"))
	})

	t.Run("TakesBackARefundThatTheBankReturned", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t)
		handle(event("pay_1", 2, "payment.succeeded", 5000), event("rfd_1", 2, "refund.succeeded", 1200), event("rfd_1", 3, "refund.failed", 1200),
			event("rfd_2", 2, "refund.failed", 700)) // this one never succeeded
		require.Equal(t, map[string]int64{"stripe eur": 5000, "sales eur": -5000, "refunds eur": 0}, balances(t, pool))
	})

	t.Run("ParksWhatItCannotBook", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t)
		handle(event("pay_1", 2, "payment.succeeded", 0), event("pay_2", 2, "payment.succeeded", -5))
		nonsense := event("pay_3", 2, "payment.succeeded", 1)
		nonsense.Data = []byte(`"five euros"`)
		handle(nonsense)
		require.Equal(t, 3, count(t, pool, "SELECT count(*) FROM inbox_events WHERE status = 'parked'"))
		require.Empty(t, balances(t, pool))
	})

	t.Run("IsRefusedByTheDatabaseWhenItDoesNotBalance", func(t *testing.T) {
		t.Parallel()
		pool, handle := setup(t)
		book := func(amounts ...int64) error {
			return pool.InTx(t.Context(), func(q *db.Queries) error {
				return q.LedgerBook(t.Context(), db.LedgerBookParams{TenantID: tenant, EventID: "evt", Currency: "eur", ResourceID: "pay_1",
					Accounts: []string{"stripe", "sales"}, AmountsMinor: amounts})
			})
		}
		require.True(t, db.Violates(book(100, -99), "entries_of_an_event_sum_to_zero"))
		require.NoError(t, book(100, -100))
		require.True(t, db.Violates(book(100, -100), "ledger_entries_pkey"))
		handle(event("pay_1", 2, "payment.succeeded", 5000))
		for _, sql := range []string{"UPDATE ledger_entries SET amount_minor = 1", "DELETE FROM ledger_entries"} {
			_, err := pool.Raw().Exec(t.Context(), sql)
			require.True(t, db.Violates(err, "booked_is_booked"), "%v", err)
		}
		// Half of another event's entries, in the same transaction as balanced ones.
		_, err := pool.Raw().Exec(t.Context(), `INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
			VALUES ('tnt_a', 'evt2', 1, 'stripe', 5, 'eur', 'x'), ('tnt_a', 'evt2', 2, 'sales', -5, 'usd', 'x')`)
		require.True(t, db.Violates(err, "entries_of_an_event_sum_to_zero"), "each currency by itself: %v", err)
	})
}
