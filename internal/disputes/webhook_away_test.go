package disputes_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// TestOutageUsesUpNoAttemptOfADisputesWebhook: while Stripe is away nothing is said about the event.
func TestOutageUsesUpNoAttemptOfADisputesWebhook(t *testing.T) {
	t.Parallel()
	b := paid(t)
	mailbox := b.Mailbox()
	id := b.dispute(false)
	b.Sim.Inject(stripesim.Fault{Op: "*.get", Kind: stripesim.Refuse, Status: http.StatusBadGateway, Times: -1})
	for _, h := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.api.Receive(h).Status)
	}
	for range 25 {
		b.api.Process()
	}
	require.Zero(t, b.Count("SELECT count(*) FROM inbox_events WHERE status = 'parked'"))
	b.Sim.ClearFaults()
	for range 3 { // Both events are about the same dispute, and the later one may have to read it again.
		b.api.Process()
	}
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
	require.Zero(t, b.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"))
}
