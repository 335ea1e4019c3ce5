package tips_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/docs/skeleton/tips"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

const (
	visa      = "pm_card_visa"
	declining = "pm_card_visa_chargeDeclinedInsufficientFunds"
	careful   = "pm_card_authenticationRequired" // wants 3-D Secure
)

func TestMain(m *testing.M) { world.Main(m) }

// shop is a world with tips, and an order that is paid.
type shop struct {
	*world.World
	api   *world.Local
	order string
}

func open(t *testing.T, o world.LocalOptions) shop {
	t.Helper()
	tables := ""
	if script, err := os.ReadFile("10001_tips.sql"); err == nil { // Once it is in db/migrations, every test has it.
		up, _, _ := strings.Cut(string(script), "-- +goose Down")
		tables = up + "GRANT SELECT, INSERT, UPDATE ON tips TO payonce_service" // once it is in db/rights.sql, too
	}
	w := world.NewWith(t, tables)
	s := shop{World: w, api: local(w, o)}
	s.order = s.api.Order()
	require.Equal(t, http.StatusCreated, s.api.Pay("payment", s.order, visa).Status)
	return s
}

// local is a server with tips. Its times are long, so that nothing expires by itself.
func local(w *world.World, o world.LocalOptions) *world.Local {
	o.StripeTimeout, o.Lease = 10*time.Second, time.Minute
	if o.Own == nil {
		o.Own = operations.List{tips.Operation()}
	}
	return w.Local(o)
}

func (s shop) tip(api *world.Local, key, card string) world.Answer {
	return api.Post("/v1/orders/"+s.order+"/tips", key, fmt.Sprintf(`{"amount":1000,"payment_method":%q}`, card))
}

// finish repeats the request until its answer is final.
func (s shop) finish(api *world.Local, key, card string) (a world.Answer) {
	s.T.Helper()
	for range 8 {
		s.ExpireLeases()
		a = s.tip(api, key, card)
		if a.Err == nil && a.Status != http.StatusAccepted && a.Status < 500 && !a.Problem().Retryable {
			return a
		}
	}
	require.FailNow(s.T, "the key is stuck", "%v", a)
	return a
}

// atStripe counts the effects of tips.
func (s shop) atStripe(kind string) (n int) {
	for _, e := range s.Sim.Effects() {
		if e.Kind == kind && e.Metadata["order_id"] == s.order && e.Metadata["payonce_operation"] == tips.Name {
			n++
		}
	}
	return n
}

