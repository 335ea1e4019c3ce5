package lives_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestEventsOfALostLife: an order is canceled in the life that is lost, and paid in the next. The id of order.paid was
// never given to another event, and no cursor of the lost life is known.
func TestEventsOfALostLife(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	kept := b.API.Get("/v1/events")
	cursor := kept.Get("data").([]any)[0].(map[string]any)["id"].(string)
	backup := b.CopyDatabase()
	require.Equal(t, http.StatusOK, b.API.Post("/v1/orders/"+order+"/cancel", "cancel", "").Status)
	given := map[string]bool{}
	for _, e := range b.API.Get("/v1/events").Get("data").([]any) {
		given[e.(map[string]any)["id"].(string)] = true
	}

	r := restored(b, backup)
	r.Reconcile()
	require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
	for old := range given {
		a := r.API.Get("/v1/events?after=" + old)
		require.Equal(t, http.StatusBadRequest, a.Status, a)
		require.Contains(t, string(a.Body), `"parameter":"after"`)
	}
	require.True(t, given[cursor])
	after, types := "", []string{}
	for {
		page := r.API.Get("/v1/events?limit=1" + after).Get("data").([]any)
		if len(page) == 0 {
			break
		}
		e := page[0].(map[string]any)
		require.False(t, given[e["id"].(string)], e)
		require.Equal(t, e["id"], e["subject"].(string)+"-"+e["sequence"].(string))
		after, types = "&after="+e["id"].(string), append(types, e["type"].(string))
	}
	require.Equal(t, "payment.created payment.succeeded order.paid", strings.Join(types, " "))
}
