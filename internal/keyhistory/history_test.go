package keyhistory_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/keyhistory"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestVerdictSaysWhatADisputeHolds: the money is not with the merchant any more.
func TestVerdictSaysWhatADisputeHolds(t *testing.T) {
	t.Parallel()
	charge := "ch_1"
	p := db.Payment{ChargeID: &charge, AmountMinor: 1300, Currency: "usd", AmountDisputedMinor: 1300}
	require.Equal(t, "charged once, ch_1; 13.00 USD withdrawn by the bank in a dispute", keyhistory.ChargedOnce(&p))
}

// historyOf reads the history of a key through the API.
func historyOf(b *world.Books, key string) world.Answer {
	b.T.Helper()
	a := b.API.Get("/v1/idempotency-keys/" + key)
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

// verdictsOfParts do something under keys, and return what the verdict of each key must
// match: those of the parts that the service can be made without.
var verdictsOfParts []func(b *world.Books) map[string]string

func TestHistory(t *testing.T) {
	t.Parallel()

	t.Run("OfAPaymentWhoseProcessExited", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, "pm_card_visa").Status)
		waiting := historyOf(b, "k")
		require.Equal(t, "waiting", waiting.Get("state"))
		require.Regexp(t, `^unknown whether the money has moved: the completer looks again at 20\d\d-.*Z$`,
			waiting.Get("verdict"))
		require.Nil(t, waiting.Get("answer_status"))
		require.NotEmpty(t, waiting.Get("last_error"))

		b.Sim.ClearFaults()
		b.API.Complete()
		history := historyOf(b, "k")
		require.Equal(t, "finished", history.Get("state"))
		require.EqualValues(t, 201, history.Get("answer_status"))
		require.EqualValues(t, 2, history.Get("attempts"))
		require.Equal(t, []string{"started", "intent_recorded", "resumed", "finished"},
			members(history, "trail", "recovery_point"))
		require.Equal(t, []string{b.Tenant.ID + ":" + order + ":intent:1", b.Tenant.ID + ":k:confirm"},
			members(history, "provider_calls", "stripe_key"))
		require.Equal(t, []string{"done", "done"}, members(history, "provider_calls", "outcome"))
		require.Equal(t, []string{"order.created", "payment.created", "payment.succeeded", "order.paid"},
			members(history, "events", "type"))
		require.Equal(t, "/v1/payments/"+history.Get("resource", "id").(string), history.Get("resource", "href"))
		charge := b.Text("SELECT charge_id FROM payments")
		require.Equal(t, "charged once, "+charge, history.Get("verdict"))
		finished, err := time.Parse(time.RFC3339, history.Get("finished_at").(string))
		require.NoError(t, err)
		require.Equal(t, finished.Add(72*time.Hour).Format("2006-01-02T15:04:05.000Z07:00"), history.Get("expires_at"))
	})

	t.Run("StatesTheOutcome", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusPaymentRequired,
			b.API.Pay("declined", order, "pm_card_visa_chargeDeclinedInsufficientFunds").Status)
		require.Equal(t, http.StatusPaymentRequired, b.API.Pay("failed", order, "pm_nobody").Status)
		require.Equal(t, http.StatusAccepted, b.API.Pay("waits", order, "pm_card_threeDSecure2Required").Status)
		waits := historyOf(b, "waits").Get("verdict")
		require.Equal(t, http.StatusOK,
			b.API.Post("/v1/payments/"+b.Text("SELECT id FROM payments WHERE idempotency_key = 'waits'")+"/cancel",
				"cancel-payment", "{}").Status)
		b.API.Complete()
		paid := b.API.Pay("paid", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.Status)
		require.Equal(t, http.StatusConflict, b.API.Pay("again", order, "pm_card_visa").Status)
		refunds := "/v1/payments/" + paid.ID() + "/refunds"
		require.Equal(t, http.StatusCreated, b.API.Post(refunds, "refund", `{"amount":300}`).Status)
		require.Equal(t, http.StatusConflict, b.API.Post(refunds, "too-much", `{"amount":900}`).Status)
		other := b.API.Post("/v1/orders", "order",
			`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`).ID()
		require.Equal(t, http.StatusOK, b.API.Post("/v1/orders/"+other+"/cancel", "cancel-order", "{}").Status)

		held := b.API.Post("/v1/orders", "order-2",
			`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`).ID()
		authorize := fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa","capture":"manual"}`, held)
		payment := "/v1/payments/" + b.API.Post("/v1/payments", "authorize", authorize).ID()
		authorized := historyOf(b, "authorize").Get("verdict")
		require.Equal(t, http.StatusOK, b.API.Post(payment+"/capture", "capture", `{"amount":700}`).Status)
		require.Equal(t, http.StatusConflict, b.API.Post(payment+"/capture", "capture-again", `{"amount":300}`).Status)
		require.Equal(t, http.StatusCreated, b.API.Post(payment+"/refunds", "refund-part", `{"amount":200}`).Status)

		require.Regexp(t, `^waits for the customer, no money taken yet: the completer looks again at `, waits)
		require.Regexp(t, `^10\.00 USD authorized, nothing taken yet; it expires at 20\d\d-.*Z$`, authorized)
		verdicts := map[string]string{
			"declined":       `declined \(insufficient_funds\), no money taken`,
			"failed":         `failed \(resource_missing\), no money taken`,
			"waits":          `canceled, no money taken`,
			"cancel-payment": `the payment was canceled, no money taken`,
			"paid":           `charged once, ch_\w+, and 3\.00 USD of 10\.00 USD refunded`,
			"again":          `refused for good; nothing was done under this key`,
			"refund":         `refunded once, re_\w+`,
			"too-much":       `refused for good; nothing was done under this key`,
			"order":          `one order was made`,
			"cancel-order":   `the order was canceled`,
			"authorize": `charged once, ch_\w+, 7\.00 USD of 10\.00 USD authorized, ` +
				`and 2\.00 USD of 7\.00 USD refunded`,
			"capture": `charged once, ch_\w+, 7\.00 USD of 10\.00 USD authorized, ` +
				`and 2\.00 USD of 7\.00 USD refunded`,
			"capture-again": `refused for good; nothing was done under this key`,
			"refund-part":   `refunded once, re_\w+`,
		}
		for _, played := range verdictsOfParts {
			maps.Copy(verdicts, played(b))
		}
		require.Contains(t, members(historyOf(b, "capture"), "provider_calls", "stripe_key"),
			b.Tenant.ID+":capture:capture")
		for key, verdict := range verdicts {
			require.Regexp(t, "^"+verdict+"$", historyOf(b, key).Get("verdict"), key)
		}

		// Once the answers are deleted the histories are the same, but for the answer.
		b.Exec("UPDATE retention_floor SET answers = '0'")
		reaper := idempotency.NewReaper(b.API.Keys, time.Microsecond, 0)
		_, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		for key, verdict := range verdicts {
			history := historyOf(b, key)
			require.Equal(t, "expired", history.Get("state"), key)
			require.Regexp(t, "^"+verdict+"$", history.Get("verdict"), key)
		}
		gone := b.API.Pay("paid", order, "pm_card_visa")
		require.Equal(t, http.StatusGone, gone.Status, gone)
		require.Equal(t, paid.ID(), gone.Problem().Resource.ID)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	t.Run("ListsWebhooks", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		_, err := b.Sim.AddWebhookEndpoint(stripesim.DefaultKey, b.API.Base+"/v1/webhooks/stripe", world.WebhookSecret)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, b.API.Pay("other", b.API.Order(), "pm_card_visa").Status)
		require.Equal(t, http.StatusCreated, b.API.Pay("k", b.API.Order(), "pm_card_visa").Status)
		require.NoError(t, b.Sim.WaitForWebhooks(t.Context()))
		processor := inbox.NewProcessor(b.API.Pool,
			map[string]inbox.Handler{payments.StripeEvents: b.API.Payments.WebhookHandler()}, inbox.ProcessorOptions{})
		world.Eventually(t, world.Patience, "the webhooks are applied", func() bool {
			n, err := processor.RunOnce(context.Background())
			require.NoError(t, err)
			return n == 0
		})
		history := historyOf(b, "k")
		require.ElementsMatch(t, []string{"payment_intent.created", "charge.succeeded", "payment_intent.succeeded"},
			members(history, "webhooks", "type"))
		require.NotContains(t, members(history, "webhooks", "applied_at"), "")

		// What a refund sent is told with Stripe's name of the request and of what it made.
		for card, verdict := range map[string]string{"pm_card_visa": "^refunded once, re_",
			"pm_card_pendingRefund": "^Stripe has the refund and has not decided yet"} {
			payment := b.API.Pay("paid-"+card, b.API.Order(), card).ID()
			b.API.Post("/v1/payments/"+payment+"/refunds", "refund-"+card, `{}`)
			history := historyOf(b, "refund-"+card)
			require.Regexp(t, verdict, history.Get("verdict"))
			require.Equal(t, []string{"done"}, members(history, "provider_calls", "outcome"), card)
			require.Regexp(t, "^re_", members(history, "provider_calls", "object_id")[0], card)
			require.Len(t, history.Get("provider_calls").([]any)[0].(map[string]any)["request_ids"], 1, card)
		}

		// The order is what a cancel is about, and its intent is what Stripe tells of.
		waits := b.API.Pay("waits", b.API.Order(), "pm_card_threeDSecure2Required")
		require.Equal(t, http.StatusOK,
			b.API.Post("/v1/orders/"+waits.Get("order_id").(string)+"/cancel", "cancel", "").Status)
		require.NoError(t, b.Sim.WaitForWebhooks(t.Context()))
		require.Contains(t, members(historyOf(b, "cancel"), "webhooks", "type"), "payment_intent.canceled")
		require.Contains(t, members(historyOf(b, "waits"), "webhooks", "type"), "payment_intent.canceled")
	})

	t.Run("AddsWhatTheOperatorMustSee", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
		b.OrphanIntent(order)
		b.Reconcile()
		require.Regexp(t, `^charged once, ch_\w+; an operator must look: the order is paid a second time, after `,
			historyOf(b, "k").Get("verdict"))
	})

	t.Run("IsNotShownToOtherTenants", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		require.Equal(t, http.StatusCreated, b.API.Pay("k", b.API.Order(), "pm_card_visa").Status)
		require.Equal(t, http.StatusNotFound, b.API.As(b.NewTenant()).Get("/v1/idempotency-keys/k").Status)
		require.NoError(t, b.DB.InTx(t.Context(), func(q *db.Queries) error {
			return b.API.Keys.Enqueue(t.Context(), q,
				idempotency.Request{TenantID: b.Tenant.ID, Key: "cancel_abandoned_intent pi_1",
					Operation: payments.CancelAbandonedIntent}, "ord_1", "cancel_abandoned_begun")
		}))
		require.Equal(t, http.StatusNotFound, b.API.Get("/v1/idempotency-keys/cancel_abandoned_intent%20pi_1").Status)
	})
}

// TestVerdictOfWhatIsNotFound: a key that was answered with a success was not refused, whatever this
// database has lost since, and whatever this version does not know.
func TestVerdictOfWhatIsNotFound(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
	b.Unguarded("UPDATE idempotency_keys SET resource_id = $1 WHERE key = 'k'", ids.New(ids.Payment))
	require.Equal(t, "the key is finished and what it made is not in this database; an operator must look",
		historyOf(b, "k").Get("verdict"))

	b.Unguarded("UPDATE idempotency_keys SET operation = 'create_tip', resource_id = 'tip_06gvqs7m7pv2f4r5a2ia79is1g' " +
		"WHERE key = 'k'")
	history := historyOf(b, "k")
	require.Equal(t, "unknown to this service: the operation create_tip is not registered; it has called Stripe, "+
		"so money may have moved", history.Get("verdict"))
	require.Nil(t, history.Get("resource", "href"))
	require.Equal(t, []string{b.Tenant.ID + ":k:confirm"}, members(history, "provider_calls", "stripe_key"))
}
