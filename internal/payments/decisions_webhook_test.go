package payments_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/stripe"
)

// What a webhook does, by what our rows say of the intent that it names and by what Stripe then shows of it. Each row
// says how the payment got there, the event, what Stripe responds, and what has changed: the order and its payments, the
// refunds, whether the payment's key is due, or the error for which the event is kept and tried again.
func TestWebhookFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		waits     = stripe.IntentRequiresAction
		needsCard = stripe.IntentRequiresPaymentMethod
		paid      = stripe.IntentSucceeded
		slow      = stripe.IntentProcessing
		ended     = stripe.IntentCanceled
		succeeded = "payment_intent.succeeded"
		canceled  = "payment_intent.canceled"
		refunds   = "charge.refunded"
		theirs    = "another-tenant"
	)
	made := done(create, stripe.IntentRequiresConfirmation)
	waiting := []response{made, done(confirm, waits)}
	unknown := []response{made, other(confirm, stripe.Unknown)}
	paidUp := []response{made, done(confirm, paid)}
	failed := []response{made, other(confirm, stripe.Refused, declined)}
	back := func(minor int64) response { return listing(foreign(db.RefundStatusSucceeded, minor)) }
	ofNobody := func(r *response) { r.intent.TenantID, r.intent.OrderID = "", "none" }
	charged := func(r *response) { r.intent.Charged = stripe.Order{TenantID: ours, OrderID: ours} }
	operation := func(r *response) { r.intent.Operation = "create_tip" }
	p := play(t)
	for _, c := range []struct {
		name    string
		payment []response // none: the order has none
		event   string
		names   string // what the event's metadata names: ours by default
		stripe  []response
		want    string // order, payments; refunds
		due     bool
		settled bool // nothing is done with it, now or later
		wrong   string
	}{
		{name: "IntentOfAPaymentThatWaits", payment: waiting, event: succeeded, want: "open, requires_action; ", due: true},
		{name: "IntentOfAPaymentWhoseOutcomeIsUnknown", payment: unknown, event: "payment_intent.processing",
			want: "open, processing; ", due: true},
		{name: "IntentOfAPaymentThatWasMade", payment: paidUp, event: succeeded, settled: true, want: "paid, succeeded; "},
		{name: "IntentOfAFailedPaymentIsNotAtItsEnd", payment: failed, event: "payment_intent.payment_failed", settled: true,
			want: "open, failed; "},
		{name: "IntentOfAFailedPaymentWasPaid", payment: failed, event: succeeded, stripe: []response{shows(paid)},
			want: "paid, failed closed succeeded; "},
		{name: "IntentOfAFailedPaymentWasPaidAndRefundedInPart", payment: failed, event: succeeded,
			stripe: []response{shows(paid, refunded(400)), back(400)},
			want:   "partially_refunded, failed closed succeeded; succeeded 400"},
		{name: "IntentOfAFailedPaymentWasPaidUnderOtherMetadata", payment: failed, event: succeeded,
			stripe: []response{shows(paid, names(theirs, "7"))}, want: "paid, failed closed succeeded; "},
		{name: "IntentOfAFailedPaymentIsGone", payment: failed, event: succeeded, stripe: []response{absent()},
			want: "open, failed; "},
		{name: "IntentOfAFailedPaymentCannotBeRead", payment: failed, event: succeeded, stripe: []response{away(get)},
			want: "open, failed; ", wrong: "no response"},
		{name: "IntentOfAFailedPaymentIsProcessing", payment: failed, event: succeeded, stripe: []response{shows(slow)},
			want: "open, failed; "},
		{name: "IntentOfAFailedPaymentWasCanceled", payment: failed, event: canceled, stripe: []response{shows(ended)},
			want: "open, failed closed; "},

		{name: "IntentOfNoPaymentSucceeded", event: succeeded, stripe: []response{shows(paid)}, want: "open, ; ",
			wrong: "belongs to no payment yet"},
		{name: "IntentOfNoPaymentIsProcessing", event: succeeded, stripe: []response{shows(slow)}, want: "open, ; ",
			wrong: "belongs to no payment yet"},
		{name: "IntentOfNoPaymentWaits", event: succeeded, stripe: []response{shows(waits)}, want: "open, ; ",
			wrong: "belongs to no payment yet"},
		{name: "IntentOfNoPaymentIsUnpaid", event: succeeded, stripe: []response{shows(needsCard)}, want: "open, ; "},
		{name: "IntentOfNoPaymentWasRefunded", event: succeeded, stripe: []response{shows(paid, refunded(1000))},
			want: "open, ; "},
		{name: "IntentOfNoPaymentWasRefundedInPart", event: succeeded, stripe: []response{shows(paid, refunded(999))},
			want: "open, ; ", wrong: "belongs to no payment yet"},
		{name: "IntentOfNoPaymentWasCanceled", event: canceled, stripe: []response{shows(ended)}, want: "open, ; "},
		{name: "IntentOfNoPaymentIsGone", event: succeeded, stripe: []response{absent()}, want: "open, ; "},
		{name: "IntentOfNoPaymentCannotBeRead", event: succeeded, stripe: []response{away(get)}, want: "open, ; ",
			wrong: "no response"},
		{name: "IntentOfAnotherInstallation", names: theirs, event: succeeded,
			stripe: []response{shows(paid, names(theirs, "7"))}, want: "open, ; "},
		{name: "IntentOfNobody", names: "-", event: succeeded, stripe: []response{shows(paid, ofNobody)}, want: "open, ; "},
		{name: "IntentOfAPaymentUnderOtherMetadata", payment: waiting, names: theirs, event: succeeded,
			stripe: []response{shows(paid, names(theirs, "7"), charged)}, want: "open, requires_action; ", due: true},
		{name: "IntentOfAPaymentUnderMetadataOfAnotherOrder", payment: waiting, names: "7", event: succeeded,
			stripe: []response{shows(paid, names(ours, "7"))}, want: "open, requires_action; ", due: true},
		{name: "IntentOfAPaymentUnderMetadataOfAnotherOrderIsUnpaid", payment: waiting, names: "7", event: canceled,
			stripe: []response{shows(ended, names(ours, "7"))}, want: "open, requires_action; "},
		{name: "NoIntent", event: "customer.created", names: "no intent", want: "open, ; "},

		{name: "RefundOfAPayment", payment: paidUp, event: refunds, stripe: []response{shows(paid, refunded(400)), back(400)},
			want: "partially_refunded, succeeded; succeeded 400"},
		{name: "RefundThatIsNotListed", payment: paidUp, event: refunds,
			stripe: []response{shows(paid, refunded(400)), listing()}, want: "paid, succeeded; "},
		{name: "RefundsThatCannotBeRead", payment: paidUp, event: refunds,
			stripe: []response{shows(paid, refunded(400)), away(lists)}, want: "paid, succeeded; ", wrong: "no response"},
		{name: "RefundOfAnIntentThatIsGone", payment: paidUp, event: refunds, stripe: []response{absent()},
			want: "paid, succeeded; "},
		{name: "RefundOfAPaymentThatWaits", payment: waiting, event: refunds,
			stripe: []response{shows(paid, refunded(400)), back(400)}, want: "open, requires_action; ",
			wrong: "is requires_action here, and refunded at Stripe"},
		{name: "RefundOfAPaymentThatWaitsAndIsOfAnotherAmount", payment: waiting, event: refunds,
			stripe: []response{shows(paid, amount(900), refunded(400)), back(400)}, want: "open, requires_action; ", due: true},
		{name: "RefundOfAFailedPayment", payment: failed, event: refunds,
			stripe: []response{shows(paid, refunded(400)), back(400)},
			want:   "partially_refunded, failed closed succeeded; succeeded 400"},
		{name: "RefundOfAFailedPaymentThatIsUnpaid", payment: failed, event: refunds,
			stripe: []response{shows(needsCard), listing()}, want: "open, failed; "},
		{name: "RefundOfAFailedPaymentWhoseIntentWasCanceled", payment: failed, event: refunds,
			stripe: []response{shows(ended), listing()}, want: "open, failed closed; "},
		{name: "RefundOfNoPayment", event: refunds, stripe: []response{shows(paid, refunded(400)), back(400)},
			want: "open, ; ", wrong: "belongs to no payment yet"},
		{name: "RefundOfAnotherInstallation", names: theirs, event: refunds,
			stripe: []response{shows(paid, names(theirs, "7")), back(400)}, want: "open, ; "},

		{name: "IntentOfAnOperation", names: "operation", event: succeeded, want: "open, ; "},
		{name: "IntentOfAPaymentThatNamesAnOperation", payment: waiting, names: "operation", event: succeeded,
			want: "open, requires_action; ", due: true},
		{name: "RefundOfAnOperation", names: "operation", event: refunds,
			stripe: []response{shows(paid, refunded(400), operation), back(400)}, want: "open, ; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, c.payment)
			key, order := "pays-"+c.name, p.api.Order()
			p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
			if c.payment != nil {
				p.api.Pay(key, order, visa)
				p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour'
					WHERE key = $1 AND finished_at IS NULL`, key)
			}
			p.requirePlayed()
			for i := range c.stripe {
				if c.stripe[i].intent.TenantID == ours {
					c.stripe[i].intent.TenantID = p.w.Tenant.ID
				}
				if c.stripe[i].intent.Charged.TenantID == ours {
					c.stripe[i].intent.Charged = p.script.order
				}
			}
			p.responds(c.stripe...)

			metadata := map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order}
			object := map[string]any{"id": p.script.intent, "object": "payment_intent", "metadata": metadata}
			switch c.names {
			case theirs:
				metadata["tenant_id"], metadata["order_id"] = theirs, "7"
			case "7":
				metadata["order_id"] = "7"
			case "-":
				object["metadata"] = nil
			case "operation":
				metadata["payonce_operation"] = "create_tip"
			case "no intent":
				object = map[string]any{"id": "cus_1", "object": "customer"}
			}
			settled, err := p.settled(c.event, object)
			require.NoError(t, err)
			require.Equal(t, c.settled, settled)
			err = p.webhook(c.event, object)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
			p.requirePlayed()
			require.Equal(t, c.want, p.w.Text(`SELECT o.status || ', ' || coalesce((
					SELECT string_agg(p.status || CASE WHEN p.intent_closed THEN ' closed' ELSE '' END, ' ' ORDER BY p.status::text)
					FROM payments p WHERE p.order_id = o.id), '')
					|| '; ' || coalesce((SELECT string_agg(r.status || ' ' || r.amount_minor, ', ') FROM refunds r
						WHERE r.order_id = o.id), '')
				FROM orders o WHERE o.id = $1`, order))
			require.Equal(t, c.due, p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND next_attempt_at <= clock_timestamp()`, key) == 1, "whether its key is due")
		})
	}
}

