package payments_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestBrowserAndCallersAtOnce: the browser pays while the payment or its order is canceled, or the next payment begins.
func TestBrowserAndCallersAtOnce(t *testing.T) {
	for seed := range 8 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := world.New(t)
			mailbox := w.Mailbox()
			b := world.BooksOn(w)
			second := w.Local(world.LocalOptions{Name: "second"})
			order := b.API.Order()
			first := b.API.Pay("k", order, careful)
			require.Equal(t, "requires_action", first.Get("status"))
			intent := w.IntentOfOrder(order)
			if seed%2 == 0 {
				require.NoError(t, b.Sim.CompleteAuthentication(intent, false))
			}
			if seed%3 == 0 {
				b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Drop})
			}
			var all sync.WaitGroup
			all.Go(func() { _ = browserPays(b, intent, visa) })
			all.Go(func() {
				if seed%4 < 2 {
					b.API.Post("/v1/payments/"+first.ID()+"/cancel", "cancel", `{}`)
				} else {
					b.API.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`)
				}
			})
			all.Go(func() { second.Pay("another", order, visa) })
			all.Go(func() { second.Pay("k", order, careful) })
			all.Go(func() {
				for _, h := range mailbox.Take() {
					b.API.Receive(h)
				}
				second.Process()
			})
			all.Wait()
			for range 4 {
				for _, h := range mailbox.Take() {
					require.Equal(t, http.StatusOK, b.API.Receive(h).Status)
				}
				b.API.Process()
				b.API.Complete()
				b.Reconcile()
			}
			last := b.API.Pay("last", order, visa)
			b.API.Complete()
			b.Reconcile()
			detail := fmt.Sprint(last, b.Text(`SELECT string_agg(concat_ws(' ', id, status, intent_id), '; ') FROM payments`),
				b.API.Get("/v1/orders/"+order))
			paid := b.Count(`SELECT count(*) FROM payments WHERE status = 'succeeded'`)
			require.Equal(t, paid, b.Sim.ChargeCount(order), detail)
			require.LessOrEqual(t, paid, 1, detail)
			require.Empty(t, b.Discrepancies(), detail)
			require.Zero(t, b.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
			b.RequireClean()
		})
	}
}
