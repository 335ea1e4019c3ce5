package payments_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/world"
)

// orphan has an operator refund the row's intent, which belongs to no payment: it returns the refund's id and its key.
func (p *played) orphan() (id, key string) {
	p.Helper()
	repairs := p.api.Payments.Repairs()
	require.NoError(p.T, p.api.Pool.InTx(p.Context(), func(q *db.Queries) (err error) {
		view := payments.IntentView{Ours: true, Intent: of1000(stripe.IntentSucceeded)}
		view.Intent.ID, view.Intent.TenantID, view.Intent.OrderID = p.script.intent, p.script.order.TenantID, p.script.order.OrderID
		id, _, err = repairs.RefundOrphan(p.Context(), q, view)
		return err
	}))
	return id, p.w.Text(`SELECT key FROM idempotency_keys WHERE resource_id = $1`, id)
}

// refundingOrphan has the intent refunded while its order was not here.
func (p *played) refundingOrphan(order string) {
	p.script.order.OrderID = ids.New(ids.Order)
	p.script.refund, _ = p.orphan()
	p.script.order.OrderID = order
}

// refusedOrphan is the same, and Stripe has refused the refund.
func (p *played) refusedOrphan(order string) {
	p.refundingOrphan(order)
	p.responds(listing(), other(makes, stripe.Refused), listing())
	p.run("refund_orphan " + p.script.intent)
}

// What the refund of an intent that belongs to no payment does after each response of Stripe's: what its key waits for,
// or what it ends with and what is recorded of the call.
func TestOrphanRefundFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		succeeded = db.RefundStatusSucceeded
		pending   = db.RefundStatusPending
		unknown   = stripe.Unknown
		waits     = "waits: "
	)
	never := other(makes, stripe.NotExecuted)
	cached := other(makes, unknown, errorCached)
	failedWith := func(code string) stripe.Refund {
		r := own(db.RefundStatusFailed, 1000)
		r.FailureCode = code
		return r
	}
	type run struct {
		lost      bool // two days have passed since the call
		responses []response
		want      string
	}
	p := play(t)
	for _, c := range []struct {
		name string
		runs []run
	}{
		{"Succeeds", []run{{responses: []response{listing(), refunds(succeeded)}, want: "200 done 1"}}},
		{"FailsAtOnce", []run{{responses: []response{listing(), refunds(db.RefundStatusFailed)}, want: "409 refused failed 1"}}},
		{"IsPending", []run{
			{responses: []response{listing(), refunds(pending)}, want: waits + "the refund is pending at Stripe"},
			{responses: []response{listing(own(pending, 1000))}, want: waits + "the refund is pending at Stripe"},
			{responses: []response{listing(foreign(succeeded, 1000), own(db.RefundStatusCanceled, 1000))},
				want: "409 refused canceled 1"},
		}},
		{"IsPendingAndFails", []run{
			{responses: []response{listing(), refunds(pending)}, want: waits + "the refund is pending at Stripe"},
			{responses: []response{listing(failedWith("lost_or_stolen_card"))}, want: "409 refused lost_or_stolen_card 1"},
		}},
		{"IsUnknown", []run{
			{responses: []response{away(lists)}, want: waits + "no response"},
			{responses: []response{listing(), other(makes, unknown)}, want: waits + "unknown"},
			{responses: []response{listing(own(succeeded, 1000))}, want: "200 done 1"},
		}},
		{"IsNotExecuted", []run{{responses: []response{listing(), never, never, never}, want: waits + "not_executed"}}},
		{"IsRefused", []run{
			{responses: []response{listing(), other(makes, stripe.Refused), listing()}, want: "409 refused from_stripe 1"},
		}},
		{"IsRefusedAndCannotBeRead", []run{
			{responses: []response{listing(), other(makes, stripe.Refused), away(lists)}, want: waits + "no response"},
		}},
		{"IsRefusedAndWasMade", []run{
			{responses: []response{listing(), other(makes, stripe.Refused), listing(own(succeeded, 1000))}, want: "200 done"},
		}},
		{"Conflicts", []run{
			{responses: []response{listing(), other(makes, stripe.Conflict), listing()}, want: "409 refused from_stripe 1"},
		}},
		{"HasACachedError", []run{
			{responses: []response{listing(), cached}, want: waits + "unknown"},
			{responses: []response{listing(), cached}, want: waits + "unknown"},
			{responses: []response{listing()}, want: waits + "a stored error is repeated"},
			{lost: true, responses: []response{listing()}, want: "409 refused provider_error 2"},
		}},
		{"IsLost", []run{
			{responses: []response{listing(), other(makes, unknown)}, want: waits + "unknown"},
			{lost: true, responses: []response{listing()}, want: "409 refused provider_error 1"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, nil)
			p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: ids.New(ids.Order)} // It is not here any more.
			id, key := p.orphan()
			p.script.refund = id
			for _, run := range c.runs {
				if run.lost {
					p.w.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '37 hours'
						WHERE resource_id = $1`, id)
				}
				p.responds(run.responses...)
				p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + CASE WHEN key = $1
					THEN interval '-1 s' ELSE interval '1 hour' END WHERE finished_at IS NULL`, key)
				n, err := p.api.Completer.RunOnce(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				p.requirePlayed()
				require.Contains(t, p.w.Text(`SELECT CASE WHEN k.finished_at IS NULL THEN 'waits: ' || k.last_error
					ELSE concat_ws(' ', k.answer_status, s.outcome, s.error_code, cardinality(s.request_ids)) END
					FROM idempotency_keys k LEFT JOIN stripe_calls s ON s.resource_id = k.resource_id WHERE k.key = $1`, key), run.want)
			}
		})
	}
}

