package stripesim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-mock/embedded"
)

// spec is Stripe's OpenAPI document of 2023-10-16, as stripe-mock v0.183.0
// carries it. It is a witness for tests only: nothing in production knows it.
var spec = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(embedded.OpenAPISpec)
	if err != nil {
		panic(err)
	}
	return doc
})

func schema(name string) *openapi3.Schema {
	ref := spec().Components.Schemas[name]
	if ref == nil {
		return nil
	}
	return ref.Value
}

// checkShape validates a body: required fields, types, enums, nulls, and that we
// invented no field. It goes down into whatever is an object of Stripe's.
func checkShape(t *testing.T, body []byte, lenient bool) {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(body, &v), "%s", body)
	if o, ok := v.(map[string]any); ok && o["error"] != nil {
		validate(t, "error", o, lenient)
		return
	}
	walk(t, v, lenient)
}

func walk(t *testing.T, v any, lenient bool) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(t, item, lenient)
		}
	case map[string]any:
		name, _ := v["object"].(string)
		if v["deleted"] == true {
			name = "deleted_" + name
		}
		if schema(name) != nil {
			validate(t, name, v, lenient)
		}
		for _, child := range v {
			walk(t, child, lenient)
		}
	}
}

func validate(t *testing.T, name string, o map[string]any, lenient bool) {
	t.Helper()
	s := schema(name)
	require.NoError(t, s.VisitJSON(o), "%s is not a %s", render(o), name)
	if !lenient {
		require.Empty(t, invented(s, o, name), "fields that 2023-10-16 does not have")
	}
}

// invented lists the fields of o that its schema does not know.
func invented(s *openapi3.Schema, o map[string]any, path string) []string {
	var out []string
	if len(s.Properties) == 0 { // a free map, such as metadata
		return nil
	}
	for k, v := range o {
		p := s.Properties[k]
		if p == nil {
			out = append(out, path+"."+k)
			continue
		}
		child, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if _, isObject := child["object"]; isObject {
			continue // walk comes to it on its own
		}
		if next := objectSchema(p.Value); next != nil {
			out = append(out, invented(next, child, path+"."+k)...)
		}
	}
	return out
}

func objectSchema(s *openapi3.Schema) *openapi3.Schema {
	if len(s.Properties) > 0 {
		return s
	}
	for _, alt := range s.AnyOf {
		if len(alt.Value.Properties) > 0 {
			return alt.Value
		}
	}
	return nil
}

