package reconcile_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// runOnly has one window be due, and none of the others.
func runOnly(b *world.Books, window string) {
	b.T.Helper()
	b.Exec(`INSERT INTO reconciliation_windows (name, next_at) SELECT unnest($1::text[]), 'infinity'
		ON CONFLICT (name) DO UPDATE SET next_at = 'infinity'`,
		[]string{"recent", "days", "month", "refunds_young", "refunds", "confirmable", "confirmable_old"})
	b.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity' WHERE name = $1`, window)
}

func TestWalk(t *testing.T) {
	t.Parallel()

	t.Run("EndsAtAnEmptyPage", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		require.Equal(t, http.StatusCreated, b.API.Pay("k", b.API.Order(), "pm_card_visa").Status)
		gateway.listIntents = func(context.Context, stripe.Window, listIntents) (stripe.Page[stripe.Intent], error) {
			return stripe.Page[stripe.Intent]{More: true}, nil
		}
		b.Reconcile()
		require.Zero(t, uncovered(b))
		require.Empty(t, b.Discrepancies(), "what is not listed is read by its id")
	})

	// The two clocks differ by a few seconds, so that a row's period is that of the page after its object's.
	t.Run("ReadsNothingAgainThatWasOnThePageBefore", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		paidOrder(b)
		paidOrder(b)
		var alone, pages int
		gateway.getIntent = func(ctx context.Context, id string, get getIntent) (stripe.Intent, error) {
			alone++
			return get(ctx, id)
		}
		gateway.listIntents = func(ctx context.Context, w stripe.Window, list listIntents) (stripe.Page[stripe.Intent], error) {
			page, err := list(ctx, w)
			if pages++; len(page.Objects) > 1 {
				page.Objects, page.More = page.Objects[:1], true
			}
			for i := range page.Objects {
				page.Objects[i].CreatedAt = page.Objects[i].CreatedAt.Add(time.Duration(10-pages) * time.Second)
			}
			return page, err
		}
		runOnly(b, "recent")
		_, err := b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, pages)
		require.Zero(t, alone)
	})

	t.Run("ReadsNothingAgainWhoseMetadataNamesAnotherOrder", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		var intents, refunds []string
		for range 2 {
			_, intent := paidOrder(b)
			intents, refunds = append(intents, intent), append(refunds, refundElsewhere(b, intent, 100))
		}
		runs(b, "recent")
		other := map[string]string{"order_id": b.API.Order()}
		for i := range intents {
			_, err := b.Stripe.PaymentIntents.Update(intents[i], &stripego.PaymentIntentParams{Metadata: other})
			require.NoError(t, err)
			_, err = b.Stripe.Refunds.Update(refunds[i], &stripego.RefundParams{Metadata: other})
			require.NoError(t, err)
		}
		gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
			require.Fail(t, "its charge names the order, whose payment has it")
			return stripe.Intent{}, stripe.ErrAway
		}
		gateway.beforeRefunds = func(string) error {
			require.Fail(t, "and so does its refund's")
			return nil
		}
		runs(b, "recent")
		require.Empty(t, b.Discrepancies())
	})

	t.Run("AsksForEachPageOnce", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		paidOrder(b)
		asked := 0
		gateway.listIntents = func(ctx context.Context, w stripe.Window, list listIntents) (stripe.Page[stripe.Intent], error) {
			asked++
			return list(ctx, w)
		}
		runs(b, "recent")
		require.Equal(t, 1, asked)
	})

	t.Run("ReadsNoRowsForObjectsOfOthers", func(t *testing.T) {
		t.Parallel()
		b, proxy := newProxied(t)
		b.OrphanIntent("", func(p *stripego.PaymentIntentParams) { p.Metadata = nil })
		proxy.Seen()
		runs(b, "recent")
		for _, statement := range proxy.Seen() {
			require.NotContains(t, statement, "name: ReconcileOrders ")
		}
	})

	// A cancel of the intent would hide that our row says it was paid.
	t.Run("ReportsAnIntentThatIsNotPaidAndWasSaidToBe", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		_, intent := paidOrder(b)
		unpaid := func(i *stripe.Intent) {
			i.Status, i.CreatedAt = stripe.IntentRequiresPaymentMethod, i.CreatedAt.Add(-yesterday)
		}
		gateway.getIntent = func(ctx context.Context, id string, get getIntent) (stripe.Intent, error) {
			i, err := get(ctx, id)
			unpaid(&i)
			return i, err
		}
		gateway.listIntents = func(ctx context.Context, w stripe.Window, list listIntents) (stripe.Page[stripe.Intent], error) {
			page, err := list(ctx, w)
			for i := range page.Objects {
				unpaid(&page.Objects[i])
			}
			return page, err
		}
		runs(b, "recent")
		require.Equal(t, "missing_at_stripe "+intent+" -1000 usd", b.Discrepancies())
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
	})

	// Neither its own metadata nor its charge's leads to the payment.
	t.Run("FindsThePaymentOfARefundByItsIntent", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		_, intent := paidOrder(b)
		other := b.API.Order()
		refundElsewhere(b, intent, 300)
		gateway.eachRefund = func(r *stripe.Refund) bool {
			r.TenantID, r.OrderID, r.Charged = b.Tenant.ID, other, stripe.Order{}
			return true
		}
		runs(b, "refunds_young")
		require.Equal(t, 300, b.Count(`SELECT amount_refunded_minor FROM payments`))
		require.Empty(t, b.Discrepancies())
	})

	t.Run("ComparesNoPageOfWhichAnOrderCannotBeRead", func(t *testing.T) {
		t.Parallel()
		gateway := &tapped{}
		w := world.New(t)
		proxy, err := pgproxy.Start(w.URL)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		b := world.BooksWith(w, world.LocalOptions{
			Database: proxy.URL(), Gateway: func(g payments.Gateway) payments.Gateway {
				gateway.Gateway = g
				return gateway
			},
		})
		for range 2 {
			_, intent := paidOrder(b)
			refundElsewhere(b, intent, 300)
		}
		gateway.eachRefund = func(r *stripe.Refund) bool {
			r.TenantID, r.OrderID = b.Tenant.ID, "order_of_another" // so the charge's is looked for
			return true
		}
		runOnly(b, "refunds_young")
		fault := proxy.Fail("name: PaymentOfIntent ", 1) // that of the first of two
		_, err = b.Reconciler.RunOnce(t.Context())
		require.True(t, fault.HasFired())
		require.ErrorContains(t, err, pgproxy.FailureText("name: PaymentOfIntent "))
		require.Zero(t, b.Count(`SELECT sum(amount_refunded_minor) FROM payments`))
		require.Empty(t, b.Discrepancies())
	})

	t.Run("ComparesEveryRowOfAPeriodHoweverManyThereAre", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		require.Equal(t, http.StatusCreated, b.API.Pay("k", b.API.Order(), "pm_card_visa").Status)
		last := b.Text(`SELECT intent_id FROM payments`)
		b.Exec(`INSERT INTO payments (tenant_id, id, status, order_id, idempotency_key, amount_minor, currency,
				payment_method, intent_number, intent_id, charge_id, created_at)
			SELECT tenant_id, left(id, -4) || 'w' || lpad(n::text, 3, '0'), status, order_id || n, 'k' || n, amount_minor,
				currency, payment_method, 1, 'pi_' || n, 'ch_' || n, created_at FROM payments, generate_series(1, 230) n`)
		b.Exec(`UPDATE payments SET id = left(id, -4) || '~' WHERE intent_id = $1`, last) // the last of all
		gateway.listIntents = func(context.Context, stripe.Window, listIntents) (stripe.Page[stripe.Intent], error) {
			return stripe.Page[stripe.Intent]{}, nil
		}
		read := map[string]bool{}
		gateway.getIntent = func(_ context.Context, id string, _ getIntent) (stripe.Intent, error) {
			read[id] = true
			return stripe.Intent{}, stripe.ErrNoSuchObject
		}
		found, _, err := audited(b, hourAgo)
		require.NoError(t, err)
		require.Len(t, found, 231)
		require.True(t, read[last])
	})

	// Damage by hand, of a row that no constraint lets the service write.
	t.Run("RecordsAnObjectWhoseComparisonPanicsAndGoesOn", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		good, bad := b.API.Order(), b.API.Order()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", bad, "pm_card_visa").Status)
		b.Exec(`ALTER TABLE payments DROP CONSTRAINT succeeded_has_an_intent`)
		b.Unguarded(`UPDATE payments SET intent_id = NULL, confirm_sent_at = NULL, confirm_request_id = NULL, id = 'pay_0'`) // older than every window
		b.OrphanIntent(good)
		second := b.OrphanIntent(bad)
		for range 2 { // The second time it is read again because its discrepancy is open.
			b.Reconcile()
			require.Contains(t, b.Discrepancies(), "status_mismatch "+second.ID)
			require.Contains(t, b.Text(`SELECT detail FROM discrepancies WHERE object_id = $1 AND resolved_at IS NULL`,
				second.ID), "not compared: bug: ")
		}
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+good).Get("status"))
		require.Zero(t, uncovered(b))
	})

	// Where the metadata has no order of ours, the refund's intent says whose payment it is of.
	t.Run("LooksForTheOrderOfARefundByItsIntent", func(t *testing.T) {
		t.Parallel()
		scene := func(t *testing.T) (b *world.Books, gateway *tapped, refund, intent string) {
			b, gateway = newTapped(t)
			elsewhere := b.OrphanIntent(b.API.Order(), func(p *stripego.PaymentIntentParams) { p.Metadata = nil })
			made := &stripego.RefundParams{PaymentIntent: &elsewhere.ID, Amount: stripego.Int64(300)}
			made.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": b.API.Order()}
			r, err := b.Stripe.Refunds.New(made)
			require.NoError(t, err)
			runOnly(b, "refunds_young")
			return b, gateway, r.ID, elsewhere.ID
		}
		t.Run("ThatStripeDoesNotHave", func(t *testing.T) {
			t.Parallel()
			b, gateway, _, _ := scene(t)
			gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
				return stripe.Intent{}, stripe.ErrNoSuchObject
			}
			_, err := b.Reconciler.RunOnce(t.Context())
			require.NoError(t, err)
			require.Empty(t, b.Discrepancies())
		})
		t.Run("ThatStripeRefusesToShow", func(t *testing.T) {
			t.Parallel()
			b, gateway, refund, _ := scene(t)
			gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
				return stripe.Intent{}, stripe.ErrNotShown
			}
			_, err := b.Reconciler.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, "status_mismatch "+refund+" 0 usd", b.Discrepancies())
			require.Equal(t, b.Tenant.ID, b.Text(`SELECT tenant_id FROM discrepancies`))
		})
		t.Run("WhileStripeIsAway", func(t *testing.T) {
			t.Parallel()
			b, gateway, _, intent := scene(t)
			gateway.getIntent = func(_ context.Context, id string, _ getIntent) (stripe.Intent, error) {
				require.Equal(t, intent, id)
				return stripe.Intent{}, stripe.ErrAway
			}
			_, err := b.Reconciler.RunOnce(t.Context())
			require.ErrorIs(t, err, stripe.ErrAway)
			require.Empty(t, b.Discrepancies())
		})
	})

	// A window is not done while an object of it is without a response, and at the third Stripe is taken to be away.
	t.Run("EndsAtTheThirdObjectWithoutAResponse", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		for range 5 {
			b.OrphanIntent(b.API.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(50) })
		}
		asked := 0
		gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
			asked++
			return stripe.Intent{}, stripe.ErrAway
		}
		runOnly(b, "recent")
		_, err := b.Reconciler.RunOnce(t.Context())
		require.ErrorIs(t, err, stripe.ErrAway)
		require.Equal(t, 3, asked)
		require.Empty(t, b.Discrepancies())
	})

	// What is paid is adopted with its refunds. Those of one cannot be listed.
	t.Run("LeavesOneThatCannotBeRepairedForTheNextRun", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		var orders []string
		for range 2 {
			order, intent := declined(b)
			_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{
				PaymentMethod: stripego.String("pm_card_visa"),
			})
			require.NoError(t, err)
			_, err = b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent, Amount: stripego.Int64(100)})
			require.NoError(t, err)
			orders = append(orders, order)
		}
		b.Sim.Inject(stripesim.Fault{
			Op: "refund.list", Kind: stripesim.Refuse, Status: http.StatusInternalServerError, OrderID: orders[0], Times: -1,
		})
		runOnly(b, "confirmable")
		_, err := b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, "partially_refunded", b.API.Get("/v1/orders/"+orders[1]).Get("status"))
		require.Equal(t, "open", b.API.Get("/v1/orders/"+orders[0]).Get("status"))
	})
}

// TestOpenDiscrepancyIsComparedAgain, whatever it is about.
func TestOpenDiscrepancyIsComparedAgain(t *testing.T) {
	t.Parallel()

	t.Run("WithoutAnOrder", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		intent := b.OrphanIntent("", func(p *stripego.PaymentIntentParams) { delete(p.Metadata, "order_id") })
		b.Reconcile()
		require.Equal(t, "unmatched_at_stripe "+intent.ID+" 1000 usd", b.Discrepancies())
		_, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent.ID})
		require.NoError(t, err)
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
	})

	t.Run("UnlessItIsOfARefundWhosePaymentIsNotHere", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
			VALUES ($1, 'refund', 're_gone', 'unmatched_at_stripe', 'usd', -250, 'found before a restore', $2)`, b.Tenant.ID,
			ids.New(ids.Order))
		b.Reconcile()
		require.Equal(t, "unmatched_at_stripe re_gone -250 usd", b.Discrepancies())
		require.Zero(t, uncovered(b))
	})
}