// An intent is refunded once at a time, as often as eight times, and only by who finds its key free.
func TestOrphanIsRefundedOnceAtATime(t *testing.T) {
	t.Parallel()
	p := play(t).row(t, nil)
	p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: ids.New(ids.Order)}
	view := payments.IntentView{Ours: true, Intent: of1000(stripe.IntentSucceeded)}
	view.Intent.ID, view.Intent.TenantID, view.Intent.OrderID = p.script.intent, p.w.Tenant.ID, p.script.order.OrderID
	try := func(view payments.IntentView) error {
		return p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, _, err := p.api.Payments.Repairs().RefundOrphan(t.Context(), q, view)
			return err
		})
	}
	refused := func(why string, err error) {
		t.Helper()
		var no *compare.NotRefundableError
		require.ErrorAs(t, err, &no)
		require.Contains(t, no.Why, why)
	}
	foreign := view
	foreign.Ours, foreign.Detail = false, "its metadata names no tenant of ours"
	refused("names no tenant of ours", try(foreign))
	nothing := view
	nothing.Intent.RefundedMinor = 1000
	refused("refunded", try(nothing))
	for range 8 {
		id, _ := p.orphan()
		refused("it is being refunded already, as "+id, try(view))
		p.script.refund = id
		p.responds(listing(), other(makes, stripe.Refused), listing())
		p.api.Complete()
		p.requirePlayed()
	}
	refused("it was tried 8 times", try(view))
}

