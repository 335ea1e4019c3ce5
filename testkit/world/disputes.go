package world

import (
	"context"
	"maps"
	"net/http"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/disputes"
)

func init() { parts = append(parts, addDisputes) }

// addDisputes wires disputes into a Local, as cmd/api's part_disputes.go does. All
// that this package knows about disputes is here and on the lines that are marked
// "part: disputes".
func addDisputes(l *Local, w *wiring) {
	maps.Copy(w.server.Paths, disputes.Paths())
	w.server.Disputes = l.Disputes
}

// Disputed makes the attempt's payment, whose charge is disputed at Stripe. The attempt's Value is Stripe's id of the
// dispute.
func (a *Attempt) Disputed() {
	a.Order = a.API.Order()
	made := a.API.Pay(a.Key, a.Order, "pm_card_visa")
	require.Equal(a, http.StatusCreated, made.Status, made)
	a.Payment = made.ID()
	id, err := a.Sim.OpenDispute(a.Text("SELECT charge_id FROM payments WHERE id = $1", a.Payment), "fraudulent", false)
	require.NoError(a, err)
	a.Value = id
}

// RecordedDispute is Disputed, and the dispute is recorded.
func (a *Attempt) RecordedDispute() {
	a.Disputed()
	require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
}

// HasDispute is the Check of a scene whose dispute is recorded once, with its status, the number of its movements and
// its events.
func HasDispute(status, movementsAndEvents string) func(a *Attempt) {
	return func(a *Attempt) {
		row := a.Text(`SELECT concat_ws(' ', status, (SELECT count(*) FROM dispute_movements m WHERE m.dispute_id = d.id),
				(SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = d.id))
			FROM disputes d WHERE stripe_dispute_id = $1`, a.Value)
		require.Equal(a, status+" "+movementsAndEvents, row)
		require.Equal(a, a.Text(`SELECT amount_disputed_minor FROM payments WHERE id = $1`, a.Payment),
			a.Text(`SELECT amount_disputed_minor FROM orders WHERE id = $1`, a.Order))
	}
}

// ReadDisputes reads one window of Stripe's list, and the disputes that are due.
func (a *Attempt) ReadDisputes() {
	a.Exec(`INSERT INTO reconciliation_windows (name, next_at) VALUES ('disputes month', 'infinity')
		ON CONFLICT (name) DO UPDATE SET next_at = 'infinity'`)
	a.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity', leased_until = '-infinity'
		WHERE name = 'disputes recent'`)
	a.Exec(`UPDATE disputes SET next_read_at = CASE WHEN stripe_dispute_id = $1 THEN now() - interval '1 day'
		ELSE 'infinity' END WHERE watched`, a.Value)
	_, err := a.API.Disputes.RunOnce(context.Background())
	a.Failed(err)
}
