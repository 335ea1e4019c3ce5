package disputes_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/disputes"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// bench is a paid order and everything that a test of its disputes needs.
type bench struct {
	*world.Books
	t              *testing.T
	api            *world.Local
	order, payment string
	charge         string
}

func paid(t *testing.T) bench {
	t.Helper()
	w := world.New(t)
	b := bench{Books: world.BooksOn(w), t: t}
	b.api = b.API
	b.order = b.api.Order()
	a := b.api.Pay("pays", b.order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, a.Status, a)
	b.payment = a.ID()
	b.charge = w.Text("SELECT charge_id FROM payments")
	return b
}

// dispute opens a dispute at Stripe and returns Stripe's id.
func (b bench) dispute(inquiry bool) string {
	b.t.Helper()
	id, err := b.Sim.OpenDispute(b.charge, "fraudulent", inquiry)
	require.NoError(b.t, err)
	return id
}

// evidence hands in one of the texts that decide a dispute in test mode, and waits for the bank.
func (b bench) evidence(dispute, text string) {
	b.t.Helper()
	_, err := b.Stripe.Disputes.Update(dispute, &stripego.DisputeParams{Evidence: &stripego.DisputeEvidenceParams{
		UncategorizedText: stripego.String(text),
	}})
	require.NoError(b.t, err)
	b.Sim.Advance(time.Minute)
}

// rounds runs the loop as if all its periods were over.
func (b bench) rounds() {
	b.t.Helper()
	b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	b.Exec("UPDATE disputes SET next_read_at = now() - interval '1 day'")
	for range 20 {
		n, err := b.api.Disputes.RunOnce(b.t.Context())
		require.NoError(b.t, err)
		if n == 0 {
			return
		}
	}
	b.t.Fatal("the loop always finds more to do")
}

// shown is the dispute as a tenant sees it: status, fee, what payment and order show as disputed, and its events.
func (b bench) shown(stripeID string) string {
	b.t.Helper()
	id := b.Text("SELECT id FROM disputes WHERE stripe_dispute_id = $1", stripeID)
	a := b.api.Get("/v1/disputes/" + id)
	require.Equal(b.t, http.StatusOK, a.Status, a)
	require.Equal(b.t, stripeID, a.Get("stripe", "dispute"))
	require.Equal(b.t, b.payment, a.Get("payment_id"))
	require.Equal(b.t, b.order, a.Get("order_id"))
	p, o := b.api.Get("/v1/payments/"+b.payment), b.api.Get("/v1/orders/"+b.order)
	require.Equal(b.t, p.Get("amount_disputed"), o.Get("amount_disputed"))
	return fmt.Sprintf("%v, fee %v, disputed %v: %s", a.Get("status"), a.Get("fee"), p.Get("amount_disputed"),
		b.events(id))
}

func (b bench) events(id string) string {
	return b.Text(`SELECT string_agg(replace(type, 'dispute.', ''), ' ' ORDER BY version) FROM outbox_events
		WHERE aggregate_id = $1`, id)
}

func (b bench) refund(key string) world.Answer {
	return b.api.Post("/v1/payments/"+b.payment+"/refunds", key, `{}`)
}

// sound is what holds however a dispute was found.
func (b bench) sound() {
	b.t.Helper()
	checks, err := b.api.Pool.Invariants(b.t.Context())
	require.NoError(b.t, err)
	for _, c := range checks {
		// Nothing publishes or delivers in these tests.
		if !slices.Contains([]string{"I6b", "I7c"}, c.ID) {
			require.Empty(b.t, c.Rows, c.ID+" "+c.Name)
		}
	}
}

