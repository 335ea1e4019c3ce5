package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestRevokedKeyGetsNothing: who may not ask any more gets no stored answer either,
// within a second of being told so; with another key of the same tenant the answer
// is there as it was.
func TestRevokedKeyGetsNothing(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Process()
	order := api.Order()
	first := api.Pay("k", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, first.Status, first)
	require.True(t, api.Pay("k", order, "pm_card_visa").Replayed())

	out, errs, status := typed(w, []string{"tenant", "key", "create", w.Tenant.ID})
	require.Zero(t, status, errs)
	_, another, found := strings.Cut(out, `"api_key":"`)
	require.True(t, found)
	another, _, _ = strings.Cut(another, `"`)
	hint := w.Tenant.APIKey[len(w.Tenant.APIKey)-4:]
	_, errs, status = typed(w, []string{"tenant", "key", "revoke", w.Tenant.ID, hint})
	require.Zero(t, status, errs)

	world.Eventually(t, 20*time.Second, "the revoked key is refused", func() bool {
		return api.Pay("k", order, "pm_card_visa").Status == http.StatusUnauthorized
	})
	refused := api.Pay("k", order, "pm_card_visa")
	require.Equal(t, "unauthenticated", refused.Code())
	require.NotContains(t, string(refused.Body), first.ID())
	require.Equal(t, http.StatusUnauthorized, api.Get("/v1/payments/"+first.ID()).Status)

	replay := api.As(world.Tenant{ID: w.Tenant.ID, APIKey: another}).Pay("k", order, "pm_card_visa")
	require.True(t, replay.Replayed())
	require.Equal(t, first.Identity(), replay.Identity())
}
