package shop

import (
	"encoding/json"
	"net/http"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// Stocked has an attempt of a scene begin with ten teas.
func Stocked(a *world.Attempt) { StockedWith(a, `{"available":10}`) }

// StockedWith has an attempt of a scene begin with the teas of a body of PUT /v1/stock/tea.
func StockedWith(a *world.Attempt, body string) {
	require.Equal(a, http.StatusOK, a.API.Do("PUT", "/v1/stock/tea", body).Status)
}

// ChecksOut asks for the checkout of a body, in an attempt of a scene.
func ChecksOut(body string) func(a *world.Attempt) {
	return func(a *world.Attempt) { a.Answered(a.API.Post("/v1/checkouts", a.Key, body)) }
}

// EndsWith checks the final response of the attempt's checkout: its code, its course, and what is left of the stock.
func EndsWith(code, course string, available int) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		var sent struct {
			PaymentMethod string `json:"payment_method"`
			ManualCapture bool   `json:"manual_capture"`
		}
		require.NoError(a, json.Unmarshal(a.StoredRequest(a.Key), &sent))
		body := TwoTeas(sent.PaymentMethod)
		if sent.ManualCapture {
			body = TeasLater(sent.PaymentMethod)
		}
		final := a.API.Post("/v1/checkouts", a.Key, body)
		require.Equal(a, code, final.Code(), final)
		require.Equal(a, course, SagaOf(a.TB, final).Course())
		require.Equal(a, available, a.Count(`SELECT available FROM stock`))
		require.Zero(a, a.Count(`SELECT reserved FROM stock`))
	}
}
