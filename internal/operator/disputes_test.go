package operator_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDisputesAreShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	p := d.person(t)
	require.Contains(t, p.get("/operator").says(), "No open disputes.")
	order := d.API.Order()
	paid := d.API.Pay("k", order, "pm_card_createDispute")
	require.Equal(t, http.StatusCreated, paid.Status)
	_, err := d.API.Disputes.RunOnce(t.Context())
	require.NoError(t, err)
	id, stripeID := d.Text("SELECT id FROM disputes"), d.Text("SELECT stripe_dispute_id FROM disputes")

	overview := p.get("/operator")
	require.Contains(t, overview.says(), "1 dispute needs a response")
	require.Contains(t, overview.says(), "That the cardholder ordered")
	require.Contains(t, overview.body, "https://dashboard.stripe.com/disputes/"+stripeID)
	for _, found := range []string{id, stripeID} {
		page := p.get("/operator/find?q=" + found)
		require.Equal(t, http.StatusOK, page.status)
		require.Contains(t, page.says(), stripeID)
		require.Contains(t, page.says(), order)
		require.Contains(t, page.says(), "needs_response")
	}
}
