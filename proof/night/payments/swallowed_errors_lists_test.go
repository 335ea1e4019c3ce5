package payments_test

import (
	"context"
	"testing"

	"example.com/payonce/testkit/world"
)

func TestNoErrorIsSwallowed_Lists(t *testing.T) {
	t.Parallel()
	gets := func(path string) func(a *world.Attempt) {
		return func(a *world.Attempt) { a.Answered(a.API.Get(path)) }
	}
	none := func(*world.Attempt) {}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "MarkLasting", Prepare: unpaidOrder, Run: func(a *world.Attempt) {
			_, err := a.API.Payments.MarkLasting(context.Background())
			a.Failed(err)
		}, Check: none},
		{Name: "Orders", Prepare: paidOrder, Run: gets("/v1/orders?status=open&limit=1"), Check: none},
		{Name: "Payments", Prepare: paidOrder, Run: gets("/v1/payments?status=processing&limit=1"), Check: none},
		{Name: "Refunds", Prepare: paidOrder, Run: gets("/v1/refunds?status=pending&limit=1"), Check: none},
	})
}
