package reconcile_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// post sends Stripe a request as its dashboard does, without a key of ours, and returns the object's id.
func post(a *world.Attempt, path string, form url.Values) (id string) {
	a.Helper()
	return a.CallStripe(http.MethodPost, "/v1/"+path, form)
}

// orphan charges an order at Stripe without a row here.
func orphan(a *world.Attempt, order, amount string) (intent string) {
	return post(a, "payment_intents", url.Values{
		"amount": {amount}, "currency": {"usd"}, "payment_method_types[]": {"card"}, "payment_method": {"pm_card_visa"},
		"confirm": {"true"}, "metadata[tenant_id]": {a.Tenant.ID}, "metadata[order_id]": {order},
	})
}

// pays makes a payment that succeeds.
func pays(a *world.Attempt) {
	a.Order = a.API.Order()
	paid := a.API.Pay(a.Key, a.Order, "pm_card_visa")
	require.Equal(a, http.StatusCreated, paid.Status, paid)
	a.Payment, a.Intent = paid.ID(), paid.Get("stripe", "payment_intent").(string)
}

// declined is an order whose card was declined, and its intent.
func declined(b *world.Books) (order, intent string) {
	b.T.Helper()
	order = b.API.Order()
	require.Equal(b.T, "payment-declined", b.API.Pay(order, order, "pm_card_visa_chargeDeclined").Code())
	return order, b.Text(`SELECT intent_id FROM payments WHERE order_id = $1`, order)
}

// intentOf is what Stripe shows of an intent.
func intentOf(b *world.Books, id string) stripe.Intent {
	b.T.Helper()
	i, err := b.API.Gateway.GetIntent(b.T.Context(), stripe.NoTenant, id)
	require.NoError(b.T, err)
	return i
}

// A round that fails says so, and the next does what it has left.
func TestRoundSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Adoption", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			orphan(a, a.Order, "1000")
		}, Run: world.ReadsWindow("recent"), Check: (*world.Attempt).RequirePaid},
		{Name: "PaidElsewhere", Prepare: func(a *world.Attempt) {
			a.Order, a.Intent = declined(a.Books)
			post(a, "payment_intents/"+a.Intent+"/confirm", url.Values{"payment_method": {"pm_card_visa"}})
		}, Run: world.ReadsWindow("confirmable"), Check: (*world.Attempt).RequirePaid},
		{Name: "Discrepancy", Prepare: func(a *world.Attempt) {
			pays(a)
			a.Exec("ALTER TABLE payments DISABLE TRIGGER USER")
			a.Exec(`UPDATE payments SET charge_id = 'ch_another' WHERE order_id = $1`, a.Order)
		}, Run: world.ReadsWindow("recent"), Check: func(a *world.Attempt) {
			require.Equal(a, "status_mismatch", a.Text(`SELECT kind FROM discrepancies WHERE object_id = $1`, a.Intent))
			a.Exec(`DELETE FROM discrepancies`)
			a.Exec("ALTER TABLE payments DISABLE TRIGGER USER")
			a.Exec(`UPDATE payments SET charge_id = (SELECT $2::text) WHERE order_id = $1`, a.Order,
				intentOf(a.Books, a.Intent).ChargeID)
		}},
	})
}

// As TestRoundSwallowsNoError, of what has a row here.
func TestRoundOfWhatIsRecordedSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "ResolvedDiscrepancy", Prepare: func(a *world.Attempt) {
			pays(a)
			a.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
				VALUES ($1, 'payment_intent', $2, 'status_mismatch', 'usd', 0, 'was not shown', $3)`, a.Tenant.ID, a.Intent,
				a.Order)
		}, Run: world.ReadsWindow("recent"), Check: func(a *world.Attempt) {
			require.Zero(a, a.Count(`SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL`))
		}},
		{Name: "EndedAuthorization", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			authorized := a.API.Authorize(a.Key, a.Order, "pm_card_visa")
			require.Equal(a, http.StatusCreated, authorized.Status, authorized)
			require.NoError(a, a.Sim.CancelInDashboard(authorized.Get("stripe", "payment_intent").(string), ""))
		}, Run: world.ReadsWindow("recent"), Check: func(a *world.Attempt) {
			require.Equal(a, "canceled", a.Text(`SELECT status FROM payments WHERE order_id = $1`, a.Order))
		}},
		{Name: "EditedMetadata", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			other := map[string]string{"order_id": a.Order}
			for _, key := range []string{"first-", "second-"} { // so that a list does not end with the one that fails
				paid := a.API.Pay(key+a.Key, a.API.Order(), "pm_card_visa")
				intent := paid.Get("stripe", "payment_intent").(string)
				_, err := a.Stripe.PaymentIntents.Update(intent, &stripego.PaymentIntentParams{Metadata: other})
				require.NoError(a, err)
				made := a.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund-"+key+a.Key, `{"amount":100}`)
				_, err = a.Stripe.Refunds.Update(made.Get("stripe", "refund").(string), &stripego.RefundParams{Metadata: other})
				require.NoError(a, err)
			}
		}, Run: world.ReadsWindow("recent"), Check: func(a *world.Attempt) {
			require.Zero(a, a.Count(`SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL`))
		}},
		{Name: "NotListed", Options: world.LocalOptions{
			Gateway: func(g payments.Gateway) payments.Gateway { return forgetful{g} },
		}, Prepare: pays, Run: world.ReadsWindow("recent"), Check: (*world.Attempt).RequirePaid},
		{Name: "UnfinishedKey", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
			require.Equal(a, http.StatusAccepted, a.API.Pay(a.Key, a.Order, "pm_card_visa").Status)
			a.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = $1`, a.Key)
		}, Run: world.ReadsWindow("recent"), Check: (*world.Attempt).RequirePaid},
	})
}

