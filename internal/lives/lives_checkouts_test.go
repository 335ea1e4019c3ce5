package lives_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/lives"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestCheckoutOfALostLife: the backup is between a checkout's reservation and its payment. The lost life has completed the
// checkout, and its reservation has run out since. It is completed, and nothing is refunded.
func TestCheckoutOfALostLife(t *testing.T) {
	t.Parallel()
	var backup string
	var b *world.Books
	b, today := world.LongAgo(t, aDay, world.LocalOptions{Boundary: func(_, point string) {
		if point == "stock_reserved" && backup == "" {
			backup = b.CopyDatabase()
		}
	}})
	require.Equal(t, http.StatusOK, b.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
	require.Equal(t, http.StatusCreated, b.API.Post("/v1/checkouts", "k", shop.TwoTeas(visa)).Status)
	require.NotEmpty(t, backup)

	r := world.BooksOn(b.OnDatabase(backup))
	r.AgeWork(aDay)
	r.Exec("UPDATE reservations SET expires_at = expires_at - $1::interval", aDay)
	today()
	_, err := lives.Begin(t.Context(), r.DB, time.Now().Add(-aDay), false)
	require.NoError(t, err)
	r.Reconcile()
	r.API.Complete()
	a := r.API.Post("/v1/checkouts", "k", shop.TwoTeas(visa))
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
	require.Equal(t, 1, r.Sim.ChargeCount(""))
	s := shop.Shop{Local: r.API, World: r.World}
	s.RequireStock("tea", 8, 0)
	s.RequireWhole()
	r.Reconcile()
	r.RequireClean()
}
