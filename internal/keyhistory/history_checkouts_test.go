package keyhistory_test

import (
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

func init() { verdictsOfParts = append(verdictsOfParts, verdictsOfCheckouts) }

// verdictsOfCheckouts plays checkouts that complete and others that do not.
func verdictsOfCheckouts(b *world.Books) map[string]string {
	b.T.Helper()
	require.Equal(b.T, http.StatusOK, b.API.Do("PUT", "/v1/stock/tea", `{"available":3}`).Status)
	const body = `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],` +
		`"payment_method":"pm_card_visa"}`
	require.Equal(b.T, http.StatusCreated, b.API.Post("/v1/checkouts", "checkout", body).Status)
	require.Equal(b.T, http.StatusConflict, b.API.Post("/v1/checkouts", "no-stock", body).Status)
	require.Equal(b.T, http.StatusPaymentRequired,
		b.API.Post("/v1/checkouts", "no-money",
			strings.NewReplacer("pm_card_visa", "pm_card_visa_chargeDeclined", `"quantity":2`,
				`"quantity":1`).Replace(body)).Status)
	later := strings.TrimSuffix(strings.Replace(body, `"quantity":2`, `"quantity":1`, 1), "}") + `,"capture":"manual"}`
	require.Equal(b.T, http.StatusCreated, b.API.Post("/v1/checkouts", "captured", later).Status)
	require.Equal(b.T, http.StatusConflict, b.API.Post("/v1/checkouts", "released", later).Status)
	return map[string]string{
		"captured": `completed, charged once, ch_\w+`,
		"released": `compensated \(out_of_stock\), no money taken`,
		"checkout": `completed, charged once, ch_\w+`,
		"no-stock": `compensated \(out_of_stock\), no money taken`,
		"no-money": `compensated \(card_declined\), no money taken`,
	}
}
