package http_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/openapi"
	"example.com/payonce/testkit/world"
)

// TestUnknownQueryParametersAreRefused, on every GET that is documented. A misspelt starting_after
// that is ignored would return the first page for ever.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	order := b.order("order")
	errorsOf := func(a answer) map[string]any {
		t.Helper()
		require.Equal(t, http.StatusBadRequest, a.status, a.body)
		require.Equal(t, "invalid-request", a.code())
		list := a.object["errors"].([]any)
		require.Len(t, list, 1)
		return list[0].(map[string]any)
	}
	paths := 0
	for path, item := range openapi.New(t, httpapi.OpenAPI()).Document().Paths.Map() {
		if item.Get == nil {
			continue
		}
		paths++
		path = strings.NewReplacer("{id}", order, "{key}", "order", "{sku}", "tea", "{file}", "page.css", "{slug}",
			"not-found").Replace(path)
		require.NotContains(t, path, "{", "the test does not know what to put there")
		for _, query := range []string{"starting_afer=" + order, "nothing", "Limit=1"} {
			e := errorsOf(b.get(path + "?" + query))
			name, _, _ := strings.Cut(query, "=")
			require.Equal(t, name, e["parameter"], path)
			require.Equal(t, "", e["pointer"], path)
		}
		if strings.HasPrefix(path, "/v1/") {
			require.Equal(t, http.StatusUnauthorized, b.send("GET", path+"?nothing", "", "Authorization", "").status,
				"the API key is checked first")
		}
	}
	require.Greater(t, paths, 4)

	require.Equal(t, "limit", errorsOf(b.get("/v1/orders?limit=0"))["parameter"])
	require.Equal(t, "limit", errorsOf(b.get("/v1/orders?limit=1&limit=1"))["parameter"])
	require.Equal(t, "starting_after", errorsOf(b.get("/v1/orders?starting_after=x"))["parameter"])
	require.NotContains(t, errorsOf(b.get("/v1/orders?%zz")), "parameter")
	require.NotContains(t, errorsOf(b.post("/v1/payments", "k", `{}`+world.PayBody(order, visa))), "parameter")
	require.Equal(t, http.StatusOK, b.get("/v1/orders?limit=1&").status)
}
