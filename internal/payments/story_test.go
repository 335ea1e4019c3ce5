package payments_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func (b *books) story(key string) world.Answer {
	b.T.Helper()
	a := b.api.Get("/v1/idempotency-keys/" + key)
	require.Equal(b.T, http.StatusOK, a.Status, a)
	return a
}

// members are those of one name in a list of objects.
func members(a world.Answer, list, name string) (all []string) {
	for _, item := range a.Get(list).([]any) {
		text, _ := item.(map[string]any)[name].(string)
		all = append(all, text)
	}
	return all
}

func TestKeyStory(t *testing.T) {
	t.Parallel()

	t.Run("OfAPaymentWhoseHolderDied", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, b.api.Pay("k", order, "pm_card_visa").Status)
		waiting := b.story("k")
		require.Equal(t, "waiting", waiting.Get("state"))
		require.Regexp(t, `^unknown whether the money has moved: the completer looks again at 20\d\d-.*Z$`, waiting.Get("verdict"))
		require.Nil(t, waiting.Get("answer_status"))
		require.NotEmpty(t, waiting.Get("last_error"))

		b.Sim.ClearFaults()
		b.api.Complete()
		story := b.story("k")
		require.Equal(t, "finished", story.Get("state"))
		require.EqualValues(t, 201, story.Get("answer_status"))
		require.EqualValues(t, 2, story.Get("attempts"))
		require.Equal(t, []string{"payment_recorded", "intent_recorded", "resumed", "finished"}, members(story, "trail", "recovery_point"))
		require.Equal(t, []string{b.Tenant.ID + ":" + order + ":intent:1", b.Tenant.ID + ":k:confirm"}, members(story, "provider_calls", "stripe_key"))
		require.Equal(t, []string{"done", "done"}, members(story, "provider_calls", "outcome"))
		require.Equal(t, []string{"order.created", "payment.created", "payment.succeeded", "order.paid"}, members(story, "events", "type"))
		require.Equal(t, "/v1/payments/"+story.Get("resource", "id").(string), story.Get("resource", "href"))
		charge := b.Text("SELECT charge_id FROM payments")
		require.Equal(t, "charged once, "+charge, story.Get("verdict"))
		finished, err := time.Parse(time.RFC3339, story.Get("finished_at").(string))
		require.NoError(t, err)
		require.Equal(t, finished.Add(72*time.Hour).Format("2006-01-02T15:04:05.000Z07:00"), story.Get("expires_at"))
	})

	t.Run("SaysWhatHappenedInEffect", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		require.Equal(t, http.StatusPaymentRequired, b.api.Pay("declined", order, "pm_card_visa_chargeDeclinedInsufficientFunds").Status)
		require.Equal(t, http.StatusPaymentRequired, b.api.Pay("failed", order, "pm_nobody").Status)
		require.Equal(t, http.StatusAccepted, b.api.Pay("waits", order, "pm_card_threeDSecure2Required").Status)
		waits := b.story("waits").Get("verdict")
		require.Equal(t, http.StatusOK, b.api.Post("/v1/payments/"+b.Text("SELECT id FROM payments WHERE idempotency_key = 'waits'")+"/cancel", "cancel-payment", "{}").Status)
		b.api.Complete()
		paid := b.api.Pay("paid", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.Status)
		require.Equal(t, http.StatusConflict, b.api.Pay("again", order, "pm_card_visa").Status)
		refunds := "/v1/payments/" + paid.ID() + "/refunds"
		require.Equal(t, http.StatusCreated, b.api.Post(refunds, "refund", `{"amount":300}`).Status)
		require.Equal(t, http.StatusConflict, b.api.Post(refunds, "too-much", `{"amount":900}`).Status)
		other := b.api.Post("/v1/orders", "order", `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`).ID()
		require.Equal(t, http.StatusOK, b.api.Post("/v1/orders/"+other+"/cancel", "cancel-order", "{}").Status)
		require.Equal(t, http.StatusOK, b.api.Do("PUT", "/v1/stock/tea", `{"available":3}`).Status)
		const checkout = `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],"payment_method":"pm_card_visa"}`
		require.Equal(t, http.StatusCreated, b.api.Post("/v1/checkouts", "checkout", checkout).Status)
		require.Equal(t, http.StatusConflict, b.api.Post("/v1/checkouts", "no-stock", checkout).Status)
		require.Equal(t, http.StatusPaymentRequired, b.api.Post("/v1/checkouts", "no-money", strings.NewReplacer("pm_card_visa", "pm_card_visa_chargeDeclined", `"quantity":2`, `"quantity":1`).Replace(checkout)).Status)

		require.Regexp(t, `^waits for the customer, no money taken yet: the completer looks again at `, waits)
		verdicts := map[string]string{
			"declined":       `declined \(insufficient_funds\), no money taken`,
			"failed":         `failed \(resource_missing\), no money taken`,
			"waits":          `canceled, no money taken`,
			"cancel-payment": `the payment was canceled, no money taken`,
			"paid":           `charged once, ch_\w+, and 300 of 1000 usd refunded`,
			"again":          `refused for good; nothing was done under this key`,
			"refund":         `refunded once, re_\w+`,
			"too-much":       `refused for good; nothing was done under this key`,
			"order":          `one order was made`,
			"cancel-order":   `the order was canceled`,
			"checkout":       `completed, charged once, ch_\w+`,
			"no-stock":       `compensated \(out_of_stock\), no money taken`,
			"no-money":       `compensated \(card_declined\), no money taken`,
		}
		for key, verdict := range verdicts {
			require.Regexp(t, "^"+verdict+"$", b.story(key).Get("verdict"), key)
		}

		// Once the answers are gone the stories are the same, but for the answer.
		reaper := idempotency.NewReaper(b.api.Keys, time.Microsecond, 0)
		_, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		for key, verdict := range verdicts {
			story := b.story(key)
			require.Equal(t, "expired", story.Get("state"), key)
			require.Regexp(t, "^"+verdict+"$", story.Get("verdict"), key)
		}
		gone := b.api.Pay("paid", order, "pm_card_visa")
		require.Equal(t, http.StatusGone, gone.Status, gone)
		require.Equal(t, paid.ID(), gone.Problem().Resource.ID)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	t.Run("TellsOfWebhooks", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		_, err := b.Sim.AddWebhookEndpoint(stripesim.DefaultKey, b.api.Base+"/v1/webhooks/stripe", world.WebhookSecret)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, b.api.Pay("other", b.api.Order(), "pm_card_visa").Status)
		require.Equal(t, http.StatusCreated, b.api.Pay("k", b.api.Order(), "pm_card_visa").Status)
		require.NoError(t, b.Sim.WaitForWebhooks(t.Context()))
		processor := inbox.NewProcessor(b.api.Pool, map[string]inbox.Handler{payments.StripeEvents: b.api.Payments.WebhookHandler()}, inbox.ProcessorOptions{})
		world.Eventually(t, world.Patience, "the webhooks are applied", func() bool {
			n, err := processor.RunOnce(context.Background())
			require.NoError(t, err)
			return n == 0
		})
		story := b.story("k")
		require.ElementsMatch(t, []string{"payment_intent.created", "charge.succeeded", "payment_intent.succeeded"}, members(story, "webhooks", "type"))
		require.NotContains(t, members(story, "webhooks", "applied_at"), "")

		// What a refund sent is told with Stripe's name of the request and of what it made.
		for card, verdict := range map[string]string{"pm_card_visa": "^refunded once, re_", "pm_card_pendingRefund": "^Stripe has the refund and has not decided yet"} {
			payment := b.api.Pay("paid-"+card, b.api.Order(), card).ID()
			b.api.Post("/v1/payments/"+payment+"/refunds", "refund-"+card, `{}`)
			story := b.story("refund-" + card)
			require.Regexp(t, verdict, story.Get("verdict"))
			require.Equal(t, []string{"done"}, members(story, "provider_calls", "outcome"), card)
			require.Regexp(t, "^re_", members(story, "provider_calls", "object_id")[0], card)
			require.Len(t, story.Get("provider_calls").([]any)[0].(map[string]any)["request_ids"], 1, card)
		}

		// The order is what a cancel is about, and its intent is what Stripe tells of.
		waits := b.api.Pay("waits", b.api.Order(), "pm_card_threeDSecure2Required")
		require.Equal(t, http.StatusOK, b.api.Post("/v1/orders/"+waits.Get("order_id").(string)+"/cancel", "cancel", "").Status)
		require.NoError(t, b.Sim.WaitForWebhooks(t.Context()))
		require.Contains(t, members(b.story("cancel"), "webhooks", "type"), "payment_intent.canceled")
		require.Contains(t, members(b.story("waits"), "webhooks", "type"), "payment_intent.canceled")
	})

	t.Run("AddsWhatThePersonMustSee", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		order := b.api.Order()
		require.Equal(t, http.StatusCreated, b.api.Pay("k", order, "pm_card_visa").Status)
		b.ghost(order)
		b.reconcile()
		require.Regexp(t, `^charged once, ch_\w+; a person must look: the order is paid a second time, after `, b.story("k").Get("verdict"))
	})

	t.Run("IsNobodyElses", func(t *testing.T) {
		t.Parallel()
		b := newBooks(t)
		require.Equal(t, http.StatusCreated, b.api.Pay("k", b.api.Order(), "pm_card_visa").Status)
		require.Equal(t, http.StatusNotFound, b.api.As(b.NewTenant()).Get("/v1/idempotency-keys/k").Status)
		require.NoError(t, b.DB.InTx(t.Context(), func(q *db.Queries) error {
			return idempotency.Enqueue(t.Context(), q, idempotency.Request{TenantID: b.Tenant.ID, Key: "cancel_abandoned_intent pi_1", Operation: payments.CancelAbandonedIntent}, "ord_1", "sweep_begun")
		}))
		require.Equal(t, http.StatusNotFound, b.api.Get("/v1/idempotency-keys/cancel_abandoned_intent%20pi_1").Status)
	})
}
