package disputes_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
)

// book delivers every event to the ledger, twice.
func (b bench) book() {
	b.t.Helper()
	consumer := inbox.NewConsumer(b.api.Pool, ledger.Name, ledger.WithDisputes(ledger.Handler()),
		inbox.NewMetrics(nil))
	var messages []inbox.Message
	for _, e := range b.Events() {
		body, err := json.Marshal(e)
		require.NoError(b.t, err)
		messages = append(messages, inbox.Message{
			ID: e.ID, Type: e.Type, TenantID: e.TenantID, Subject: e.Subject, Version: e.Version, Body: body,
		})
	}
	for range 2 {
		for _, m := range messages {
			require.NoError(b.t, consumer.Handle(b.t.Context(), m))
		}
	}
}

func (b bench) balances() string {
	return b.Text(`SELECT string_agg(account || ' ' || sum || ' ' || currency, ', ' ORDER BY account, currency) FROM (
		SELECT account, currency, sum(amount_minor) FROM ledger_entries GROUP BY account, currency) s`)
}

// The money that a dispute takes and gives back is in the books, each movement once.
func TestLedgerBooksEachMovementOfDisputeOnce(t *testing.T) {
	t.Parallel()
	b := paid(t)
	id := b.dispute(false)
	b.rounds()
	b.book()
	require.Equal(t, "disputes 1000 usd, fees 1500 usd, sales -1000 usd, stripe -1500 usd", b.balances())
	b.sound()
	b.evidence(id, "winning_evidence")
	b.rounds()
	b.book()
	require.Equal(t, "disputes 0 usd, fees 1500 usd, sales -1000 usd, stripe -500 usd", b.balances())
	b.sound()
	b.Unguarded("UPDATE ledger_entries SET amount_minor = amount_minor * 2 WHERE resource_id LIKE 'dsp_%'")
	checks, err := b.api.Pool.Invariants(t.Context())
	require.NoError(t, err)
	for _, c := range checks {
		if c.ID == "I24c" {
			require.Len(t, c.Rows, 1, "what the ledger has too much is found")
		}
	}
}

// A dispute in another currency than the account's is booked in the account's.
func TestLedgerBooksDisputeInTheCurrencyOfTheAccount(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	b.rounds()
	b.Unguarded("UPDATE dispute_movements SET currency = 'cad', amount_minor = -1391, net_minor = -1391 - fee_minor")
	b.book()
	require.Equal(t, "disputes 1391 cad, fees 1500 cad, sales -1000 usd, stripe -2891 cad, stripe 1000 usd",
		b.balances())
	b.sound()
}
