package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// TestDatabaseCrashesDuringACapture: what was recorded is never called a failure, and nothing is sent twice. The root module
// has the same of a payment.
func TestDatabaseCrashesDuringACapture(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t)
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	api := w.Local(world.LocalOptions{Name: "one"})
	order := api.Order()
	payment := api.Authorize("k", order, visa).ID()
	held := w.Sim.Hold(stripesim.Selector{Op: "intent.capture", OrderID: order}, stripesim.AfterEffect)
	answer := world.Async(func() world.Answer { return api.Capture("c", payment, 700) })
	world.WaitHeld(w.T, held)
	require.NoError(t, server.Restart("immediate"))
	w.DB.Raw().Reset() // the test's own connections; the service has to find out about its
	held.Release()
	a := <-answer
	require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, a.Status, "what was recorded is no failure: %s", a)
	var last world.Answer
	world.Eventually(t, world.Patience, "the capture is final", func() bool {
		w.ExpireLeases()
		last = api.Capture("c", payment, 700)
		return last.Final()
	})
	require.Equal(t, http.StatusOK, last.Status, last)
	require.Equal(t, "700", w.Text(`SELECT captured_minor FROM payments WHERE id = $1`, payment))
	require.Len(t, w.Posts("capture"), 1, "nothing was sent twice")
	w.RequireSound()
}
