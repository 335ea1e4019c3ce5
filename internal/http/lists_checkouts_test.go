package http_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
)

func TestCheckoutsAreFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, http.StatusOK, b.send("PUT", "/v1/stock/tea", `{"available":9}`).status)
	const body = `{"currency":"eur","items":[{"sku":"tea","quantity":1,"unit_amount":1250}],
		"payment_method":"pm_card_visa"}`
	completed := b.post("/v1/checkouts", "completed", body)
	require.Equal(t, http.StatusCreated, completed.status, completed.body)
	compensated := b.post("/v1/checkouts", "declined", strings.Replace(body, "visa", "chargeDeclined", 1)).
		object["checkout"].(map[string]any)["id"].(string)
	waits := b.post("/v1/checkouts", "waits", strings.Replace(body, "visa", "authenticationRequired", 1)).id()
	list := func(query string) []string { t.Helper(); return b.of(t).listed("/v1/checkouts", query) }
	require.Equal(t, []string{waits, compensated, completed.id()}, list(""))
	require.Equal(t, []string{waits}, list("status=processing"))
	require.Equal(t, []string{compensated}, list("status=compensated"))
	require.Equal(t, []string{completed.id()}, list("status=completed"))
	later := b.post("/v1/checkouts", "completed-later", body).id()
	require.Equal(t, []string{later, completed.id()}, list("status=completed"), "the newest first")
	require.Equal(t, []string{completed.id()}, list("status=completed&starting_after="+later))
	page := b.get("/v1/checkouts?status=completed&starting_after=" + later).object["data"].([]any)
	require.Equal(t, b.get("/v1/checkouts/"+completed.id()).object, page[0], "with its steps")
	b.allRefused("/v1/checkouts", "status=paid", "status=", "status=completed&status=completed", "order_id=x",
		"created_after=2026-01-01T00:00:00Z", "starting_after=x", "starting_after="+ids.New(ids.Checkout))
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	require.Empty(t, other.listed("/v1/checkouts", ""))
	require.Empty(t, other.listed("/v1/checkouts", "status=completed"))
	other.allRefused("/v1/checkouts", "starting_after="+waits)
}
