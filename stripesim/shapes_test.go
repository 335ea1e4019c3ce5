package stripesim

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// shapesDir names the folder into which these tests record every body that their
// clients see. The module proof runs them so, and validates each body against
// Stripe's own OpenAPI document, which this module does not depend on.
const shapesDir = "STRIPESIM_SHAPES"

// shape is one recorded body, a line of a file.
type shape struct {
	Test    string          `json:"test"`
	Request string          `json:"request,omitempty"` // GET /v1/charges/ch_…; a webhook has none
	Status  int             `json:"status,omitempty"`
	Lenient bool            `json:"lenient"` // from the real Stripe, which may have newer fields
	Body    json.RawMessage `json:"body"`
}

var shapesFile = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(filepath.Join(os.Getenv(shapesDir), "shapes.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
})

// checkShape requires JSON, and records it if asked to.
func checkShape(t *testing.T, s shape) {
	t.Helper()
	require.True(t, json.Valid(s.Body), "%s", s.Body)
	if os.Getenv(shapesDir) == "" {
		return
	}
	file, err := shapesFile()
	require.NoError(t, err)
	s.Test = t.Name()
	line, err := json.Marshal(s)
	require.NoError(t, err)
	_, err = file.Write(append(line, '\n')) // one write: lines of parallel tests stay whole
	require.NoError(t, err)
}

// TestEveryObject makes an object of every kind and reads it in every way, so that
// each one's shape is recorded.
func TestEveryObject(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pi := b.paid("o1")
	_, err := b.confirm(b.create("o2").ID, "k2", "pm_card_visa_chargeDeclined")
	refused(t, err, 402, stripe.ErrorCodeCardDeclined)
	_, err = b.confirm(b.create("o3").ID, "k3", "pm_card_threeDSecure2Required")
	require.NoError(t, err)
	_, err = b.api.PaymentIntents.New(&stripe.PaymentIntentParams{
		Amount: stripe.Int64(2000), Currency: stripe.String("eur"), Description: stripe.String("d"),
		ReceiptEmail: stripe.String("a@example.com"),
		Shipping: &stripe.ShippingDetailsParams{Name: stripe.String("n"),
			Address: &stripe.AddressParams{Line1: stripe.String("l")}},
	})
	require.NoError(t, err)
	p := &stripe.PaymentIntentParams{}
	p.AddExpand("latest_charge.balance_transaction")
	p.AddExpand("payment_method")
	got, err := b.api.PaymentIntents.Get(pi.ID, p)
	require.NoError(t, err)
	require.NotNil(t, got.LatestCharge.BalanceTransaction)
	require.Equal(t, int64(59), got.LatestCharge.BalanceTransaction.Fee)
	require.Equal(t, "4242", got.PaymentMethod.Card.Last4)

	re, err := b.api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID), Amount: stripe.Int64(300)})
	require.NoError(t, err)
	_, err = b.api.Refunds.Update(re.ID, &stripe.RefundParams{Metadata: map[string]string{"note": "x"}})
	require.NoError(t, err)
	rp := &stripe.RefundParams{}
	rp.AddExpand("charge.refunds")
	rp.AddExpand("balance_transaction.source")
	_, err = b.api.Refunds.Get(re.ID, rp)
	require.NoError(t, err)

	disputed := b.paid("o4", "pm_card_createDispute")
	b.paid("o5", "pm_card_createDisputeInquiry")
	for i := b.api.Disputes.List(&stripe.DisputeListParams{PaymentIntent: stripe.String(disputed.ID)}); i.Next(); {
		_, err := b.api.Disputes.Update(i.Dispute().ID,
			&stripe.DisputeParams{Evidence: &stripe.DisputeEvidenceParams{UncategorizedText: stripe.String("winning_evidence")}})
		require.NoError(t, err)
	}
	b.sim.Advance(decisionDelay)
	seen := map[string]bool{}
	for i := b.api.Events.List(&stripe.EventListParams{}); i.Next(); {
		seen[string(i.Event().Type)] = true
	}
	require.Subset(t, slices.Collect(maps.Keys(seen)), []string{
		"payment_intent.created", "payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent." +
			"requires_action",
		"charge.succeeded", "charge.failed", "charge.refunded", "refund.created", "charge.dispute.created",
		"charge.dispute.funds_withdrawn", "charge.dispute.updated", "charge.dispute.funds_reinstated",
		"charge.dispute.closed",
	})
	for i := b.api.BalanceTransactions.List(&stripe.BalanceTransactionListParams{}); i.Next(); {
		require.NotEmpty(t, i.BalanceTransaction().ID)
	}
	_, err = b.api.Charges.Update(pi.LatestCharge.ID, &stripe.ChargeParams{Metadata: map[string]string{"note": "x"}})
	require.NoError(t, err)
	for i := b.api.Charges.List(&stripe.ChargeListParams{}); i.Next(); {
		require.NotEmpty(t, i.Charge().ID)
	}
	we, err := b.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{
		URL: stripe.String("http://127.0.0.1:1/"), EnabledEvents: stripe.StringSlice([]string{"account.updated"}),
		APIVersion: stripe.String(apiVersion),
	})
	require.NoError(t, err)
	require.NotEmpty(t, we.Secret)
	we, err = b.api.WebhookEndpoints.Get(we.ID, nil)
	require.NoError(t, err)
	require.Empty(t, we.Secret)
	_, err = b.api.WebhookEndpoints.Del(we.ID, nil)
	require.NoError(t, err)
	b.sim.SetSearchLag(0)
	succeeded := stripe.SearchParams{Query: "status:'succeeded'"}
	found := b.api.PaymentIntents.Search(&stripe.PaymentIntentSearchParams{SearchParams: succeeded})
	require.True(t, found.Next())
	m, err := b.api.PaymentMethods.New(&stripe.PaymentMethodParams{Type: stripe.String("card"),
		Card: &stripe.PaymentMethodCardParams{Token: stripe.String("tok_visa")}})
	require.NoError(t, err)
	_, err = b.api.PaymentMethods.Get(m.ID, nil)
	require.NoError(t, err)
}
