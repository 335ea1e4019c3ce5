package reconcile_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
	"example.com/payonce/testkit/world"
)

// published is what the broker has of the events in a database: it keeps them
// whatever becomes of that.
func published(b *world.Books) (log []inbox.Message) {
	b.T.Helper()
	for _, e := range b.Events() {
		body, err := json.Marshal(e)
		require.NoError(b.T, err)
		log = append(log, inbox.Message{ID: e.ID, Type: e.Type, TenantID: e.TenantID, Subject: e.Subject,
			Version: e.Version, Body: body})
	}
	return log
}

// book delivers events to the ledger, and tries again what waits there.
func book(b *world.Books, log []inbox.Message) {
	b.T.Helper()
	consumer := inbox.NewConsumer(b.DB, ledger.Name, ledger.Handler(), nil)
	for _, m := range log {
		require.NoError(b.T, consumer.Handle(b.T.Context(), m))
	}
	b.Exec("UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'")
	processor := inbox.NewProcessor(b.DB, map[string]inbox.Handler{ledger.Name: ledger.Handler()},
		inbox.ProcessorOptions{AtOnce: 100})
	_, err := processor.RunOnce(b.T.Context())
	require.NoError(b.T, err)
}

func sales(b *world.Books) int {
	b.T.Helper()
	return -b.Count("SELECT coalesce(sum(amount_minor), 0) FROM ledger_entries WHERE account = 'sales'")
}

// The database goes back and takes the books with it, the broker does not: it
// delivers what happened in the time that was lost. The books say what the
// payments say, before, while and after the reconciler has adopted the money.
func TestRestoreAndTheLedger(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	kept, plain, refunded := b.API.Order(), b.API.Order(), b.API.Order()
	require.Equal(t, http.StatusCreated, b.API.Pay("kept", kept, "pm_card_visa").Status)
	book(b, published(b))
	b.Reconcile()
	dsn := b.CopyDatabase()

	require.Equal(t, http.StatusCreated, b.API.Pay("plain", plain, "pm_card_visa").Status)
	payment := b.API.Pay("refunded", refunded, "pm_card_visa")
	require.Equal(t, http.StatusCreated, payment.Status)
	require.Equal(t, http.StatusCreated,
		b.API.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":400}`).Status)
	gone := b.API.Order() // goes with the database, and with it the proof of what its payment is for
	require.Equal(t, http.StatusCreated, b.API.Pay("gone", gone, "pm_card_visa").Status)
	late := published(b)

	r := world.BooksOn(b.OnDatabase(dsn))
	book(r, late)
	require.Equal(t, 1000, sales(r), "only what this database knows of is booked")
	booked := func() map[string]int { return withoutWork(r.Audit().Offends()) }
	require.Equal(t, map[string]int{"I8e": 3}, booked(), "three ghosts, and no word against the books")

	r.Reconcile()
	book(r, published(r))
	book(r, late) // the broker repeats itself
	require.Equal(t, 3000, sales(r))
	require.Equal(t, map[string]int{"I8e": 1}, booked(), "the payment of the order that is gone is left, for a person")
	require.Equal(t, 400, r.Count("SELECT sum(amount_minor) FROM ledger_entries WHERE account = 'refunds'"))
	require.Equal(t, 1, r.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"),
		"its event waits, and will be parked")
	require.Equal(t, 1, r.Count("SELECT count(*) FROM inbox_events WHERE status = 'done' AND consumer = 'ledger' "+
		"AND type = 'payment.succeeded' AND subject NOT IN (SELECT id FROM payments)"),
		"the one that was adopted under another id")
}
