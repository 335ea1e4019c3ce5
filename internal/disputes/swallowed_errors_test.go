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

// disputed is a payment whose charge is disputed at Stripe; the attempt's value is the dispute's id.
func disputed(a *world.Attempt) {
	a.Order = a.API.Order()
	made := a.API.Pay(a.Key, a.Order, "pm_card_visa")
	require.Equal(a, http.StatusCreated, made.Status, made)
	a.Payment = made.ID()
	id, err := a.Sim.OpenDispute(a.Text("SELECT charge_id FROM payments WHERE id = $1", a.Payment), "fraudulent", false)
	require.NoError(a, err)
	a.Value = id
}

// recordedDispute is disputed, and the dispute is recorded.
func recordedDispute(a *world.Attempt) {
	disputed(a)
	require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
}

// becomes checks that a dispute is recorded once, with what it withdrew and its events.
func becomes(status, events string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		row := a.Text(`SELECT concat_ws(' ', status, (SELECT count(*) FROM dispute_movements m WHERE m.dispute_id = d.id),
				(SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = d.id))
			FROM disputes d WHERE stripe_dispute_id = $1`, a.Value)
		require.Equal(a, status+" "+events, row)
		require.Equal(a, a.Text(`SELECT amount_disputed_minor FROM payments WHERE id = $1`, a.Payment),
			a.Text(`SELECT amount_disputed_minor FROM orders WHERE id = $1`, a.Order))
	}
}

// readRound has one window of Stripe's list read, and the disputes that are due.
func readRound(a *world.Attempt) {
	a.Exec(`INSERT INTO reconciliation_windows (name, next_at) VALUES ('disputes month', 'infinity')
		ON CONFLICT (name) DO UPDATE SET next_at = 'infinity'`)
	a.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity', leased_until = '-infinity'
		WHERE name = 'disputes recent'`)
	a.Exec(`UPDATE disputes SET next_read_at = CASE WHEN stripe_dispute_id = $1 THEN now() - interval '1 day'
		ELSE 'infinity' END WHERE watched`, a.Value)
	_, err := a.API.Disputes.RunOnce(context.Background())
	a.Failed(err)
}

// An error while a dispute is found, read or recorded is reported, and the next round records it.
func TestRecordingOfDisputesSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Found", Prepare: disputed, Run: readRound, Check: becomes("needs_response", "1 dispute.created")},
		{Name: "Won", Prepare: func(a *world.Attempt) {
			recordedDispute(a)
			_, err := a.Stripe.Disputes.Update(a.Value.(string), &stripego.DisputeParams{
				Evidence: &stripego.DisputeEvidenceParams{UncategorizedText: stripego.String("winning_evidence")},
			})
			require.NoError(a, err)
			a.Sim.Advance(time.Minute)
		}, Run: readRound, Check: becomes("won", "2 dispute.created dispute.won")},
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
		}, Run: readRound, Check: func(a *world.Attempt) {
			a.Payment = a.Text("SELECT payment_id FROM orders WHERE id = $1", a.Order)
			becomes("needs_response", "1 dispute.created")(a)
		}},
		{Name: "FromItsWebhook", Webhooks: true, Ignore: []string{"InboxStats", "InboxDue", "InboxLease"}, Prepare: func(a *world.Attempt) {
			disputed(a)
			for _, h := range a.Mailbox.Take() {
				if h.Object == a.Value && h.Type == "charge.dispute.created" {
					require.Equal(a, http.StatusOK, a.API.Receive(h).Status)
				}
			}
		}, Run: func(a *world.Attempt) { a.API.Process() }, Check: becomes("needs_response", "1 dispute.created")},
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
		{Name: "Refund", Prepare: recordedDispute, Run: refund, Check: becomes("needs_response", "1 dispute.created")},
		{Name: "RefundThatStripeRefuses", Prepare: disputed, Run: refund, Check: func(a *world.Attempt) {
			readRound(a) // The refund is refused whether its reason could be recorded or not.
			becomes("needs_response", "1 dispute.created")(a)
		}},
		{Name: "Get", Prepare: recordedDispute, Run: get(func(a *world.Attempt) string { return "/v1/disputes/" + id(a) }),
			Check: nothing},
		{Name: "List", Prepare: recordedDispute, Run: get(func(a *world.Attempt) string {
			return "/v1/disputes?starting_after=" + id(a)
		}), Check: nothing},
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
		{Name: "Missing", Prepare: disputed, Run: audit(-time.Minute), Check: func(a *world.Attempt) {
			require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
			done(a)
		}},
		{Name: "Open", Prepare: recordedDispute, Run: audit(time.Hour), Check: func(*world.Attempt) {}},
		{Name: "Ended", Prepare: func(a *world.Attempt) {
			disputed(a)
			_, err := a.Stripe.Disputes.Close(a.Value.(string), nil)
			require.NoError(a, err)
			require.NoError(a, a.API.Disputes.Read(context.Background(), a.Value.(string)))
		}, Run: audit(time.Hour), Check: done},
	})
}
