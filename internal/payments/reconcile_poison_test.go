package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// covered is how many windows have been read to their end.
func (b *books) covered() int {
	b.T.Helper()
	return b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL")
}

// TestReconcilerIsolates: one object that cannot be mended is a finding, and all
// others of its window are mended in the same round.
func TestReconcilerIsolates(t *testing.T) {
	t.Parallel()

	// Whoever made the refund in the dashboard copied the metadata of another
	// payment's, so that the adopted payment would have to have that one's id.
	t.Run("WhatTheDatabaseRefuses", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		paid := b.api.Order()
		taken := b.api.Pay("k", paid, "pm_card_visa").ID()
		good, bad, last := b.api.Order(), b.api.Order(), b.api.Order()
		b.ghost(good)
		pi := b.ghost(bad)
		b.ghost(last) // Stripe lists the newest first: one before it, and one after
		refund := &stripego.RefundParams{PaymentIntent: &pi.ID, Amount: stripego.Int64(300)}
		refund.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": bad, "payment_id": taken, "refund_id": "rfd_0000000000000000000000copy"}
		_, err := b.stripe.Refunds.New(refund)
		require.NoError(t, err)

		b.reconcile()
		require.Equal(t, 3, b.covered())
		for _, order := range []string{good, last} {
			require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
		}
		require.Equal(t, "unmatched_at_stripe "+pi.ID+" 700 usd", b.findings())
		require.Contains(t, b.Text("SELECT detail FROM discrepancies"), "payments_pkey", "the evidence")
		require.EqualValues(t, 700, b.driftShown())
		require.EqualValues(t, 1, b.api.Metric("payonce_discrepancies_open"), "what the alert looks at")
		r := b.audit()
		require.Equal(t, map[string]int{"I8e": 1}, r.offends())
		require.EqualValues(t, 700, r.drift())

		_, err = b.stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID}) // A person gives the rest back.
		require.NoError(t, err)
		b.reconcile()
		require.Empty(t, b.findings())
		b.requireClean()
	})

	t.Run("AndTriesAgainUntilItIsMended", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		pi := b.ghost(order)
		b.Exec("ALTER TABLE payments ADD CONSTRAINT nobody_is_adopted CHECK (false) NOT VALID")
		b.reconcile()
		b.reconcile()
		require.Equal(t, 3, b.covered())
		require.Equal(t, "unmatched_at_stripe "+pi.ID+" 1000 usd", b.findings())
		require.EqualValues(t, 1, parkedCount(b), "said once, not in every round")

		b.Exec("ALTER TABLE payments DROP CONSTRAINT nobody_is_adopted")
		b.reconcile()
		require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
		require.Empty(t, b.findings())
		b.requireClean()
	})

	t.Run("WhatStripeWillNotShowAndWhatTheProgramIsWrongAbout", func(t *testing.T) {
		t.Parallel()
		for name, get := range map[string]func() (stripe.Intent, error){
			"Refused":  func() (stripe.Intent, error) { return stripe.Intent{}, fmt.Errorf("400: %w", stripe.ErrNotShown) },
			"Panicked": func() (stripe.Intent, error) { panic("bug: a nil charge") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := world.New(t)
				stubborn := &stubbornGateway{get: get}
				b := booksWith(w, world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { stubborn.Gateway = g; return stubborn }})
				good, odd := b.api.Order(), b.api.Order()
				b.ghost(good)
				stubborn.id = b.ghost(odd, func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) }).ID // so it is looked at by itself
				b.reconcile()
				require.Equal(t, 3, b.covered())
				require.Equal(t, "paid", b.api.Get("/v1/orders/"+good).Get("status"))
				require.Equal(t, "status_mismatch "+stubborn.id+" 0 usd", b.findings())
				id := stubborn.id
				stubborn.id = ""
				b.reconcile()
				require.Equal(t, "amount_mismatch "+id+" 999 usd", b.findings(), "and then it is seen for what it is")
			})
		}
	})
}

// TestReconcilerDoesNotBlameObjects: what passes by itself ends the round, which
// is begun again, and never becomes a finding.
func TestReconcilerDoesNotBlameObjects(t *testing.T) {
	t.Parallel()

	for name, fault := range map[string]stripesim.Fault{
		"Reset":        {Kind: stripesim.Reset},
		"RateLimited":  {Kind: stripesim.RateLimited},
		"LockTimeout":  {Kind: stripesim.LockTimeout},
		"Unauthorized": {Kind: stripesim.Unauthorized},
		"ServerError":  {Kind: stripesim.Refuse, Status: http.StatusInternalServerError},
		"Unavailable":  {Kind: stripesim.Refuse, Status: http.StatusServiceUnavailable, HTML: true},
		"AProxys400":   {Kind: stripesim.Refuse, Status: http.StatusBadRequest, HTML: true},
		"NotJSON":      {Kind: stripesim.InvalidJSON},
	} {
		t.Run("WhenStripeIsAway/"+name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			b.ghost(b.api.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) })
			fault.Op, fault.Times = "intent.get", -1
			b.Sim.Inject(fault)
			_, err := b.reconciler.RunOnce(t.Context())
			require.Error(t, err)
			require.Empty(t, b.findings())
			require.Zero(t, b.covered())
			b.Sim.ClearFaults()
			b.reconcile()
			require.Contains(t, b.findings(), "amount_mismatch")
		})
	}

	for name, arm := range map[string]func(*pgproxy.Proxy) *pgproxy.Cut{
		"Before": func(p *pgproxy.Proxy) *pgproxy.Cut { return p.Before("name: PaymentInsert ") },
		"After":  func(p *pgproxy.Proxy) *pgproxy.Cut { return p.AfterCommit("name: PaymentInsert ") },
	} {
		t.Run("WhenTheDatabaseIsAway/"+name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			proxy, err := pgproxy.Start(w.URL)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			b := booksWith(w, world.LocalOptions{Database: proxy.URL()})
			order := b.api.Order()
			b.ghost(order)
			cut := arm(proxy)
			_, err = b.reconciler.RunOnce(context.Background())
			require.True(t, cut.HasFired())
			require.Error(t, err)
			require.Empty(t, b.findings())
			require.Zero(t, b.covered())
			b.reconcile()
			require.Equal(t, "paid", b.api.Get("/v1/orders/"+order).Get("status"))
			require.Equal(t, 1, b.Count("SELECT count(*) FROM payments"))
			b.requireClean()
		})
	}
}

// stubbornGateway will not show one intent.
type stubbornGateway struct {
	payments.Gateway
	id  string
	get func() (stripe.Intent, error)
}

func (g *stubbornGateway) GetIntent(ctx context.Context, id string) (stripe.Intent, error) {
	if id == g.id {
		return g.get()
	}
	return g.Gateway.GetIntent(ctx, id)
}

// parkedCount is how often a finding was news.
func parkedCount(b *books) (n float64) {
	families, err := b.api.Metrics.Gather()
	require.NoError(b.T, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "payonce_reconciled_total" && m.GetLabel()[0].GetValue() == "discrepancy_found" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
