package disputes_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

// An error while a dispute is found, read or recorded is reported, and the next round records it.
func TestRecordingOfDisputesSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Found", Prepare: (*world.Attempt).Disputed, Run: (*world.Attempt).ReadDisputes, Check: world.HasDispute("needs_response", "1 dispute.created")},
		{Name: "Won", Prepare: func(a *world.Attempt) {
			a.RecordedDispute()
			_, err := a.Stripe.Disputes.Update(a.Value.(string), &stripego.DisputeParams{
				Evidence: &stripego.DisputeEvidenceParams{UncategorizedText: stripego.String("winning_evidence")},
			})
			require.NoError(a, err)
			a.Sim.Advance(time.Minute)
		}, Run: (*world.Attempt).ReadDisputes, Check: world.HasDispute("won", "2 dispute.created dispute.won")},
		{Name: "OfAPaymentThatWasNotSeen", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			require.Equal(a, "payment-declined", a.API.Pay(a.Key, a.Order, "pm_card_visa_chargeDeclined").Code())
			a.Intent = a.Text("SELECT intent_id FROM payments WHERE order_id = $1", a.Order)
			a.CallStripe(http.MethodPost, "/v1/payment_intents/"+a.Intent+"/confirm",
				url.Values{"payment_method": {"pm_card_visa"}})
			intent, err := a.API.Gateway.GetIntent(context.Background(), stripe.NoTenant, a.Intent)
			require.NoError(a, err)
			id, err := a.Sim.OpenDispute(intent.ChargeID, "fraudulent", false)
			require.NoError(a, err)
			a.Value = id
		}, Run: (*world.Attempt).ReadDisputes, Check: func(a *world.Attempt) {
			a.Payment = a.Text("SELECT payment_id FROM orders WHERE id = $1", a.Order)
			world.HasDispute("needs_response", "1 dispute.created")(a)
		}},
		{Name: "FromItsWebhook", Webhooks: true, Ignore: []string{"InboxStats", "InboxDue", "InboxLease"}, Prepare: func(a *world.Attempt) {
			a.Disputed()
			for _, h := range a.Mailbox.Take() {
				if h.Object == a.Value && h.Type == "charge.dispute.created" {
					require.Equal(a, http.StatusOK, a.API.Receive(h).Status)
				}
			}
		}, Run: func(a *world.Attempt) { a.API.Process() }, Check: world.HasDispute("needs_response", "1 dispute.created")},
	})
}

// An error of what a request needs to know about disputes is its answer.
func TestRequestsAboutDisputesSwallowNoError(t *testing.T) {
	t.Parallel()
	refund := func(a *world.Attempt) {
		a.Answered(a.API.Post("/v1/payments/"+a.Payment+"/refunds", "refund-"+a.Key, `{}`))
	}
	get := func(path func(a *world.Attempt) string) func(a *world.Attempt) {
		return func(a *world.Attempt) { a.Answered(a.API.Get(path(a))) }
	}
	id := func(a *world.Attempt) string {
		return a.Text("SELECT id FROM disputes WHERE stripe_dispute_id = $1", a.Value)
	}
	nothing := func(*world.Attempt) {}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Refund", Prepare: (*world.Attempt).RecordedDispute, Run: refund, Check: world.HasDispute("needs_response", "1 dispute.created")},
		{Name: "RefundThatStripeRefuses", Prepare: (*world.Attempt).Disputed, Run: refund, Check: func(a *world.Attempt) {
			a.ReadDisputes() // The refund is refused whether its reason could be recorded or not.
			world.HasDispute("needs_response", "1 dispute.created")(a)
		}},
		{Name: "Get", Prepare: (*world.Attempt).RecordedDispute, Run: get(func(a *world.Attempt) string { return "/v1/disputes/" + id(a) }),
			Check: nothing},
		{Name: "List", Prepare: (*world.Attempt).RecordedDispute, Run: get(func(a *world.Attempt) string {
			return "/v1/disputes?starting_after=" + id(a)
		}), Check: nothing},
		{Name: "ListOfAStatusThatIsUnknown", Prepare: (*world.Attempt).RecordedDispute, Run: func(a *world.Attempt) {
			if list := a.API.Get("/v1/disputes?status=unheard_of"); list.Status != http.StatusBadRequest {
				a.Answered(list)
			}
		}, Check: nothing},
		{Name: "Measure", Prepare: nothing, Run: func(a *world.Attempt) {
			_, err := a.API.Disputes.Measure(context.Background())
			a.Failed(err)
		}, Check: nothing},
	})
}

// noted is a gateway that takes note of what Stripe did not respond to, and which the audit asks for a second time.
type noted struct {
	disputes.Gateway
	attempt *world.Attempt
}

func (g noted) GetDispute(ctx context.Context, id string) (stripe.Dispute, error) {
	d, err := g.Gateway.GetDispute(ctx, id)
	g.attempt.Failed(err)
	return d, err
}

func (g noted) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	i, err := g.Gateway.GetIntent(ctx, tenantID, id)
	g.attempt.Failed(err)
	return i, err
}

// The audit reports every error: without it a dispute that it could not read would seem to agree.
func TestAuditOfDisputesSwallowsNoError(t *testing.T) {
	t.Parallel()
	audit := func(since time.Duration) func(a *world.Attempt) {
		return func(a *world.Attempt) {
			s := disputes.New(a.API.Pool, noted{a.API.Gateway.(disputes.Gateway), a}, disputes.Options{})
			_, err := s.Compare(context.Background(), time.Now().Add(since))
			a.Failed(err)
		}
	}
	done := func(a *world.Attempt) { a.Exec("UPDATE disputes SET updated_at = '2001-01-01'") }
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Missing", Prepare: (*world.Attempt).Disputed, Run: audit(-time.Minute), Check: func(a *world.Attempt) {
			require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
			done(a)
		}},
		{Name: "Open", Prepare: (*world.Attempt).RecordedDispute, Run: audit(time.Hour), Check: func(*world.Attempt) {}},
		{Name: "Ended", Prepare: func(a *world.Attempt) {
			a.Disputed()
			_, err := a.Stripe.Disputes.Close(a.Value.(string), nil)
			require.NoError(a, err)
			require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
		}, Run: audit(time.Hour), Check: done},
	})
}
