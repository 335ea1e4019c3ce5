package http_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// HEAD is GET without the body: monitors and caches use it.
func TestHeadIsGetWithoutItsBody(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	order := api.Order()
	ask := func(method, path, key string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, api.Base+path, nil)
		require.NoError(t, err)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer, string(body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/v1/orders", "/v1/orders/" + order, "/v1/orders/nobodys",
		"/openapi.json", // part: docs
		"/v1/events",    // part: events
	} {
		for _, key := range []string{w.Tenant.APIKey, ""} {
			get, _ := ask("GET", path, key)
			head, body := ask("HEAD", path, key)
			require.Equal(t, get.StatusCode, head.StatusCode, path)
			require.Equal(t, get.ContentLength, head.ContentLength, path)
			require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"), path)
			require.Empty(t, body)
		}
	}
	head, _ := ask("HEAD", "/v1/webhooks/stripe", "")
	require.Equal(t, http.StatusMethodNotAllowed, head.StatusCode, "where there is no GET there is no HEAD")
}
