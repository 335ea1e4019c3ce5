package http_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
)

// replayAllocationsMax bounds what a replay allocates, from the router to the stored
// bytes, pgx's share included; it is about 140, twenty of them for the scope in front of the statement, and the rest is for the race detector,
// under which pools keep less. It must not rise by accident, because a burst of retries
// consists of replays.
const replayAllocationsMax = 180

// TestReplayAllocations is not parallel, because it counts the allocations of the whole process.
func TestReplayAllocations(t *testing.T) {
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	b.client.CloseIdleConnections()
	options.Metrics = nil
	handler := httpapi.NewServer(options).Handler()
	replay := func() *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/orders",
			strings.NewReader(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}]}`))
		r.Header.Set("Authorization", "Bearer "+b.apiKey)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusCreated, replay().Code)
	require.Equal(t, "true", replay().Header().Get("Idempotent-Replayed"))
	n := testing.AllocsPerRun(500, func() { replay() })
	t.Logf("%.0f allocations a replay", n)
	require.LessOrEqual(t, n, float64(replayAllocationsMax))
}
