package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// T1b's commit was in doubt, was read back as missing, and landed after all before
// it was tried again: the second try meets the first, and is as good as it.
func TestRetryOfT1bFindsTheFirst(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	order := api.Order()
	w.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
	require.Equal(t, http.StatusAccepted, api.Pay("k", order, visa).Status)
	w.Sim.ClearFaults()
	create := w.Tenant.ID + ":" + order + ":intent:1"
	out := api.Gateway.CreateIntent(t.Context(), stripe.Call{Key: create},
		stripe.NewIntent{TenantID: w.Tenant.ID, OrderID: order, AmountMinor: 1000, Currency: "usd"})
	require.Equal(t, stripe.Done, out.Effect)
	for range 2 {
		done, err := api.Pool.PaymentIntentRecord(t.Context(), db.PaymentIntentRecordParams{
			TenantIds: []string{w.Tenant.ID}, Keys: []string{"k"},
			LeaseTokens:    []int64{int64(w.Count("SELECT lease_token FROM idempotency_keys WHERE key = 'k'"))},
			RecoveryPoints: []string{"intent_recorded"},
			PaymentIds:     []string{w.Text("SELECT id FROM payments")}, IntentIds: []string{out.Intent.ID},
			CreateKeys: []string{create}, StripeRequestIds: []string{out.RequestID},
		})
		require.NoError(t, err)
		require.Equal(t, []int32{1}, done)
	}
	require.Equal(t, 1, w.Count("SELECT count(*) FROM stripe_calls WHERE operation = 'confirm'"))
	require.Equal(t, http.StatusCreated, api.Pay("k", order, visa).Status)
	w.RequireChargedOnce(order)
}

// TestDatabaseAwayFromUnfinishedWork: a refund or a cancel that is recorded may have
// been made. Its client is never told that nothing was begun, for it might ask
// again under another key, and the money would go back twice.
func TestDatabaseAwayFromUnfinishedWork(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T, point string) (w *world.World, api *world.Local, away func(bool)) {
		away = func(bool) {}
		w, api, proxy := world.Proxied(t, world.LocalOptions{Boundary: func(_, at string) {
			if at == point {
				away(true)
			}
		}})
		return w, api, func(armed bool) {
			away = func(bool) {}
			if armed {
				away = proxy.Away
			}
			proxy.Away(false)
		}
	}

	t.Run("Refund", func(t *testing.T) {
		t.Parallel()
		w, api, away := begun(t, "refund_recorded")
		payment := api.Pay("k", api.Order(), visa)
		require.Equal(t, http.StatusCreated, payment.Status, payment)
		refund := func() world.Answer {
			return api.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":400}`)
		}
		away(true)
		a := refund()
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, "pending", a.Get("status"))
		require.Equal(t, "refunds/"+a.ID(), a.Header.Get("Location")[len("/v1/"):])
		away(false)
		require.Equal(t, 1, api.Complete())
		final := refund()
		require.Equal(t, http.StatusCreated, final.Status, final)
		require.True(t, final.Replayed(), "it was finished without the client")
		require.Equal(t, a.ID(), final.ID())
		require.Len(t, w.Posts("refunds"), 1)
		w.RequireSound()
	})

	for name, c := range map[string]struct {
		path, point string
		authorized  bool
	}{
		"CancelOfAPayment": {"/v1/payments/%s/cancel", "cancel_begun", false},
		"CancelOfAnOrder":  {"/v1/orders/%s/cancel", "cancel_begun", false},
		"Release":          {"/v1/payments/%s/cancel", "cancel_begun", true},
		"ReleaseOfAnOrder": {"/v1/orders/%s/cancel", "cancel_begun", true},
		"Capture":          {"/v1/payments/%s/capture", "capture_recorded", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.path
			w, api, away := begun(t, c.point)
			order := api.Order()
			var payment world.Answer
			if c.authorized {
				payment = api.Authorize("k", order, visa)
			} else {
				payment = api.Pay("k", order, careful)
			}
			id := payment.ID()
			if strings.Contains(path, "orders") {
				id = order
			}
			away(true)
			a := api.Post(fmt.Sprintf(path, id), "cancel", "")
			require.Equal(t, http.StatusConflict, a.Status, a)
			require.Equal(t, "idempotency-key-in-flight", a.Code())
			require.True(t, a.Problem().Retryable)
			require.NotEmpty(t, a.Header.Get("Retry-After"))
			away(false)
			require.Positive(t, api.Complete())
			final := api.Post(fmt.Sprintf(path, id), "cancel", "")
			require.Equal(t, http.StatusOK, final.Status, final)
			require.True(t, final.Replayed())
			w.RequireSound()
		})
	}
}

// processingGateway is a bank that takes its time over every intent.
type processingGateway struct{ payments.Gateway }

func (processingGateway) CancelIntent(context.Context, stripe.Call, string) stripe.Outcome {
	return stripe.Outcome{Effect: stripe.Conflict, HTTPStatus: http.StatusBadRequest,
		ErrorCode: "payment_intent_unexpected_state"}
}

func (g processingGateway) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	i, err := g.Gateway.GetIntent(ctx, tenantID, id)
	i.Status = stripe.IntentProcessing
	return i, err
}

// A cancel that has to wait says for how long, whoever found out.
func TestCancelOfAProcessingIntentSetsRetryAfter(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sound := w.Local(world.LocalOptions{})
	order := sound.Order()
	require.Equal(t, "requires_action", sound.Pay("k", order, careful).Get("status"))
	slow := w.Local(world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { return processingGateway{g} }})
	for range 2 {
		a := slow.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`)
		require.Equal(t, http.StatusConflict, a.Status, a)
		require.Equal(t, "payment-in-progress", a.Code())
		require.True(t, a.Problem().Retryable)
		require.NotEmpty(t, a.Header.Get("Retry-After"))
	}
	require.Equal(t, http.StatusOK, sound.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status,
		"and then it is canceled")
}

// refusingGateway cancels no intent, although nothing else has happened to it.
type refusingGateway struct{ payments.Gateway }

func (g refusingGateway) CancelIntent(ctx context.Context, c stripe.Call, id string) stripe.Outcome {
	return processingGateway(g).CancelIntent(ctx, c, id)
}

// A payment whose customer is late and whose intent cannot be canceled is tried again as any other failure,
// and so parked at last. If it went on waiting for the customer, nobody would ever hear of it.
func TestIntentThatCannotBeCanceledIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	refused := w.Local(world.LocalOptions{ActionTimeout: time.Millisecond,
		Gateway: func(g payments.Gateway) payments.Gateway { return refusingGateway{g} }})
	order := refused.Order()
	require.Equal(t, "requires_action", refused.Pay("k", order, careful).Get("status"))
	require.Positive(t, refused.Complete())
	require.Contains(t, w.Text("SELECT last_error FROM idempotency_keys WHERE key = 'k'"),
		"payment_intent_unexpected_state")
}
