package reconcile_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// tapped is a gateway between whose client and Stripe a test acts: each function that is not nil takes the place of
// its method, and is given the method itself. They are set while nothing runs.
type tapped struct {
	payments.Gateway
	getIntent   func(ctx context.Context, id string, get getIntent) (stripe.Intent, error)
	listIntents func(ctx context.Context, w stripe.Window, list listIntents) (stripe.Page[stripe.Intent], error)
	// beforeRefunds is called before the refunds of an intent are read, as they are when something is adopted.
	beforeRefunds func(intent string) error
	// eachRefund changes those that are listed with all others, and reports whether they are.
	eachRefund func(*stripe.Refund) (listed bool)
}

type (
	getIntent   func(context.Context, string) (stripe.Intent, error)
	listIntents func(context.Context, stripe.Window) (stripe.Page[stripe.Intent], error)
)

func (g *tapped) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	if g.getIntent != nil {
		return g.getIntent(ctx, id, func(ctx context.Context, id string) (stripe.Intent, error) {
			return g.Gateway.GetIntent(ctx, tenantID, id)
		})
	}
	return g.Gateway.GetIntent(ctx, tenantID, id)
}

func (g *tapped) ListIntents(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Intent], error) {
	if g.listIntents != nil {
		return g.listIntents(ctx, w, g.Gateway.ListIntents)
	}
	return g.Gateway.ListIntents(ctx, w)
}

func (g *tapped) RefundsOf(ctx context.Context, tenantID, intent string) ([]stripe.Refund, error) {
	if g.beforeRefunds != nil {
		if err := g.beforeRefunds(intent); err != nil {
			return nil, err
		}
	}
	return g.Gateway.RefundsOf(ctx, tenantID, intent)
}

func (g *tapped) ListRefunds(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Refund], error) {
	page, err := g.Gateway.ListRefunds(ctx, w)
	if g.eachRefund == nil {
		return page, err
	}
	listed := page.Objects[:0]
	for _, r := range page.Objects {
		if g.eachRefund(&r) {
			listed = append(listed, r)
		}
	}
	page.Objects = listed
	return page, err
}

// newTapped is a world whose server calls Stripe through a tapped gateway.
func newTapped(t *testing.T) (*world.Books, *tapped) {
	t.Helper()
	gateway := &tapped{}
	return world.BooksWith(world.New(t), world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
		gateway.Gateway = g
		return gateway
	}}), gateway
}

// newProxied is a world whose server talks to its database through a proxy.
func newProxied(t *testing.T) (*world.Books, *pgproxy.Proxy) {
	t.Helper()
	w := world.New(t)
	proxy, err := pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	return world.BooksWith(w, world.LocalOptions{Database: proxy.URL()}), proxy
}