func TestDisputeIsRecordedFromItsWebhook(t *testing.T) {
	t.Parallel()
	b := paid(t)
	mailbox := b.Mailbox()
	id := b.dispute(false)
	for range 2 { // Each event comes twice.
		for _, h := range mailbox.Take() {
			require.Equal(t, http.StatusOK, b.api.Receive(h).Status)
			require.Equal(t, http.StatusOK, b.api.Receive(h).Status)
		}
	}
	b.api.Process()
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
	require.Equal(t, 1, b.Count("SELECT count(*) FROM dispute_movements"))
	b.sound()

	b.evidence(id, "winning_evidence")
	late := mailbox.Take()
	slices.Reverse(late) // closed, reinstated, updated
	for _, h := range late {
		b.api.Receive(h)
		b.api.Process()
	}
	require.Equal(t, "won, fee 1500, disputed 0: created won", b.shown(id))
	require.Equal(t, 2, b.Count("SELECT count(*) FROM dispute_movements"))
	b.sound()
}

// Every path on which a dispute may come to its end, with all webhooks lost.
func TestDisputeIsFoundWithoutWebhooks(t *testing.T) {
	t.Parallel()
	t.Run("WonAndLostStepByStep", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		won, lost := b.dispute(false), b.dispute(false) // One charge can be disputed twice.
		b.rounds()
		require.Equal(t, "needs_response, fee 1500, disputed 2000: created", b.shown(won))
		b.evidence(won, "winning_evidence")
		b.rounds()
		require.Equal(t, "won, fee 1500, disputed 1000: created won", b.shown(won))
		_, err := b.Stripe.Disputes.Close(lost, nil)
		require.NoError(t, err)
		b.rounds()
		require.Equal(t, "lost, fee 1500, disputed 1000: created lost", b.shown(lost))
		b.rounds()
		require.Equal(t, "lost, fee 1500, disputed 1000: created lost", b.shown(lost), "and nothing more is announced")
		b.sound()
	})
	t.Run("FirstSeenWhenItHasEnded", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false)
		b.evidence(id, "losing_evidence")
		b.rounds()
		require.Equal(t, "lost, fee 1500, disputed 1000: created lost", b.shown(id))
		b.sound()
	})
	t.Run("AnInquiryMovesNoMoney", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(true)
		b.rounds()
		require.Equal(t, "warning_needs_response, fee 0, disputed 0: created", b.shown(id))
		b.evidence(id, "escalate_inquiry_evidence")
		b.rounds()
		require.Equal(t, "needs_response, fee 1500, disputed 1000: created updated", b.shown(id))
		b.sound()
	})
	t.Run("AnInquiryIsClosed", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(true)
		b.rounds()
		_, err := b.Stripe.Disputes.Close(id, nil)
		require.NoError(t, err)
		b.rounds()
		require.Equal(t, "warning_closed, fee 0, disputed 0: created updated", b.shown(id))
		require.Zero(t, b.Count("SELECT count(*) FROM disputes WHERE watched"))
		b.sound()
	})
	t.Run("PaidWithTheCardThatDisputes", func(t *testing.T) {
		t.Parallel()
		b := world.BooksOn(world.New(t))
		require.Equal(t, http.StatusCreated, b.API.Pay("k", b.API.Order(), "pm_card_createDispute").Status)
		_, err := b.API.Disputes.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.Count("SELECT count(*) FROM disputes"))
		require.Equal(t, 1000, b.Count("SELECT amount_disputed_minor FROM orders"))
	})
}

// slow is a gateway between whose answer and its record something happens.
type slow struct {
	disputes.Gateway
	meanwhile func()
}

func (s *slow) GetDispute(ctx context.Context, id string) (stripe.Dispute, error) {
	d, err := s.Gateway.GetDispute(ctx, id)
	if f := s.meanwhile; f != nil {
		s.meanwhile = nil
		f()
	}
	return d, err
}

