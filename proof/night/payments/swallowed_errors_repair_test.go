package payments_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

func TestNoErrorIsSwallowed_Adoption(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	adopts := func(a *world.Attempt) {
		seen, err := a.API.Gateway.GetIntent(ctx, stripe.NoTenant, a.Intent)
		if err == nil {
			_, err = a.API.Payments.Repairs().AdoptPayment(ctx, seen)
		}
		a.Failed(err)
	}
	orphan := func(a *world.Attempt) {
		unpaidOrder(a)
		a.Intent = a.OrphanIntent(a.Order).ID
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Adoption", Elsewhere: true, Prepare: orphan, Run: adopts, Check: chargedOnce},
		{Name: "AdoptionOfAnAuthorization", Elsewhere: true, Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			a.Intent = a.OrphanIntent(a.Order, func(p *stripego.PaymentIntentParams) {
				p.CaptureMethod = stripego.String("manual")
			}).ID
		}, Run: adopts, Check: ended("authorized", "authorized", 0)},
		{Name: "AdoptionWithRefunds", Elsewhere: true, Prepare: func(a *world.Attempt) {
			orphan(a)
			atStripe(a, 400)
		}, Run: adopts, Check: all(ended("partially_refunded", "succeeded", 1), refundsOf("provider succeeded 400"))},
	})
	// A list of its own: in AdoptionWithRefunds PaymentLock comes after the same statements, from another line of the code, and
	// would fail there alone.
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "AdoptionForACanceledOrder", Elsewhere: true, Prepare: func(a *world.Attempt) {
			orphan(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", a.Key, `{}`).Status)
		}, Run: then(adopts, completes), Check: refundsOf("automatic succeeded 1000")},
	})
}

func TestNoErrorIsSwallowed_AdoptionOfRefunds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "AdoptionOfWhatOthersMoved", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			atStripe(a, 400)
		}, Run: func(a *world.Attempt) {
			seen, err := a.API.Gateway.GetIntent(ctx, stripe.NoTenant, a.Intent)
			if err == nil {
				err = a.API.Payments.Repairs().MovedByOthers(ctx, seen)
			}
			a.Failed(err)
		}, Check: refundsOf("provider succeeded 400")},
		{Name: "AdoptionOfARefund", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			a.Value = atStripe(a, 400)
		}, Run: func(a *world.Attempt) {
			list, err := a.API.Gateway.RefundsOf(ctx, stripe.NoTenant, a.Intent)
			for _, r := range list {
				if r.ID == a.Value {
					r.TenantID, r.OrderID = a.Tenant.ID, a.Order
					_, err = a.API.Payments.Repairs().AdoptRefund(ctx, r)
				}
			}
			a.Failed(err)
		}, Check: refundsOf("provider succeeded 400")},
	})
}

func TestNoErrorIsSwallowed_CancelOfAnAbandonedIntent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	abandons := func(a *world.Attempt) {
		seen, err := a.API.Gateway.GetIntent(ctx, stripe.NoTenant, a.Intent)
		if err == nil {
			_, err = a.API.Payments.Repairs().CancelAbandoned(ctx, seen)
		}
		a.Failed(err)
	}
	canceled := func(a *world.Attempt) {
		seen, err := a.API.Gateway.GetIntent(ctx, stripe.NoTenant, a.Intent)
		require.NoError(a, err)
		require.Equal(a, stripe.IntentCanceled, seen.Status)
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "CancelOfAnAbandonedIntent", Elsewhere: true, Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", a.Key, `{}`).Status)
			a.Intent = a.OrphanIntent(a.Order, world.Unconfirmed).ID
		}, Run: then(abandons, completes), Check: canceled},
		{Name: "CancelOfAnIntentOfADecline", Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			a.Exec(`UPDATE payments SET updated_at = updated_at - interval '30 hours' WHERE order_id = $1`, a.Order)
		}, Run: then(abandons, completes), Check: canceled},
	})
}
