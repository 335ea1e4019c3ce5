package payments_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/testbed"
)

var statementName = regexp.MustCompile(`name: (\w+) `)

// TestRoundTrips counts what a request costs at the database. Each statement is
// a round trip, and each that writes a commit; one more of either is slower than
// anything that could be tuned in Go.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	_, api, proxy := proxied(t, testbed.LocalOptions{MaxConn: 1})
	order := api.Order() // also authenticates, and that is remembered for a second
	seen := func() (names []string) {
		for _, statement := range proxy.Seen() {
			if m := statementName.FindStringSubmatch(statement); m == nil {
				names = append(names, statement) // begin, commit
			} else if m[1] != "APIKeyAuthenticate" {
				names = append(names, m[1])
			}
		}
		return names
	}
	proxy.Seen()

	require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup", "OrderToPay", "PaymentBegin", "PaymentIntentRecord", "PaymentFinish"}, seen())

	require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup"}, seen(), "a replay is one read")

	require.Equal(t, http.StatusUnprocessableEntity, api.Pay("k", order, "pm_card_mastercard").Status)
	require.Equal(t, []string{"KeyLookup"}, seen())

	second := api.Order()
	require.Equal(t, http.StatusPaymentRequired, api.Pay("declined", second, "pm_card_visa_chargeDeclined").Status)
	seen()
	require.Equal(t, http.StatusCreated, api.Pay("other-card", second, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup", "OrderToPay", "PaymentBegin", "PaymentFinish"}, seen(), "the order has its intent already")
}
