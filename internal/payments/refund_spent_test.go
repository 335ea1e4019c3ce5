package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// A refund whose outcome only Stripe's list can show waits for a day and a half. If others have refunded so much
// meanwhile that Stripe could not make it any more, it has failed, and theirs are recorded.
func TestRefundThatFitsNoMoreIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.StoredError})
	require.Equal(t, http.StatusAccepted, refund(o.API, "ours", o.Payment).Status)
	for range 3 {
		o.ExpireLeases()
		o.API.Complete()
	}
	o.Dashboard(900)
	o.ExpireLeases()
	o.API.Complete()
	require.Equal(t, "refund-exceeds-payment", refund(o.API, "ours", o.Payment).Code())
	o.DeliverWebhooks()
	require.Equal(t, "api failed, provider succeeded",
		o.Text(`SELECT string_agg(origin || ' ' || status, ', ' ORDER BY origin) FROM refunds`))
}