// webhook prepares and applies an event, as the inbox does.
func (p *played) webhook(event string, object map[string]any) error {
	return p.apply(eventOf(p.T, event, object))
}

// settled reports whether the inbox would neither prepare nor apply the event. Its neighbours change nothing.
func (p *played) settled(event string, object map[string]any) (bool, error) {
	e := eventOf(p.T, event, object)
	ids, err := p.api.Payments.WebhookHandler().Settled(p.Context(), []inbox.Event{
		{ID: "no JSON", Type: event, Payload: []byte("{")}, eventOf(p.T, event, map[string]any{"object": "payment_intent"}),
		e, eventOf(p.T, event, map[string]any{"id": "pi_none", "object": "payment_intent",
			"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": "none"}}),
	})
	return slices.Equal(ids, []string{e.ID}), err
}

func eventOf(t *testing.T, event string, object map[string]any) inbox.Event {
	t.Helper()
	id := "evt_" + uuid.NewString()
	payload, err := json.Marshal(map[string]any{"id": id, "type": event, "data": map[string]any{"object": object}})
	require.NoError(t, err)
	return inbox.Event{ID: id, Type: event, Payload: payload}
}

func (p *played) apply(e inbox.Event) error {
	handler := p.api.Payments.WebhookHandler()
	prepared, err := handler.Prepare(p.Context(), e)
	if err != nil {
		return err
	}
	return p.api.Pool.InTx(p.Context(), func(q *db.Queries) error { return handler.Apply(p.Context(), q, e, prepared) })
}

// TestWebhookOfAnotherProgram is not looked for among all payments: an account may have many of them.
func TestWebhookOfAnotherProgram(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	p.responds(shows(stripe.IntentSucceeded, names("another-tenant", "7")))
	seen(proxy)
	require.NoError(t, p.webhook("payment_intent.succeeded", map[string]any{
		"id": p.script.intent, "object": "payment_intent", "metadata": map[string]string{},
	}))
	p.requirePlayed()
	require.NotContains(t, seen(proxy), "PaymentOfIntent")
}

// A webhook that could be stored and cannot be read will never be applied.
func TestWebhookThatCannotBeReadIsPoison(t *testing.T) {
	t.Parallel()
	p := play(t).row(t, nil)
	require.ErrorIs(t, p.apply(inbox.Event{Type: "payment_intent.succeeded", Payload: []byte("no JSON")}), inbox.ErrPoison)
}