// broken lists the promises that do not hold, once all keys are finished.
func (s shop) broken(api *world.Local) (broken []string) {
	s.T.Helper()
	say := func(holds bool, format string, args ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	ctx := context.Background()
	rows := s.Count(`SELECT count(*) FROM tips`)
	charged := s.Count(`SELECT count(*) FROM tips WHERE status = 'succeeded'`)
	say(s.atStripe(stripesim.EffectIntentCreated) <= rows, "a tip has one intent")
	say(s.Sim.ChargeCount(s.order) == 1+charged, "a tip is charged once, and the order once")
	keys := s.Count(`SELECT count(DISTINCT (tenant_id, idempotency_key)) FROM tips`)
	say(keys == rows, "a key has one tip")
	// part: history {
	if key := s.Text(`SELECT idempotency_key FROM tips WHERE status = 'succeeded' LIMIT 1`); key != "" {
		verdict := s.verdict(api, key)
		told := strings.HasPrefix(verdict, "charged once, pi_") || strings.HasPrefix(verdict, "unknown to this service")
		say(told, "the history of a key says what happened, and it says %q", verdict)
	}
	// part: history }
	s.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity'`)
	for n := 1; n > 0; {
		var err error
		n, err = api.NewReconciler(nil).RunOnce(ctx)
		require.NoError(s.T, err)
	}
	open := s.Text(`SELECT string_agg(kind || ': ' || detail, '; ') FROM discrepancies WHERE resolved_at IS NULL`)
	say(open == "", "the reconciler agrees, and it says %q", open)
	compared, err := reconcile.Compare(ctx, api.Pool, api.Gateway, api.Payments, time.Now().Add(-time.Hour))
	require.NoError(s.T, err)
	say(len(compared.Discrepancies) == 0, "the audit is clean, and it says %v", compared.Discrepancies)
	checks, err := s.DB.Invariants(ctx)
	require.NoError(s.T, err)
	for _, check := range checks {
		say(len(check.Rows) == 0, "%s %s: %v", check.ID, check.Name, check.Rows)
	}
	return broken
}

// part: history {
func (s shop) verdict(api *world.Local, key string) string {
	s.T.Helper()
	h, err := api.History.Get(context.Background(), s.Tenant.ID, key)
	require.NoError(s.T, err)
	return h.Verdict
}

// part: history }

// TestRestoredTipIsNotCalledFailed: the database was restored from a backup that knew only
// that the intent was about to be made, and Stripe has forgotten the key.
func TestRestoredTipIsNotCalledFailed(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})
	require.Equal(t, http.StatusCreated, s.tip(s.api, "restored", visa).Status)
	s.Exec(`DO $$ BEGIN
		SET LOCAL session_replication_role = replica; -- a backup asks no trigger
		UPDATE tips SET status = 'pending', intent_id = NULL;
		DELETE FROM stripe_call_rows WHERE operation = 'confirm' AND resource_id LIKE 'tip_%';
		UPDATE stripe_call_rows SET outcome = 'sent', object_id = NULL, http_status = NULL,
			first_sent_at = first_sent_at - interval '13 h', last_sent_at = last_sent_at - interval '13 h'
		WHERE resource_id LIKE 'tip_%';
		UPDATE idempotency_keys SET recovery_point = 'tip_recorded', finished_at = NULL, answer_version = NULL,
			answer_status = NULL, answer_headers = NULL, answer_body = NULL, leased_until = '-infinity',
			next_attempt_at = '-infinity', created_at = created_at - interval '13 h'
		WHERE key = 'restored';
	END $$`)
	s.Sim.Advance(13 * time.Hour)
	require.Equal(t, http.StatusAccepted, s.tip(s.api, "restored", visa).Status)
	require.Equal(t, 2, s.Sim.ChargeCount(s.order), "the order and the tip are paid once each")
	require.Contains(t, s.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'restored'`), "too old")
}

// TestChargeOfAnotherTipIsNotClaimed: the reconciler matches a charge with its own row, although
// an older tip of the order waits for an intent.
func TestChargeOfAnotherTipIsNotClaimed(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})
	s.Sim.Inject(stripesim.Fault{Op: "intent.create", OrderID: s.order, Kind: stripesim.Reset, Times: 4})
	require.Equal(t, http.StatusAccepted, s.tip(s.api, "parked", visa).Status)
	s.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp(), leased_until = '-infinity' WHERE key = 'parked'`)
	s.Sim.ClearFaults()
	require.Equal(t, http.StatusCreated, s.tip(s.api, "charged", visa).Status)
	s.broken(s.api) // which runs the reconciler
	require.Empty(t, s.Text(`SELECT coalesce(string_agg(kind || ': ' || detail, '; '), '')
		FROM discrepancies WHERE resolved_at IS NULL`))
}

func TestTip(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})

	answers := world.Together(20, func(int) world.Answer { return s.tip(s.api, "many", visa) })
	require.Empty(t, world.Disagreements(answers))
	a := s.finish(s.api, "many", visa)
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Equal(t, "succeeded", a.Get("status"))
	intent := s.Text(`SELECT intent_id FROM tips`)
	require.NotEmpty(t, intent)
	// part: history {
	require.Equal(t, "charged once, "+intent, s.verdict(s.api, "many"))
	history := s.api.Get("/v1/idempotency-keys/many")
	require.Equal(t, "/v1/tips/"+a.ID(), history.Get("resource", "href"))
	// part: history }

	require.Equal(t, "succeeded", s.api.Get("/v1/tips/"+a.ID()).Get("status"))
	require.Equal(t, http.StatusNotFound, s.api.Get("/v1/tips/tip_00000000000000000000000000").Status)

	require.Equal(t, http.StatusPaymentRequired, s.tip(s.api, "declined", declining).Status)
	require.Equal(t, "failed (card_declined), no money taken", s.verdict(s.api, "declined")) // part: history
	require.Equal(t, "authentication_required", s.finish(s.api, "3ds", careful).Get("failure_code"))

	require.Equal(t, "invalid-request", s.tip(s.api, "k", "4242424242424242").Code())
	const body = `{"amount":1,"payment_method":"pm_x"}`
	require.Equal(t, "not-found", s.api.Post("/v1/orders/ord_00000000000000000000000000/tips", "k", body).Code())
	canceled := s.api.Order()
	require.Equal(t, http.StatusOK, s.api.Post("/v1/orders/"+canceled+"/cancel", "cancel", "{}").Status)
	require.Equal(t, "order-not-payable", s.api.Post("/v1/orders/"+canceled+"/tips", "late", body).Code())
	require.Equal(t, "refused for good; nothing was done under this key", s.verdict(s.api, "late")) // part: history

	// part: operator {
	order, err := s.api.Payments.OrderOfCharge(t.Context(), s.Tenant.ID, a.ID())
	require.NoError(t, err)
	require.Equal(t, s.order, order, "the operator's page shows a tip with its order")
	view, err := s.api.Payments.Repairs().CompareIntent(t.Context(), intent)
	require.NoError(t, err)
	require.Zero(t, view.Left, "the operator's page offers no refund of a charge that a tip has made")
	require.Equal(t, "Stripe and our rows agree", view.Detail)
	// part: operator }
	require.Empty(t, s.broken(s.api))
}

