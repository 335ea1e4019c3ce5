package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestWebhooksOutlastAnOutage: the refund is read from Stripe before its event is applied. While that cannot be done
// the event waits, however often it was tried; a response that is about the object counts.
func TestWebhooksOutlastAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  stripesim.Fault
		counts bool
	}{
		"ConnectionReset": {stripesim.Fault{Kind: stripesim.Reset}, false},
		"ServerError":     {stripesim.Fault{Kind: stripesim.Refuse}, false},
		"ProxyError":      {stripesim.Fault{Kind: stripesim.Refuse, Status: http.StatusBadGateway, HTML: true}, false},
		"RateLimit":       {stripesim.Fault{Kind: stripesim.RateLimited}, false},
		"KeyRejected":     {stripesim.Fault{Kind: stripesim.Unauthorized}, false},
		"Refusal":         {stripesim.Fault{Kind: stripesim.Refuse, Status: http.StatusBadRequest}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			mailbox, api := w.Mailbox(), w.Local(world.LocalOptions{})
			_, payment := paid(api)
			require.Equal(t, http.StatusCreated, refund(api, "r", payment).Status)
			mailbox.Take()
			require.NoError(t, w.Sim.FailRefund(w.Text(`SELECT stripe_refund_id FROM refunds`), "lost_or_stolen_card"))
			c.fault.Op, c.fault.Times = "intent.get", -1
			w.Sim.Inject(c.fault)
			for _, hook := range mailbox.Take() {
				require.Equal(t, http.StatusOK, api.Receive(hook).Status)
			}
			for range 25 { // more than any event is tried
				api.Process()
			}
			if c.counts {
				require.Positive(t, w.Count(`SELECT count(*) FROM inbox_events WHERE status = 'parked'`))
				return
			}
			require.Zero(t, w.Count(`SELECT count(*) FROM inbox_events WHERE status = 'parked' OR attempts > 0 AND status
				= 'pending'`))
			w.Sim.ClearFaults()
			api.Process()
			require.Zero(t, w.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
			require.Equal(t, "failed", w.Text(`SELECT status FROM refunds`))
			w.RequireSound()
		})
	}
}