// Two processes read one dispute. The one that read first is the last to record, and its
// reading is old: without the version that it remembers it would undo the end.
func TestOlderReadingOfDisputeIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := paid(t)
	gateway := &slow{Gateway: b.api.Gateway.(disputes.Gateway)}
	late := disputes.New(b.api.Pool, gateway, disputes.Options{})
	id := b.dispute(false)
	gateway.meanwhile = b.rounds
	require.NoError(t, late.Read(t.Context(), id), "created twice at once")
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
	gateway.meanwhile = func() {
		b.evidence(id, "winning_evidence")
		b.rounds()
	}
	require.NoError(t, late.Read(t.Context(), id))
	require.Equal(t, "won, fee 1500, disputed 0: created won", b.shown(id))
	b.sound()
}

// waiting is an operation that works on every intent, so that none can be adopted yet.
type waiting struct{}

func (waiting) AdoptDisputed(context.Context, stripe.Intent) (pending bool, err error) {
	return true, nil
}

// A dispute of a payment that this database has lost waits until the payment is adopted.
func TestDisputeOfPaymentNotYetAdoptedWaits(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	b.api.Disputes.AdoptWith(waiting{})
	b.Unguarded("UPDATE payments SET intent_id = 'pi_another'")
	mailbox := b.Mailbox()
	b.dispute(false)
	for _, h := range mailbox.Take() {
		b.api.Receive(h)
	}
	b.api.Process()
	b.rounds()
	require.Zero(t, b.Count("SELECT count(*) FROM disputes"))
	require.Positive(t, b.api.Metric("payonce_dispute_failures_total"))
	require.Zero(t, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL"),
		"the window begins there again")
	b.Unguarded("UPDATE payments SET intent_id = (SELECT object_id FROM inbox_events LIMIT 1)")
	b.rounds()
	require.Equal(t, 2, b.Count("SELECT count(*) FROM disputes"))
	b.api.Process()
	require.Zero(t, b.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"))
}

// What the account charged without us is nobody's here.
func TestDisputeOfAnotherChargeIsIgnored(t *testing.T) {
	t.Parallel()
	b := world.BooksOn(world.New(t))
	mailbox := b.Mailbox()
	_, err := b.Stripe.PaymentIntents.New(&stripego.PaymentIntentParams{
		Amount: stripego.Int64(700), Currency: stripego.String("usd"), Confirm: stripego.Bool(true),
		PaymentMethod:      stripego.String("pm_card_createDispute"),
		PaymentMethodTypes: stripego.StringSlice([]string{"card"}),
	})
	require.NoError(t, err)
	for _, h := range mailbox.Take() {
		b.API.Receive(h)
	}
	b.API.Process()
	_, err = b.API.Disputes.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, b.Count("SELECT count(*) FROM disputes"))
	require.Zero(t, b.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"))
	require.Zero(t, b.API.Metric("payonce_dispute_failures_total"))
}

// Stripe may add a status. It is stored, shown and read again.
func TestUnknownStatusOfDisputeIsStored(t *testing.T) {
	t.Parallel()
	b := paid(t)
	id := b.dispute(false)
	b.rounds()
	b.Exec("UPDATE disputes SET status = 'pondering', version = version + 1")
	require.Equal(t, 1, b.Count("SELECT count(*) FROM disputes WHERE watched"))
	_, err := b.api.Disputes.Measure(t.Context())
	require.NoError(t, err)
	require.Equal(t, "pondering", b.api.OnlySeries("payonce_disputes_open", 1))
	require.Len(t, b.api.Get("/v1/disputes?status=pondering").Get("data"), 1)
	require.Equal(t, "invalid-request", b.api.As(b.NewTenant()).Get("/v1/disputes?status=pondering").Code())
	b.Exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
		SELECT tenant_id, id, version, 'dispute.updated', '{}' FROM disputes`)
	b.rounds()
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created updated updated", b.shown(id))
}

// The audit finds what is not recorded, and what differs.
func TestAuditComparesDisputes(t *testing.T) {
	t.Parallel()
	b := paid(t)
	differences := func(since time.Duration) (details []string) {
		found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(-since))
		require.NoError(t, err)
		for _, v := range found {
			require.Contains(t, v.Subject, b.payment)
			details = append(details, v.Detail)
		}
		return details
	}
	id := b.dispute(false)
	require.Equal(t, []string{"needs_response at Stripe for 1000 usd, and missing here"}, differences(time.Hour))
	b.rounds()
	require.Empty(t, differences(time.Hour))
	b.evidence(id, "winning_evidence")
	for _, since := range []time.Duration{time.Hour, -time.Hour} { // open ones are compared whatever their age
		require.Equal(t, []string{"here needs_response, 1000 usd, movements map[usd:-2500]; " +
			"at Stripe won, 1000 usd, movements map[usd:-1500]"}, differences(since))
	}
	b.rounds()
	require.Empty(t, differences(time.Hour))

	b.Exec("UPDATE payments SET amount_disputed_minor = 7")
	checks, err := b.api.Pool.Invariants(t.Context())
	require.NoError(t, err)
	for _, c := range checks {
		if c.ID == "I24a" {
			require.Len(t, c.Rows, 1, "and what does not add up")
		}
	}
}

// TestAuditFindsTheOrderOfADisputeByItsCharge: the metadata of the intent was edited since, and names another order.
func TestAuditFindsTheOrderOfADisputeByItsCharge(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	_, err := b.Stripe.PaymentIntents.Update(b.Text("SELECT intent_id FROM payments"), &stripego.PaymentIntentParams{
		Metadata: map[string]string{"tenant_id": b.NewTenant().ID, "order_id": "ord_1"},
	})
	require.NoError(t, err)
	found, err := b.api.Disputes.Compare(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Subject, b.payment)
}

// What the database refuses whatever the program does.
func TestDatabaseRefusesWrongDisputes(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(false)
	b.rounds()
	for name, sql := range map[string]string{
		"dispute_terms_are_immutable":         `UPDATE disputes SET payment_id = 'pay_other'`,
		"dispute_change_is_a_new_version":     `UPDATE disputes SET status = 'lost'`,
		"inquiry_comes_before_the_chargeback": `UPDATE disputes SET status = 'warning_closed', version = version + 1`,
		"dispute_movement_is_immutable":       `UPDATE dispute_movements SET amount_minor = 0, net_minor = -fee_minor`,
		"movement_is_booked_once":             `INSERT INTO dispute_movements SELECT * FROM dispute_movements`,
		"movement_net_is_amount_minus_fee": `INSERT INTO dispute_movements SELECT tenant_id, 'txn_2', dispute_id, 1, kind,
			1, 1, 1, currency, now() FROM dispute_movements`,
		"one_dispute_per_stripe_id": `INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id,
			charge_id, amount_minor, currency, reason, created_at) SELECT tenant_id, 'dsp_other', status, payment_id,
			order_id, stripe_dispute_id, charge_id, 1, currency, reason, now() FROM disputes`,
		"payment_disputed_is_not_negative": `UPDATE payments SET amount_disputed_minor = -1`,
		"order_disputed_is_not_negative":   `UPDATE orders SET amount_disputed_minor = -1`,
	} {
		_, err := b.DB.Raw().Exec(t.Context(), sql)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, name, refused.ConstraintName)
	}
}

func TestDisputeDeadlineIsMeasured(t *testing.T) {
	t.Parallel()
	b := paid(t)
	_, err := b.api.Disputes.Measure(t.Context())
	require.NoError(t, err)
	require.True(t, math.IsInf(b.api.Metric("payonce_dispute_evidence_due_seconds"), 1))
	id := b.dispute(false)
	b.rounds()
	_, err = b.api.Disputes.Measure(t.Context())
	require.NoError(t, err)
	due := b.api.Metric("payonce_dispute_evidence_due_seconds")
	require.InDelta(t, 8.5*86400, due, 0.6*86400, "eight days, to the end of the day")
	require.Equal(t, "needs_response", b.api.OnlySeries("payonce_disputes_open", 1))
	b.Exec(`UPDATE disputes SET status = 'under_review', version = version + 1`)
	_, err = b.api.Disputes.Measure(t.Context())
	require.NoError(t, err)
	require.True(t, math.IsInf(b.api.Metric("payonce_dispute_evidence_due_seconds"), 1), "it has been answered")
	b.Exec(`UPDATE disputes SET status = 'needs_response', version = version + 1`)
	b.evidence(id, "losing_evidence")
	b.rounds()
	_, err = b.api.Disputes.Measure(t.Context())
	require.NoError(t, err)
	require.True(t, math.IsInf(b.api.Metric("payonce_dispute_evidence_due_seconds"), 1))
}

// A full refund ends most inquiries, but when the bank closes them is its decision. Until then no alert may fire.
func TestInquiryOfARefundedPaymentNeedsNoResponse(t *testing.T) {
	t.Parallel()
	b := paid(t)
	b.dispute(true)
	b.rounds()
	for _, c := range []struct {
		key, refund string
		due         bool
	}{{"part", `{"amount":400}`, true}, {"rest", `{}`, false}} {
		require.Equal(t, http.StatusCreated, b.api.Post("/v1/payments/"+b.payment+"/refunds", c.key, c.refund).Status)
		_, err := b.api.Disputes.Measure(t.Context())
		require.NoError(t, err)
		require.Equal(t, !c.due, math.IsInf(b.api.Metric("payonce_dispute_evidence_due_seconds"), 1), c.key)
		require.Equal(t, c.due, b.api.Metric("payonce_disputes_open") == 1, c.key)
	}
}

func TestRefundOfDisputedPayment(t *testing.T) {
	t.Parallel()
	t.Run("IsRefusedWhileItIsOpenAndOnceItIsLost", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false)
		b.rounds()
		first := b.refund("while-open")
		require.Equal(t, "payment-disputed", first.Code(), first)
		require.Empty(t, b.Posts("refunds"), "Stripe is not asked")
		_, err := b.Stripe.Disputes.Close(id, nil)
		require.NoError(t, err)
		b.rounds()
		require.Equal(t, "payment-disputed", b.refund("once-lost").Code())
		require.Equal(t, string(first.Body), string(b.refund("while-open").Body), "and the answer is stored")
		b.sound()
	})
	t.Run("IsDoneOnceItIsWon", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false)
		b.rounds()
		b.evidence(id, "winning_evidence")
		b.rounds()
		require.Equal(t, http.StatusCreated, b.refund("k").Status)
		b.sound()
	})
	t.Run("IsDoneDuringAnInquiry", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(true)
		b.rounds()
		require.Equal(t, http.StatusCreated, b.refund("k").Status)
		b.sound()
	})
	// Whichever takes the payment's row lock first: both never move the money.
	t.Run("RacesWithTheDispute", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		b.dispute(false)
		results := world.Together(4, func(i int) string {
			if i == 0 {
				b.rounds()
				return ""
			}
			return b.refund(fmt.Sprint("k", i)).Code()
		})
		for _, code := range results[1:] {
			require.Contains(t, []string{"payment-disputed", "refund-exceeds-payment", "payment-not-refundable"}, code)
		}
		require.Zero(t, b.EffectsOf(string(stripesim.EffectRefund)))
		require.Zero(t, b.Count("SELECT amount_refunding_minor FROM payments"))
		b.sound()
	})
	t.Run("RefusedByStripeRecordsTheDispute", func(t *testing.T) {
		t.Parallel()
		b := paid(t)
		id := b.dispute(false) // not known here
		a := b.refund("k")
		require.Equal(t, "payment-disputed", a.Code(), a)
		require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
		require.Zero(t, b.Count("SELECT amount_refunding_minor FROM payments"), "the amount is free again")
		b.sound()
	})
}

// TestPageOfDisputesIsFull: those that the filter leaves out take no place on it.
func TestPageOfDisputesIsFull(t *testing.T) {
	t.Parallel()
	b := paid(t)
	var ours []string
	for range 2 {
		ours = append(ours, b.dispute(true))
	}
	b.rounds()
	mine := disputes.Filter{PaymentID: b.payment, OrderID: b.order, Status: "warning_needs_response"}
	another := b.api.Pay("another", b.api.Order(), "pm_card_visa").ID()
	b.charge = b.Text("SELECT charge_id FROM payments WHERE id = $1", another)
	for range 2 {
		b.evidence(b.dispute(false), "winning_evidence")
	}
	b.rounds()
	for _, f := range []disputes.Filter{
		{PaymentID: mine.PaymentID}, {OrderID: mine.OrderID}, {Status: mine.Status}, mine,
	} {
		var listed []string
		after := ""
		for n := range 2 {
			page, more, err := b.api.Disputes.List(t.Context(), b.Tenant.ID, f, after, 1)
			require.NoError(t, err)
			require.Len(t, page, 1, f)
			require.Equal(t, n == 0, more, f)
			listed, after = append(listed, page[0].Stripe.Dispute), page[0].ID
		}
		require.ElementsMatch(t, ours, listed, f)
	}
}

func TestDisputesAreListed(t *testing.T) {
	t.Parallel()
	b := paid(t)
	won, open := b.dispute(false), b.dispute(true)
	b.evidence(won, "winning_evidence")
	b.rounds()
	list := func(query string) (stripeIDs []string) {
		a := b.api.Get("/v1/disputes" + query)
		require.Equal(t, http.StatusOK, a.Status, a)
		for _, d := range a.Get("data").([]any) {
			stripeIDs = append(stripeIDs, d.(map[string]any)["stripe"].(map[string]any)["dispute"].(string))
		}
		return stripeIDs
	}
	require.ElementsMatch(t, []string{won, open}, list(""))
	require.ElementsMatch(t, []string{won, open}, list("?payment_id="+b.payment))
	require.ElementsMatch(t, []string{won, open}, list("?order_id="+b.order))
	require.Equal(t, []string{won}, list("?status=won"))
	require.Equal(t, []string{open}, list("?status=warning_needs_response&order_id="+b.order))
	require.Empty(t, list("?payment_id="+ids.New(ids.Payment)))
	for _, documented := range []string{"warning_under_review", "warning_closed", "needs_response", "under_review", "lost",
		"charge_refunded", "prevented"} {
		require.Empty(t, list("?status="+documented))
	}
	for _, none := range []string{"status=pondering", "payment_id=pay_none", "order_id=ord_none", "status=", "colour=red"} {
		a := b.api.Get("/v1/disputes?" + none)
		require.Equal(t, "invalid-request", a.Code(), none)
		name, _, _ := strings.Cut(none, "=")
		require.Equal(t, name, a.Get("errors").([]any)[0].(map[string]any)["parameter"])
	}
	first := b.api.Get("/v1/disputes?limit=1")
	require.Equal(t, true, first.Get("has_more"))
	cursor := first.Get("data").([]any)[0].(map[string]any)["id"].(string)
	next := b.api.Get("/v1/disputes?starting_after=" + cursor)
	require.Equal(t, false, next.Get("has_more"))
	require.Len(t, next.Get("data"), 1)
	require.NotEqual(t, cursor, next.Get("data").([]any)[0].(map[string]any)["id"])
	require.Equal(t, "invalid-request", b.api.Get("/v1/disputes?starting_after=dsp_none").Code())
	_, err := b.api.Disputes.Get(t.Context(), b.Tenant.ID, "dsp_\x00")
	require.ErrorIs(t, err, payments.ErrNotFound, "a text that no server can compare with an id")
	other := b.api.As(b.NewTenant())
	require.Equal(t, http.StatusNotFound, other.Get("/v1/disputes/"+cursor).Status)
	require.True(t, strings.HasPrefix(cursor, "dsp_"))
}
