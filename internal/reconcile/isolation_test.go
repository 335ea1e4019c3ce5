package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// covered is how many windows have been read to their end.
func covered(b *world.Books) int {
	b.T.Helper()
	return b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL")
}

// uncovered counts the windows that were not gone through to the end.
func uncovered(b *world.Books) int {
	b.T.Helper()
	return b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NULL")
}

// TestReconcilerIsolates: one object that cannot be mended is a finding, and all
// others of its window are mended in the same round.
func TestReconcilerIsolates(t *testing.T) {
	t.Parallel()

	t.Run("WhatTheDatabaseRefuses", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		good, bad, last := b.API.Order(), b.API.Order(), b.API.Order()
		b.OrphanIntent(good)
		pi := b.OrphanIntent(bad)
		b.OrphanIntent(last) // Stripe lists the newest first: one before it, and one after
		b.Exec(`ALTER TABLE payments ADD CONSTRAINT refuses_the_bad_order CHECK (order_id <> '` + bad + `')`)
		_, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID, Amount: stripego.Int64(300)})
		require.NoError(t, err)

		b.Reconcile()
		require.Zero(t, uncovered(b))
		for _, order := range []string{good, last} {
			require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		}
		require.Equal(t, "unmatched_at_stripe "+pi.ID+" 700 usd", b.Discrepancies())
		require.Contains(t, b.Text("SELECT detail FROM discrepancies"), "refuses_the_bad_order", "the evidence")
		require.EqualValues(t, 700, driftShown(b))
		require.EqualValues(t, 1, b.API.Metric("payonce_discrepancies_open"), "what the alert looks at")
		r := b.Audit()
		require.Equal(t, map[string]int{"I8e": 1}, r.Offends())
		require.EqualValues(t, 700, r.Drift())

		_, err = b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID}) // A person gives the rest back.
		require.NoError(t, err)
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		b.RequireClean()
	})

	t.Run("AndRetriesUntilRepaired", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		pi := b.OrphanIntent(order)
		b.Exec("ALTER TABLE payments ADD CONSTRAINT nobody_is_adopted CHECK (false) NOT VALID")
		b.Reconcile()
		b.Reconcile()
		require.Zero(t, uncovered(b))
		require.Equal(t, "unmatched_at_stripe "+pi.ID+" 1000 usd", b.Discrepancies())
		require.EqualValues(t, 1, parkedCount(b), "said once, not in every round")

		b.Exec("ALTER TABLE payments DROP CONSTRAINT nobody_is_adopted")
		b.Reconcile()
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		require.Empty(t, b.Discrepancies())
		b.RequireClean()
	})

	t.Run("UnreadableObjectsAndPanics", func(t *testing.T) {
		t.Parallel()
		for name, get := range map[string]func() (stripe.Intent, error){
			"Refused": func() (stripe.Intent, error) {
				return stripe.Intent{},
					fmt.Errorf("400: %w", stripe.ErrNotShown)
			},
			"Panicked": func() (stripe.Intent, error) { panic("bug: a nil charge") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := world.New(t)
				stubborn := &stubbornGateway{get: get}
				b := world.BooksWith(w,
					world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { stubborn.Gateway = g; return stubborn }})
				good, odd := b.API.Order(), b.API.Order()
				b.OrphanIntent(good)
				stubborn.id = b.OrphanIntent(odd,
					func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) }).ID // so it is looked at by itself
				b.Reconcile()
				require.Zero(t, uncovered(b))
				require.Equal(t, "paid", b.API.Get("/v1/orders/"+good).Get("status"))
				require.Equal(t, "status_mismatch "+stubborn.id+" 0 usd", b.Discrepancies())
				id := stubborn.id
				stubborn.id = ""
				b.Reconcile()
				require.Equal(t, "amount_mismatch "+id+" 999 usd", b.Discrepancies(),
					"and then it is seen for what it is")
			})
		}
	})
}

// TestReconcilerOutageIsNoDiscrepancy: what passes by itself ends the round, which
// is begun again, and never becomes a finding.
func TestReconcilerOutageIsNoDiscrepancy(t *testing.T) {
	t.Parallel()

	t.Run("WhenStripeIsAway", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		b.OrphanIntent(b.API.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) })
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
			b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
			fault.Op, fault.Times = "intent.get", -1
			id := b.Sim.Inject(fault)
			_, err := b.Reconciler.RunOnce(t.Context())
			require.Error(t, err, name)
			require.NotZero(t, b.Sim.FaultsFired()[id], name)
			require.Empty(t, b.Discrepancies(), name)
			require.Zero(t, covered(b), name)
			b.Sim.ClearFaults()
		}
		b.Reconcile()
		require.Contains(t, b.Discrepancies(), "amount_mismatch")
	})

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
			b := world.BooksWith(w, world.LocalOptions{Database: proxy.URL()})
			order := b.API.Order()
			b.OrphanIntent(order)
			cut := arm(proxy)
			_, err = b.Reconciler.RunOnce(context.Background())
			require.True(t, cut.HasFired())
			require.Error(t, err)
			require.Empty(t, b.Discrepancies())
			require.Zero(t, covered(b))
			b.Reconcile()
			require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
			require.Equal(t, 1, b.Count("SELECT count(*) FROM payments"))
			b.RequireClean()
		})
	}
}

// stubbornGateway will not show one intent.
type stubbornGateway struct {
	payments.Gateway
	id  string
	get func() (stripe.Intent, error)
}

func (g *stubbornGateway) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	if id == g.id {
		return g.get()
	}
	return g.Gateway.GetIntent(ctx, tenantID, id)
}

// parkedCount is how often a finding was news.
func parkedCount(b *world.Books) (n float64) {
	families, err := b.API.Metrics.Gather()
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

// Refunds that are owed cannot be read. The windows are gone through all the same.
func TestRefundsOwedHoldUpNoWindow(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	b.OrphanIntent(order)
	b.Exec("ALTER TABLE refunds_owed RENAME TO away")
	_, err := b.Reconciler.RunOnce(t.Context())
	require.ErrorContains(t, err, "refunds_owed")
	b.Exec("ALTER TABLE away RENAME TO refunds_owed")
	require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
}

// A cancel that hangs reserves its order. Money that was paid for the order meanwhile is not hidden by that: at first
// the cancel may find it, later it is a discrepancy.
func TestHangingCancelHidesNoDiscrepancy(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, http.StatusPaymentRequired, b.API.Pay("k", order, "pm_card_visa_chargeDeclined").Status)
	b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
	require.Equal(t, http.StatusAccepted, b.API.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status)
	paid := b.OrphanIntent(order)
	b.Reconcile()
	require.Empty(t, b.Discrepancies(), "the cancel is about to find it")

	b.AgeWork(31 * time.Minute)
	b.Reconcile()
	require.Contains(t, b.Discrepancies(), "unmatched_at_stripe "+paid.ID+" 1000")
	b.Exec("UPDATE idempotency_keys SET parked_at = clock_timestamp(), next_attempt_at = 'infinity' WHERE key = 'cancel'")
	b.Reconcile()
	require.NotEmpty(t, b.Discrepancies())
	require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL"), "it is woken")
}
