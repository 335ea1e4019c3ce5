package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// PostgreSQL crashes while a payment is at Stripe: every connection is dead when
// the answer comes, and the server has been through its recovery.
func TestDatabaseCrashesDuringAPayment(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t)
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	api := w.Local(world.LocalOptions{Name: "one"})
	for _, op := range []string{"intent.create", "intent.confirm"} {
		order := api.Order()
		held := w.Sim.Hold(stripesim.Selector{Op: op, OrderID: order}, stripesim.AfterEffect)
		answer := world.Async(func() world.Answer { return api.Pay(op, order, visa) })
		world.WaitHeld(w.T, held)
		require.NoError(t, server.Restart("immediate"), op)
		w.DB.Raw().Reset() // the test's own connections; the service has to find out about its
		held.Release()
		a := <-answer
		require.Contains(t, []int{http.StatusCreated, http.StatusAccepted}, a.Status,
			"%s: what was recorded is never called a failure: %s", op, a)
		final := api.PayUntilFinal(op, order, visa)
		require.Equal(t, http.StatusCreated, final.Status, final)
		require.Equal(t, a.ID(), final.ID())
		w.RequireChargedOnce(order)
	}
	require.Len(t, w.Posts("payment_intents"), 2)
	require.Len(t, w.Posts("confirm"), 2, "nothing was sent twice")
}