// As TestRoundSwallowsNoError, of refunds.
func TestRoundOfRefundsSwallowsNoError(t *testing.T) {
	t.Parallel()
	refund := func(a *world.Attempt, amount string) string {
		made := a.API.Post("/v1/payments/"+a.Payment+"/refunds", "refund-"+a.Key, `{"amount":`+amount+`}`)
		require.Equal(a, http.StatusCreated, made.Status, made)
		return made.Get("stripe", "refund").(string)
	}
	refunds := func(expected string) func(a *world.Attempt) {
		return func(a *world.Attempt) {
			require.Equal(a, expected, a.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', '
				ORDER BY amount_minor, origin, status) FROM refunds WHERE order_id = $1`, a.Order))
		}
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "MadeByOthers", Prepare: func(a *world.Attempt) {
			pays(a)
			post(a, "refunds", url.Values{"payment_intent": {a.Intent}, "amount": {"100"}})
		}, Run: world.ReadsWindow("refunds_young"), Check: refunds("provider succeeded 100")},
		{Name: "SentBackByTheBank", Prepare: func(a *world.Attempt) {
			pays(a)
			require.NoError(a, a.Sim.FailRefund(refund(a, "400"), "lost_or_stolen_card"))
		}, Run: world.ReadsWindow("refunds_young"), Check: refunds("api failed 400")},
	})
}

// forgetful lists no intents, so that each is read by the id that our row has.
type forgetful struct{ payments.Gateway }

func (forgetful) ListIntents(context.Context, stripe.Window) (stripe.Page[stripe.Intent], error) {
	return stripe.Page[stripe.Intent]{}, nil
}

// aged shows intents as if they were created a day earlier.
type aged struct{ payments.Gateway }

func (g aged) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	i, err := g.Gateway.GetIntent(ctx, tenantID, id)
	i.CreatedAt = i.CreatedAt.Add(-25 * time.Hour)
	return i, err
}

// As TestRoundSwallowsNoError, of an intent that no payment has used for a day.
func TestCancelOfAnAbandonedIntentSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name:    "UnusedForADay",
		Options: world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { return aged{g} }},
		Prepare: func(a *world.Attempt) {
			a.Order, a.Intent = declined(a.Books)
			a.Exec(`UPDATE payments SET updated_at = updated_at - interval '25 hours' WHERE order_id = $1`, a.Order)
		},
		Run: world.ReadsWindow("confirmable"),
		Check: func(a *world.Attempt) {
			a.Complete()
			require.EqualValues(a, "canceled", intentOf(a.Books, a.Intent).Status)
		},
	}})
}

// The audit reports every error: without it what it could not read would seem to agree.
func TestAuditSwallowsNoError(t *testing.T) {
	t.Parallel()
	audit := func(a *world.Attempt) {
		_, err := reconcile.Compare(context.Background(), a.API.Pool, a.API.Gateway, a.API.Payments, a.Begun())
		a.Failed(err)
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "OfEverything",
		Prepare: func(a *world.Attempt) {
			pays(a)
			for range 2 { // so that a list does not end with the one that fails
				_, err := a.Stripe.Refunds.New(&stripego.RefundParams{
					PaymentIntent: stripego.String(a.Intent), Amount: stripego.Int64(100),
				})
				require.NoError(a, err)
			}
			world.ReadsWindow("recent")(a)
			_, declinedIntent := declined(a.Books)
			a.Value = declinedIntent
			a.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
				VALUES ($1, 'payment_intent', $2, 'status_mismatch', 'usd', 0, 'was not shown', $3)`, a.Tenant.ID, a.Intent,
				a.Order)
		},
		Run: audit,
		Check: func(a *world.Attempt) {
			a.Exec(`UPDATE discrepancies SET resolved_at = clock_timestamp(), resolution = 'by hand'`)
			a.Exec(`UPDATE payments SET intent_closed = true WHERE intent_id = $1`, a.Value)
		},
	}})
}

// What cannot be measured is said.
func TestMeasureSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name:    "Gauges",
		Prepare: func(*world.Attempt) {},
		Run: func(a *world.Attempt) {
			_, err := a.Reconciler.Measure(context.Background())
			a.Failed(err)
		},
		Check: func(*world.Attempt) {},
	}})
}
