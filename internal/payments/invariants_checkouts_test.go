package payments_test

import (
	"net/http"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// Checkouts: a completed one.
func init() {
	invariantParts = append(invariantParts, invariantPart{fill: func(b *world.Books) {
		require.Equal(b.T, http.StatusOK, b.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		checkout := b.API.Post("/v1/checkouts", "checkout",
			`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],"payment_method":"pm_card_visa"}`)
		require.Equal(b.T, http.StatusCreated, checkout.Status, checkout)
	}, cases: []brokenPromise{
		{"I14", "UndoneWhileThePaymentIsUnknown",
			"UPDATE checkout_steps SET status = CASE step WHEN 'pay' THEN 'unknown' ELSE 'done' END::saga_step_status " +
				"WHERE step IN ('pay', 'release_stock')"},
		{"I16", "AnOpenStepOfAnEndedCheckout", "UPDATE checkout_steps SET status = 'running' WHERE step = 'pay'"},
		{"I16", "StockThatNobodyHolds", "UPDATE stock SET reserved = 1"},
	}})
}
