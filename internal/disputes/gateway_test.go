package disputes_test

import (
	"context"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/stripe"
)

// tapped is a gateway between whose client and Stripe a test acts: each function that is not nil changes what its method
// returns. asked are the requests, by method and id.
type tapped struct {
	disputes.Gateway
	dispute func(stripe.Dispute, error) (stripe.Dispute, error)
	intent  func(stripe.Intent, error) (stripe.Intent, error)
	list    func(stripe.Page[stripe.Dispute], error) (stripe.Page[stripe.Dispute], error)
	asked   []string
}

func (g *tapped) GetDispute(ctx context.Context, id string) (stripe.Dispute, error) {
	g.asked = append(g.asked, "dispute "+id)
	d, err := g.Gateway.GetDispute(ctx, id)
	if g.dispute != nil {
		return g.dispute(d, err)
	}
	return d, err
}

func (g *tapped) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	g.asked = append(g.asked, "intent "+id)
	i, err := g.Gateway.GetIntent(ctx, tenantID, id)
	if g.intent != nil {
		return g.intent(i, err)
	}
	return i, err
}

func (g *tapped) ListDisputes(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Dispute], error) {
	g.asked = append(g.asked, "list")
	page, err := g.Gateway.ListDisputes(ctx, w)
	if g.list != nil {
		return g.list(page, err)
	}
	return page, err
}

// tap is the bench's service with a gateway that a test changes, and without an adopter.
func (b bench) tap(o disputes.Options) (*disputes.Service, *tapped) {
	b.t.Helper()
	gateway := &tapped{Gateway: b.api.Gateway.(disputes.Gateway)}
	return disputes.New(b.api.Pool, gateway, o), gateway
}