// TestShapes/NoticesWhatIsWrong makes sure the witness is awake.
func TestShapes(t *testing.T) {
	t.Parallel()
	t.Run("NoticesWhatIsWrong", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.paid("o1")
		var good map[string]any
		require.NoError(t, json.Unmarshal(b.shapes.body, &good))
		require.NoError(t, schema("payment_intent").VisitJSON(good))
		for field, wrong := range map[string]any{"amount": "1000", "status": "paid", "created": nil, "latest_charge": 7.0, "livemode": "no"} {
			bad := maps.Clone(good)
			bad[field] = wrong
			require.Error(t, schema("payment_intent").VisitJSON(bad), field)
		}
		good["flux_capacitor"] = 1.0
		require.Equal(t, []string{"pi.flux_capacitor"}, invented(schema("payment_intent"), good, "pi"))
	})

	// The recorder validates what each call sees: the calls are the test.
	t.Run("EveryObjectIsStripes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		_, err := b.confirm(b.create("o2").ID, "k2", "pm_card_visa_chargeDeclined")
		refused(t, err, 402, stripe.ErrorCodeCardDeclined)
		_, err = b.confirm(b.create("o3").ID, "k3", "pm_card_threeDSecure2Required")
		require.NoError(t, err)
		_, err = b.api.PaymentIntents.New(&stripe.PaymentIntentParams{
			Amount: stripe.Int64(2000), Currency: stripe.String("eur"), Description: stripe.String("d"), ReceiptEmail: stripe.String("a@example.com"),
			Shipping: &stripe.ShippingDetailsParams{Name: stripe.String("n"), Address: &stripe.AddressParams{Line1: stripe.String("l")}},
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
		rp := &stripe.RefundParams{}
		rp.AddExpand("charge.refunds")
		rp.AddExpand("balance_transaction.source")
		_, err = b.api.Refunds.Get(re.ID, rp)
		require.NoError(t, err)

		disputed := b.paid("o4", "pm_card_createDispute")
		b.paid("o5", "pm_card_createDisputeInquiry")
		for i := b.api.Disputes.List(&stripe.DisputeListParams{PaymentIntent: stripe.String(disputed.ID)}); i.Next(); {
			_, err := b.api.Disputes.Update(i.Dispute().ID, &stripe.DisputeParams{Evidence: &stripe.DisputeEvidenceParams{UncategorizedText: stripe.String("winning_evidence")}})
			require.NoError(t, err)
		}
		b.sim.Advance(decisionDelay)
		seen := map[string]bool{}
		for i := b.api.Events.List(&stripe.EventListParams{}); i.Next(); {
			seen[string(i.Event().Type)] = true
		}
		require.Subset(t, slices.Collect(maps.Keys(seen)), []string{
			"payment_intent.created", "payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.requires_action",
			"charge.succeeded", "charge.failed", "charge.refunded", "refund.created", "charge.dispute.created",
			"charge.dispute.funds_withdrawn", "charge.dispute.updated", "charge.dispute.funds_reinstated", "charge.dispute.closed",
		})
		for i := b.api.BalanceTransactions.List(&stripe.BalanceTransactionListParams{}); i.Next(); {
			require.NotEmpty(t, i.BalanceTransaction().ID)
		}
		for i := b.api.Charges.List(&stripe.ChargeListParams{}); i.Next(); {
			require.NotEmpty(t, i.Charge().ID)
		}
		we, err := b.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{
			URL: stripe.String("http://127.0.0.1:1/"), EnabledEvents: stripe.StringSlice([]string{"nothing.at_all"}), APIVersion: stripe.String(apiVersion),
		})
		require.NoError(t, err)
		require.NotEmpty(t, we.Secret)
		we, err = b.api.WebhookEndpoints.Get(we.ID, nil)
		require.NoError(t, err)
		require.Empty(t, we.Secret)
		_, err = b.api.WebhookEndpoints.Del(we.ID, nil)
		require.NoError(t, err)
		b.sim.SetSearchLag(0)
		found := b.api.PaymentIntents.Search(&stripe.PaymentIntentSearchParams{SearchParams: stripe.SearchParams{Query: "status:'succeeded'"}})
		require.True(t, found.Next())
		m, err := b.api.PaymentMethods.New(&stripe.PaymentMethodParams{Type: stripe.String("card"), Card: &stripe.PaymentMethodCardParams{Token: stripe.String("tok_visa")}})
		require.NoError(t, err)
		_, err = b.api.PaymentMethods.Get(m.ID, nil)
		require.NoError(t, err)
	})
}

// TestParams compares our reduced tables with the request schemas: same names,
// neither fewer (a real parameter would be refused as unknown) nor more.
func TestParams(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			var item *openapi3.PathItem
			for path, candidate := range spec().Paths.Map() {
				if withoutNames(path) == withoutNames(op.pattern) {
					item = candidate
				}
			}
			require.NotNil(t, item, "Stripe has no %s", op.pattern)
			theirs := item.GetOperation(op.method)
			require.NotNil(t, theirs, "Stripe has no %s %s", op.method, op.pattern)
			var want []string
			for _, p := range theirs.Parameters {
				if p.Value.In == "query" {
					want = append(want, p.Value.Name)
				}
			}
			if theirs.RequestBody != nil {
				for _, media := range theirs.RequestBody.Value.Content {
					want = slices.AppendSeq(want, maps.Keys(media.Schema.Value.Properties))
				}
			}
			slices.Sort(want)
			got := sortedKeys(op.params)
			require.Empty(t, without(want, got), "Stripe takes these")
			require.Empty(t, without(got, want), "Stripe does not know these")
		})
	}
}

func withoutNames(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