// If the order is not here there is no row to lock: the key of the refund is the lock.
func TestOrphanIsRefundedByOneOfManyOperators(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	view := payments.IntentView{Ours: true, Intent: of1000(stripe.IntentSucceeded)}
	view.Intent.ID, view.Intent.TenantID, view.Intent.OrderID = p.script.intent, p.w.Tenant.ID, ids.New(ids.Order)
	try := func() error {
		return p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, _, err := p.api.Payments.Repairs().RefundOrphan(t.Context(), q, view)
			return err
		})
	}
	for n, why := range map[int]string{1: "read the refunds of", 2: "read the refund of"} {
		proxy.Fail("name: OrphanRefunds ", n)
		require.ErrorContains(t, try(), why)
	}
	goOn := make(chan struct{})
	read := proxy.Hold("name: OrphanRefunds ", goOn)
	first := world.Async(try)
	read.Await(t)
	require.NoError(t, try())
	close(goOn)
	var no *compare.NotRefundableError
	require.ErrorAs(t, <-first, &no)
	require.Equal(t, "it is being refunded by someone else at this moment", no.Why)
	require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM idempotency_keys`))
}

// TestWebhookOfAnOrphanRefund: its key finds out, and no other's.
func TestWebhookOfAnOrphanRefund(t *testing.T) {
	t.Parallel()
	log := &logs.Buffer{}
	p, _ := playProxied(t, func(o *world.LocalOptions) { o.Log = log.Logger(slog.LevelInfo) })
	order := p.api.Order()
	p.cancelOrder(order)
	p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
	for _, operation := range []string{"", "create_tip"} {
		p.script.intent += "-next"
		var key string
		p.script.order.OrderID = ids.New(ids.Order)
		p.script.refund, key = p.orphan()
		p.responds(listing(), other(makes, stripe.Refused), listing())
		p.run(key)
		refused := foreign(db.RefundStatusFailed, 1000)
		refused.RefundID = p.script.refund
		p.script.refund, key = p.orphan()
		p.script.order.OrderID = order
		waits := func() {
			p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour'
				WHERE key = $1`, key)
		}
		due := func() bool {
			return p.w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = $1 AND next_attempt_at <= clock_timestamp()`, key) == 1
		}
		hears := func(list ...stripe.Refund) {
			p.responds(shows(stripe.IntentSucceeded, refunded(1000), func(r *response) { r.intent.Operation = operation }),
				listing(list...))
			require.NoError(t, p.webhook("charge.refunded", map[string]any{
				"id": p.script.intent, "object": "payment_intent",
				"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order},
			}))
			p.requirePlayed()
		}
		waits()
		hears(refused, foreign(db.RefundStatusSucceeded, 1000))
		require.False(t, due(), operation)
		hears(refused, foreign(db.RefundStatusSucceeded, 400), own(db.RefundStatusSucceeded, 1000))
		require.True(t, due(), operation)
		p.responds(listing(own(db.RefundStatusSucceeded, 1000)))
		p.run(key)
		require.Contains(t, log.Take(), "the refund of money that belongs to no payment has ended")
	}
}

// TestAdoptionOfWhatCouldNotBeAdoptedThen: what an operator was shown of an intent is what the operator decides on.
func TestAdoptionOfWhatCouldNotBeAdoptedThen(t *testing.T) {
	t.Parallel()
	p, order, _ := play(t).orderWith(t, isWaiting)
	p.responds(shows(stripe.IntentSucceeded))
	view, err := p.api.Payments.Repairs().CompareIntent(t.Context(), p.script.intent)
	require.NoError(t, err)
	p.responds(shows(stripe.IntentCanceled))
	require.Equal(t, "payment-failed", said(p.api.Pay("pays-"+order, order, visa)))
	require.NoError(t, p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
		adopted, err := p.api.Payments.Repairs().Adopt(t.Context(), q, view)
		require.Empty(t, adopted)
		return err
	}))
	require.Equal(t, "open; canceled", p.ledger(order))
}

// What an operator is shown of an intent follows from the comparison with our rows.
func TestViewOfAnIntent(t *testing.T) {
	t.Parallel()
	made := done(create, stripe.IntentRequiresConfirmation)
	waiting := []response{made, done(confirm, stripe.IntentRequiresAction)}
	paid := []response{made, done(confirm, stripe.IntentSucceeded)}
	p := play(t)
	for _, c := range []struct {
		name    string
		payment []response
		other   bool // The intent is another one of the order.
		stripe  []response
		want    payments.IntentView // without the intent
		wrong   string
	}{
		{name: "Agrees", payment: paid, stripe: []response{shows(stripe.IntentSucceeded)},
			want: payments.IntentView{Ours: true, Agrees: true, Detail: "Stripe and our rows agree", WhyNot: "paid"}},
		{name: "InProgress", payment: waiting, stripe: []response{shows(stripe.IntentSucceeded)},
			want: payments.IntentView{Ours: true, Detail: "an operation here works on it", WhyNot: "payment"}},
		{name: "Adoptable", stripe: []response{shows(stripe.IntentSucceeded)},
			want: payments.IntentView{Ours: true, Adoptable: true, Detail: "no payment of it succeeded", WhyNot: "adopt it"}},
		{name: "AdoptableWithRefunds",
			stripe: []response{shows(stripe.IntentSucceeded, refunded(400)), listing(foreign(db.RefundStatusSucceeded, 400))},
			want: payments.IntentView{Ours: true, Adoptable: true, Detail: "no payment of it succeeded",
				WhyNot: "adopt it"}},
		{name: "AdoptableAndItsRefundsCannotBeRead",
			stripe: []response{shows(stripe.IntentSucceeded, refunded(400)), away(lists)}, wrong: "no response"},
		{name: "Unregistered", stripe: []response{shows(stripe.IntentSucceeded, func(r *response) { r.intent.Operation = "tip" })},
			want: payments.IntentView{Ours: true, Unregistered: true, Detail: "made by the operation tip", WhyNot: "it was made by"}},
		{name: "Differs", payment: paid, other: true, stripe: []response{shows(stripe.IntentSucceeded)},
			want: payments.IntentView{Ours: true, Left: 1000, Detail: "order"}},
		{name: "OfAnotherInstallation", stripe: []response{shows(stripe.IntentSucceeded, names("another-tenant", "7"))},
			want: payments.IntentView{Detail: "its metadata names no tenant of ours"}},
		{name: "CannotBeRead", stripe: []response{away(get)}, wrong: "no response"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, c.payment)
			order := p.api.Order()
			if c.payment != nil {
				p.api.Pay("pays-"+c.name, order, visa)
			}
			p.requirePlayed()
			p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
			if c.other {
				p.script.intent += "-second"
			}
			p.responds(c.stripe...)
			view, err := p.api.Payments.Repairs().CompareIntent(t.Context(), p.script.intent)
			p.requirePlayed()
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []bool{c.want.Ours, c.want.Agrees, c.want.Adoptable, c.want.Unregistered},
				[]bool{view.Ours, view.Agrees, view.Adoptable, view.Unregistered}, view.Detail)
			require.Contains(t, view.Detail, c.want.Detail)
			require.Equal(t, c.want.WhyNot == "", view.WhyNot == "", "%q", view.WhyNot)
			require.Equal(t, c.want.Left, view.Left)
			var adopted string
			require.NoError(t, p.api.Pool.InTx(t.Context(), func(q *db.Queries) (err error) {
				adopted, err = p.api.Payments.Repairs().Adopt(t.Context(), q, view)
				return err
			}))
			require.Equal(t, c.want.Adoptable, adopted != "")
		})
	}
}

// A payment or a refund can be called failed only once its money can never move.
func TestOnlyWhatIsTerminalHasFailed(t *testing.T) {
	t.Parallel()
	p := play(t)
	made := done(create, stripe.IntentRequiresConfirmation)
	waiting := []response{made, done(confirm, stripe.IntentRequiresAction)}
	unknown := []response{made, other(confirm, stripe.Unknown)}
	for _, c := range []struct {
		name    string
		payment []response
		stripe  []response
		why     string // empty: it has failed
	}{
		{"IntentCanceled", waiting, []response{shows(stripe.IntentCanceled)}, ""},
		{"IntentCanceledOfAPaymentInDoubt", unknown, []response{shows(stripe.IntentCanceled)}, ""},
		{"IntentPaid", waiting, []response{shows(stripe.IntentSucceeded)}, "the money was taken"},
		{"IntentWaits", waiting, []response{shows(stripe.IntentRequiresAction)}, "its money may still move"},
		{"IntentAbsent", waiting, []response{absent()}, "is STRIPE_SECRET_KEY of the right account"},
		{"IntentUnreadable", waiting, []response{away(get)}, "Stripe did not say"},
		{"NoIntent", []response{other(create, stripe.Unknown)}, nil, "it has no PaymentIntent here"},
		{"PaymentEnded", []response{other(create, stripe.Refused)}, nil, "the payment is failed already"},
	} {
		t.Run("Payment"+c.name, func(t *testing.T) {
			p := p.row(t, c.payment)
			order := p.api.Order()
			p.api.Pay("pays-"+c.name, order, visa)
			id := p.w.Text(`SELECT id FROM payments WHERE order_id = $1`, order)
			p.responds(c.stripe...)
			got, err := p.api.Payments.Repairs().ConfirmFailed(t.Context(), p.w.Tenant.ID, id)
			p.requirePlayed()
			requireTerminal(t, c.why, err)
			require.Equal(t, id, got.ID)
		})
	}
	for _, c := range []struct {
		name  string
		first response // to the refund
		list  []response
		why   string
	}{
		{"Failed", refunds(db.RefundStatusPending), []response{listing(own(db.RefundStatusFailed, 300))}, ""},
		{"Canceled", refunds(db.RefundStatusPending), []response{listing(own(db.RefundStatusCanceled, 300))}, ""},
		{"Succeeded", refunds(db.RefundStatusPending), []response{listing(own(db.RefundStatusSucceeded, 300))},
			"the money was refunded"},
		{"Pending", refunds(db.RefundStatusPending), []response{listing(own(db.RefundStatusPending, 300))},
			"has not decided yet"},
		{"NotListed", refunds(db.RefundStatusPending), []response{listing()}, "Stripe does not list it"},
		{"Unreadable", refunds(db.RefundStatusPending), []response{away(lists)}, "Stripe did not say"},
		{"Ended", refunds(db.RefundStatusSucceeded), nil, "the refund is succeeded already"},
	} {
		t.Run("Refund"+c.name, func(t *testing.T) {
			p := p.row(t, []response{made, done(confirm, stripe.IntentSucceeded)})
			payment := p.api.Pay("pays-refund-"+c.name, p.api.Order(), visa).ID()
			key := "refund-" + c.name
			p.script.refund = ids.Keyed(ids.Refund, p.w.Tenant.ID, key)
			p.responds(c.first)
			refund(p.api, key, payment)
			p.responds(c.list...)
			got, err := p.api.Payments.Repairs().RefundFailed(t.Context(), p.w.Tenant.ID, p.script.refund)
			p.requirePlayed()
			requireTerminal(t, c.why, err)
			require.Equal(t, p.script.refund, got.ID)
		})
	}
	_, err := p.api.Payments.Repairs().ConfirmFailed(t.Context(), p.w.Tenant.ID, "pay_\x00")
	require.ErrorIs(t, err, payments.ErrNotFound, "a text that no server can compare with an id")
	_, err = p.api.Payments.Repairs().ConfirmFailed(t.Context(), p.w.Tenant.ID, ids.New(ids.Payment))
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, err = p.api.Payments.Repairs().RefundFailed(t.Context(), p.w.Tenant.ID, ids.New(ids.Refund))
	require.ErrorIs(t, err, payments.ErrNotFound)
}

func requireTerminal(t *testing.T, why string, err error) {
	t.Helper()
	if why == "" {
		require.NoError(t, err)
		return
	}
	var not *payments.NotTerminalError
	require.ErrorAs(t, err, &not)
	require.Contains(t, not.Why, why)
}

func TestOrderOfARegisteredCharge(t *testing.T) {
	t.Parallel()
	order := func(err error, id string) (string, error) {
		registered := tips([]compare.Charge{{ID: "tip_1", OrderRef: compare.OrderRef{OrderID: "ord_1"}}}, err)
		for n := range 8 { // They are asked in any order.
			registered[fmt.Sprint("create_fee_", n)] = tips(nil, nil)["create_tip"]
		}
		s := payments.New(play(t).api.Pool, nil, nil, nil, payments.Options{Registered: registered})
		return s.OrderOfCharge(t.Context(), "ten_1", id)
	}
	found, err := order(nil, "tip_1")
	require.NoError(t, err)
	require.Equal(t, "ord_1", found)
	_, err = order(nil, "tip_2")
	require.ErrorIs(t, err, payments.ErrNotFound)
	_, err = order(errors.New("no database"), "tip_1")
	require.ErrorContains(t, err, "read tip_1 of create_tip: no database")
}