// A webhook of a tip's intent expedites the tip's key: it is not left to its next try.
func TestWebhookExpeditesTip(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})
	mailbox := s.Mailbox()
	s.Sim.Inject(stripesim.Fault{Op: "intent.confirm", OrderID: s.order, Kind: stripesim.Drop})
	require.Equal(t, http.StatusAccepted, s.tip(s.api, "lost", visa).Status)
	require.Contains(t, s.verdict(s.api, "lost"), "unknown whether the money has moved") // part: history
	s.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour'
		WHERE finished_at IS NULL`)
	for _, h := range mailbox.Take() {
		require.Equal(t, http.StatusOK, s.api.Receive(h).Status)
	}
	s.api.Process()
	n, err := s.api.Completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, http.StatusCreated, s.tip(s.api, "lost", visa).Status)
	require.Contains(t, s.verdict(s.api, "lost"), "charged once, pi_") // part: history
	require.Zero(t, s.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`), "no webhook is retried")
	require.Empty(t, s.broken(s.api))
}

// What another service, or another version, has made is unknown: it is neither refunded
// nor called unmatched, and no webhook of it is retried.
func TestUnregisteredTipIsUnknown(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})
	mailbox := s.Mailbox()
	require.Equal(t, http.StatusCreated, s.tip(s.api, "tip", visa).Status)
	intent := s.Text(`SELECT intent_id FROM tips`)

	other := local(s.World, world.LocalOptions{Name: "other", Own: operations.List{}})
	// part: history {
	require.Equal(t, "unknown to this service: the operation create_tip is not registered; it has called Stripe, "+
		"so money may have moved", s.verdict(other, "tip"))
	history := other.Get("/v1/idempotency-keys/tip")
	require.Nil(t, history.Get("resource", "href"), "it does not show tips")
	// part: history }
	require.Empty(t, s.broken(other))
	// part: operator {
	view, err := other.Payments.Repairs().CompareIntent(t.Context(), intent)
	require.NoError(t, err)
	require.True(t, view.Unregistered)
	require.Zero(t, view.Left)
	require.False(t, view.Adoptable)
	require.Contains(t, view.WhyNot, "made by the operation create_tip, which this service does not know")
	// part: operator }

	refund := other.Gateway.CreateRefund(t.Context(), stripe.Call{Key: "by-hand"}, stripe.NewRefund{
		IntentID: intent, AmountMinor: 1000, TenantID: s.Tenant.ID, OrderID: s.order, RefundID: ids.New(ids.Refund),
	})
	require.Equal(t, stripe.Done, refund.Effect, refund.Why())
	for _, h := range mailbox.Take() {
		require.Equal(t, http.StatusOK, other.Receive(h).Status)
	}
	other.Process()
	require.Zero(t, s.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
	require.Empty(t, s.broken(other))
	require.Empty(t, s.broken(s.api), "a refund made at Stripe is no discrepancy either")
}

// The PaymentIntent of a tip names the order and may have its amount. A payment whose own
// intent was lost must not take it for its own.
func TestLostPaymentIsNotPaidByATip(t *testing.T) {
	t.Parallel()
	s := open(t, world.LocalOptions{})
	s.order = s.api.Order()
	require.Equal(t, http.StatusCreated, s.tip(s.api, "tip", visa).Status)
	intent := s.Text(`SELECT intent_id FROM tips`)
	s.Sim.Inject(stripesim.Fault{Op: "intent.create", OrderID: s.order, Kind: stripesim.Reset, Times: 4})
	require.Equal(t, http.StatusAccepted, s.api.Pay("lost", s.order, visa).Status)
	s.Exec(`ALTER TABLE stripe_call_rows DISABLE TRIGGER call_parameters_are_immutable`)
	s.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '37 hours',
			last_sent_at = last_sent_at - interval '37 hours'
		WHERE resource_id = $1`, s.order)
	for range 5 {
		s.api.Complete()
	}
	require.Empty(t, s.Text(`SELECT id FROM payments WHERE intent_id = $1`, intent))
	require.Equal(t, "paid", s.Text(`SELECT status FROM orders WHERE id = $1`, s.order))
	require.Equal(t, 2, s.Sim.ChargeCount(s.order), "the tip, and the order by an intent of its own")
}
