package lives_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/lives"
	"example.com/payonce/stripesim"
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

// TestCheckoutIsNotCalledOffBeforeStripeIsRead: the database goes back to between a checkout's reservation and the step that
// takes the money, and nobody says so. The reservation has run out.
func TestCheckoutIsNotCalledOffBeforeStripeIsRead(t *testing.T) {
	t.Parallel()
	noSearch := stripesim.Fault{Op: "intent.search", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Times: -1}
	for name, c := range map[string]struct {
		body    string
		fault   *stripesim.Fault
		resumed bool // by the completer, before anybody has looked for reservations
	}{
		"Automatic": {body: shop.TwoTeas(visa)}, "Manual": {body: shop.TeasLater(visa)},
		"AutomaticInAnAccountWithoutSearch": {body: shop.TwoTeas(visa), fault: &noSearch},
		"AutomaticResumed":                  {body: shop.TwoTeas(visa), resumed: true},
		"ManualResumed":                     {body: shop.TeasLater(visa), resumed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var backup string
			var b *world.Books
			b = world.BooksWith(world.New(t), world.LocalOptions{Boundary: func(_, point string) {
				if point == "stock_reserved" && backup == "" {
					backup = b.CopyDatabase()
				}
			}})
			b.Sim.SetSearchLag(0)
			if c.fault != nil {
				b.Sim.Inject(*c.fault)
			}
			require.Equal(t, http.StatusOK, b.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
			require.Equal(t, http.StatusCreated, b.API.Post("/v1/checkouts", "k", c.body).Status)

			r := world.BooksOn(b.OnDatabase(backup))
			r.ExpireLeases()
			r.Exec("UPDATE reservations SET expires_at = clock_timestamp() - interval '1 hour'")
			if !c.resumed {
				n, err := r.API.Checkouts.ExpireReservations(t.Context())
				require.NoError(t, err)
				require.Zero(t, n, "a checkout is called off that is paid at Stripe")
			}
			r.API.Complete()
			a := r.API.Post("/v1/checkouts", "k", c.body)
			require.Equal(t, http.StatusCreated, a.Status, a)
			require.Equal(t, 1, r.Sim.ChargeCount(""))
			s := shop.Shop{Local: r.API, World: r.World}
			s.RequireStock("tea", 8, 0)
			s.RequireWhole()
			r.RequireClean()
		})
	}
}
