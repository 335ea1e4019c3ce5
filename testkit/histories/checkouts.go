package histories

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
)

func init() { acts = append(acts, act{5, (*history).checkout}) }

// stocks puts teas on sale.
func stocks(h *history) {
	require.Equal(h, http.StatusOK, h.b.API.Do("PUT", "/v1/stock/tea", `{"available":40}`).Status)
}

func (h *history) checkout() {
	method, body := h.method(), shop.TwoTeas
	if h.IntN(2) == 0 {
		body = shop.TeasLater
	}
	h.ask(fmt.Sprintf("checks out with %s", body(method)[60:]), "/v1/checkouts", body(method))
}

// expires calls off the checkouts that no process works on.
func expires(h *history) {
	_, err := h.b.API.Checkouts.ExpireReservations(context.Background())
	require.NoError(h, err)
}

// requireWholeCheckouts fails the test if a checkout broke a promise. A person in the dashboard may refund what was
// completed.
func requireWholeCheckouts(h *history) {
	h.Helper()
	broken := slices.DeleteFunc(shop.Violations(h, h.b.DB.Raw(), h.b.Sim), func(v string) bool {
		return strings.HasPrefix(v, shop.OrderAsItEnded) && strings.Contains(v, "refunded") ||
			strings.HasPrefix(v, shop.StripeAsItEnded) && strings.Contains(v, " is completed, charged 1 times")
	})
	require.Empty(h, broken)
}
