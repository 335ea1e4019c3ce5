package payments_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// bank is a payments.Disputes that says what a table says.
type bank struct {
	refuses error // of AllowsRefund
	lost    int64
	err     error
	read    []string // the intents that it was asked about
}

func (b *bank) AllowsRefund(context.Context, *db.Queries, db.Payment) error { return b.refuses }

func (b *bank) ReadOf(_ context.Context, _ compare.OrderRef, intent string) error {
	b.read = append(b.read, intent)
	return b.err
}

func (b *bank) LostOf(_ context.Context, intent string) (int64, error) {
	b.read = append(b.read, intent)
	return b.lost, b.err
}

// service is the server's service with another bank and with registered operations.
func (p *played) service(b *bank, registered map[string]payments.Registered) *payments.Service {
	o := payments.Options{StripeTimeout: time.Second, Registered: registered}
	if b != nil {
		o.Disputes = b
	}
	return payments.New(p.api.Pool, p.api.Keys, p.script, httpapi.Answers{}, o)
}

// tips are the charges of an operation that is not this package's.
func tips(list []compare.Charge, err error) map[string]payments.Registered {
	return map[string]payments.Registered{"create_tip": {
		Charges: func(context.Context, *db.Queries, []compare.OrderRef) ([]compare.Charge, error) { return list, err },
		Charge: func(_ context.Context, _ *db.Queries, _, id string) (compare.Charge, error) {
			for _, c := range list {
				if c.ID == id && err == nil {
					return c, nil
				}
			}
			if err != nil {
				return compare.Charge{}, err
			}
			return compare.Charge{}, payments.ErrNotFound
		},
	}}
}

// seen is the row's intent as Stripe shows it.
func (p *played) seen(status stripe.IntentStatus, change ...func(*stripe.Intent)) stripe.Intent {
	i := of1000(status)
	i.ID, i.TenantID, i.OrderID, i.CreatedAt = p.script.intent, p.script.order.TenantID, p.script.order.OrderID, time.Now()
	for _, f := range change {
		f(&i)
	}
	return i
}

var (
	unconfirmed = done(create, stripe.IntentRequiresConfirmation)
	isWaiting   = []response{unconfirmed, done(confirm, stripe.IntentRequiresAction)}
	isPaid      = []response{unconfirmed, done(confirm, stripe.IntentSucceeded)}
	hasFailed   = []response{unconfirmed, other(confirm, stripe.Refused, declined)}
)

// orderWith begins a row with an order whose payment got there by responses; none: it has no payment.
func (p *played) orderWith(t *testing.T, responses []response) (_ *played, order, payment string) {
	t.Helper()
	p = p.row(t, responses)
	order = p.api.Order()
	p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
	if responses != nil {
		p.api.Pay("pays-"+order, order, visa)
		payment = p.w.Text(`SELECT id FROM payments WHERE order_id = $1`, order)
	}
	p.requirePlayed()
	return p, order, payment
}

// ledger is an order, its payments and its refunds in short.
func (p *played) ledger(order string) string {
	return p.w.Text(`SELECT concat_ws('; ', o.status, (SELECT string_agg(p.status::text, ' ' ORDER BY p.status::text)
			FROM payments p WHERE p.order_id = o.id),
		(SELECT string_agg(concat_ws(' ', r.origin, r.status, r.amount_minor), ', '
			ORDER BY r.origin, r.status, r.amount_minor) FROM refunds r WHERE r.order_id = o.id))
		FROM orders o WHERE o.id = $1`, order)
}

// cancelOrder cancels an order that has no intent.
func (p *played) cancelOrder(order string) {
	require.Equal(p.T, http.StatusOK, p.api.Post("/v1/orders/"+order+"/cancel", "cancel-"+order, `{}`).Status)
}

// onlyDue makes a key due, and no other.
func (p *played) onlyDue(key string) {
	p.w.Exec(`UPDATE idempotency_keys SET leased_until = least(leased_until, clock_timestamp() - interval '1 ms'),
		next_attempt_at = clock_timestamp() + CASE WHEN key = $1 THEN interval '-1 s' ELSE interval '1 hour' END
		WHERE finished_at IS NULL`, key)
}

// run has the completer run one key.
func (p *played) run(key string) {
	p.Helper()
	p.onlyDue(key)
	n, err := p.api.Completer.RunOnce(p.Context())
	require.NoError(p.T, err)
	require.Equal(p.T, 1, n)
	p.requirePlayed()
}

// An intent that was paid is adopted if it is for an order that has exactly its amount and nothing stands against it.
func TestAdoptionOfAnIntent(t *testing.T) {
	t.Parallel()
	p := play(t)
	back := func(minor int64) response { return listing(foreign(db.RefundStatusSucceeded, minor)) }
	partly := func(i *stripe.Intent) { i.RefundedMinor = 400 }
	for _, c := range []struct {
		name    string
		payment []response
		before  func(p *played, order string)
		seen    func(*stripe.Intent)
		stripe  []response
		want    string
		adopted bool
		wrong   string
	}{
		{name: "OfAnOpenOrder", want: "paid; succeeded", adopted: true},
		{name: "OfAFailedPayment", payment: hasFailed, want: "paid; failed succeeded", adopted: true},
		{name: "NotOfAPaymentThatWaits", payment: isWaiting, want: "open; requires_action"},
		{name: "NotOfAPaidOrder", payment: isPaid, want: "paid; succeeded",
			seen: func(i *stripe.Intent) { i.ID += "-second" }},
		{name: "NotOfAnotherAmount", seen: func(i *stripe.Intent) { i.AmountMinor, i.ReceivedMinor = 900, 900 }, want: "open"},
		{name: "OfACanceledOrder", before: (*played).cancelOrder, want: "canceled; succeeded; automatic pending 1000",
			adopted: true},
		{name: "OfACanceledOrderWithRefunds", before: (*played).cancelOrder, seen: partly, stripe: []response{back(400)},
			want: "canceled; succeeded; automatic pending 600, provider succeeded 400", adopted: true},
		{name: "OfACanceledOrderThatWasRefundedMeanwhile", before: (*played).cancelOrder, seen: partly,
			stripe: []response{back(1000)}, want: "canceled; succeeded; provider succeeded 1000", adopted: true},
		{name: "WithRefunds", seen: partly, stripe: []response{back(400)},
			want: "partially_refunded; succeeded; provider succeeded 400", adopted: true},
		{name: "WithRefundsThatAreNotListed", seen: partly, stripe: []response{listing()}, want: "paid; succeeded",
			adopted: true},
		{name: "WithRefundsThatCannotBeRead", seen: partly, stripe: []response{away(lists)}, want: "open",
			wrong: "no response"},
		// part: operator {
		{name: "NotWhileItIsRefundedAsAnOrphan", before: (*played).refundingOrphan, want: "open"},
		{name: "NotJustAfterItWasRefundedAsAnOrphan", before: (*played).refusedOrphan, want: "open"},
		{name: "SomeTimeAfterItWasRefundedAsAnOrphan", before: func(p *played, order string) {
			p.refusedOrphan(order)
			p.w.Exec(`WITH off AS (SELECT set_config('session_replication_role', 'replica', true))
				UPDATE idempotency_keys SET finished_at = finished_at - interval '11 minutes'
				FROM off WHERE key = $1`, "refund_orphan "+p.script.intent)
		}, want: "paid; succeeded", adopted: true},
		// part: operator }
		{name: "NotOfAnIntentThatAnotherOrderUses", before: func(p *played, order string) {
			p.responds(isPaid...)
			p.api.Pay("uses-"+order, p.api.Order(), visa)
		}, want: "open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, order, _ := p.orderWith(t, c.payment)
			if c.before != nil {
				c.before(p, order)
			}
			p.responds(c.stripe...)
			seen := p.seen(stripe.IntentSucceeded)
			if c.seen != nil {
				c.seen(&seen)
			}
			adopted, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(), seen)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
			p.requirePlayed()
			require.Equal(t, c.adopted, adopted != "")
			require.Equal(t, c.want, p.ledger(order))
		})
	}
}

// A refund names the payment that it once had. It gets that id again, unless there is a payment of it.
func TestAdoptedPaymentKeepsItsID(t *testing.T) {
	t.Parallel()
	p := play(t)
	adopt := func(p *played, named string) string {
		back := foreign(db.RefundStatusSucceeded, 400)
		back.TenantID, back.OrderID, back.PaymentID = p.script.order.TenantID, p.script.order.OrderID, named
		p.responds(listing(back))
		id, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(),
			p.seen(stripe.IntentSucceeded, func(i *stripe.Intent) { i.RefundedMinor = 400 }))
		require.NoError(t, err)
		return id
	}
	open, _, _ := p.orderWith(t, nil)
	lost := ids.New(ids.Payment)
	require.Equal(t, lost, adopt(open, lost))
	failed, order, payment := p.orderWith(t, hasFailed)
	require.NotEqual(t, payment, adopt(failed, payment))
	require.Equal(t, "partially_refunded; failed succeeded; provider succeeded 400", failed.ledger(order))
}

// TestAdoptionThatIsNotCommitted reads no disputes: there is no payment for them.
func TestAdoptionThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	order := p.api.Order()
	p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
	cut := proxy.BeforeCommit("name: DiscrepanciesResolve ")
	b := &bank{}
	_, err := p.service(b, nil).Repairs().AdoptPayment(t.Context(),
		p.seen(stripe.IntentSucceeded, func(i *stripe.Intent) { i.Disputed = true }))
	require.Error(t, err)
	require.True(t, cut.HasFired())
	require.Empty(t, b.read)
	require.Equal(t, "open", p.ledger(order))
}

// TestDiscrepancyOfWhatIsNotAdopted stays.
func TestDiscrepancyOfWhatIsNotAdopted(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, http.StatusCreated, b.API.Pay("k", order, visa).Status)
	second := b.OrphanIntent(order).ID
	b.Reconcile()
	found := b.Discrepancies()
	require.Contains(t, found, second)
	seen, err := b.API.Gateway.GetIntent(t.Context(), stripe.NoTenant, second)
	require.NoError(t, err)
	adopted, err := b.API.Payments.Repairs().AdoptPayment(t.Context(), seen)
	require.NoError(t, err)
	require.Empty(t, adopted)
	require.Equal(t, found, b.Discrepancies())
}

// The disputes of an adopted intent are read with it.
func TestAdoptionReadsDisputes(t *testing.T) {
	t.Parallel()
	p := play(t)
	disputed := func(i *stripe.Intent) { i.Disputed = true }
	for _, c := range []struct {
		name    string
		payment []response
		change  func(*stripe.Intent)
		bank    *bank
		read    bool
		wrong   bool
	}{
		{"OfADisputedIntent", nil, disputed, &bank{}, true, false},
		{"ThatCannotBeRead", nil, disputed, &bank{err: errors.New("no response")}, true, true},
		{"NotOfOneWithoutDisputes", nil, func(*stripe.Intent) {}, &bank{}, false, false},
		{"NotOfOneThatIsNotAdopted", isWaiting, disputed, &bank{}, false, false},
		{"NotWithoutAnyDisputes", nil, disputed, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, _ := p.orderWith(t, c.payment)
			_, err := p.service(c.bank, nil).Repairs().AdoptPayment(t.Context(), p.seen(stripe.IntentSucceeded, c.change))
			require.Equal(t, c.wrong, err != nil, "%v", err)
			require.Equal(t, c.read, c.bank != nil && len(c.bank.read) == 1)
		})
	}
}

// A disputed intent is adopted so that the dispute has a payment. If none can ever have it, the dispute does not wait.
func TestDisputedIntentIsAdoptedOrNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := play(t)
	for _, c := range []struct {
		name    string
		payment []response
		second  bool
		pending bool
		want    string
	}{
		{"Adoptable", nil, false, true, "paid; succeeded"},
		{"Agrees", isPaid, false, true, "paid; succeeded"},
		{"InProgress", isWaiting, false, true, "open; requires_action"},
		{"OfAPaidOrder", isPaid, true, false, "paid; succeeded"},
		{"OfAParkedKey", isWaiting, false, true, "open; requires_action"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, order, _ := p.orderWith(t, c.payment)
			if c.name == "OfAParkedKey" {
				p.w.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE key = $1`, "pays-"+order)
			}
			seen := p.seen(stripe.IntentSucceeded, func(i *stripe.Intent) { i.Disputed, i.ChargeID = true, "ch_"+i.ID })
			if c.second {
				seen.ID += "-second"
			}
			pending, err := p.service(&bank{}, nil).Repairs().AdoptDisputed(t.Context(), seen)
			require.NoError(t, err)
			require.Equal(t, c.pending, pending)
			require.Equal(t, c.want, p.ledger(order))
		})
	}
}

// What lost disputes have taken counts for a paid and disputed intent alone, and never more than it still has.
func TestWithLost(t *testing.T) {
	t.Parallel()
	p := play(t).row(t, nil)
	intent := func(change func(*stripe.Intent)) stripe.Intent {
		return p.seen(stripe.IntentSucceeded, func(i *stripe.Intent) { i.Disputed, i.RefundedMinor = true, 300; change(i) })
	}
	unchanged := func(*stripe.Intent) {}
	for name, c := range map[string]struct {
		bank   *bank
		change func(*stripe.Intent)
		lost   int64
		read   int
	}{
		"Part":               {&bank{lost: 400}, unchanged, 400, 1},
		"MoreThanIsLeft":     {&bank{lost: 1000}, unchanged, 700, 1},
		"NotDisputed":        {&bank{lost: 400}, func(i *stripe.Intent) { i.Disputed = false }, 0, 0},
		"NotPaid":            {&bank{lost: 400}, func(i *stripe.Intent) { i.Status = stripe.IntentProcessing }, 0, 0},
		"WithoutAnyDisputes": {nil, unchanged, 0, 0},
	} {
		got, err := p.service(c.bank, nil).WithLost(t.Context(), intent(c.change))
		require.NoError(t, err, name)
		require.Equal(t, c.lost, got.LostMinor, name)
		if c.bank != nil {
			require.Len(t, c.bank.read, c.read, name)
		}
	}
	_, err := p.service(&bank{err: errors.New("no response")}, nil).WithLost(t.Context(), intent(unchanged))
	require.ErrorContains(t, err, "no response")
}

// What others have moved on an intent is read if the intent shows that they have, and not otherwise.
func TestMovedByOthers(t *testing.T) {
	t.Parallel()
	p := play(t)
	partly := func(i *stripe.Intent) { i.RefundedMinor = 400 }
	disputed := func(i *stripe.Intent) { i.Disputed = true }
	both := func(i *stripe.Intent) { i.Disputed, i.RefundedMinor = true, 400 }
	for _, c := range []struct {
		name    string
		payment []response
		change  func(*stripe.Intent)
		bank    *bank
		stripe  []response
		want    string
		read    bool
		wrong   string
	}{
		{name: "Nothing", payment: isPaid, bank: &bank{}, want: "paid; succeeded"},
		{name: "ARefund", payment: isPaid, change: partly, bank: &bank{},
			stripe: []response{listing(foreign(db.RefundStatusSucceeded, 400))},
			want:   "partially_refunded; succeeded; provider succeeded 400"},
		{name: "ARefundThatCannotBeRead", payment: isPaid, change: partly, stripe: []response{away(lists)},
			want: "paid; succeeded", wrong: "no response"},
		{name: "ADispute", payment: isPaid, change: disputed, bank: &bank{}, want: "paid; succeeded", read: true},
		{name: "ARefundAndADispute", payment: isPaid, change: both, bank: &bank{},
			stripe: []response{listing(foreign(db.RefundStatusSucceeded, 400))},
			want:   "partially_refunded; succeeded; provider succeeded 400", read: true},
		{name: "ADisputeThatCannotBeRead", payment: isPaid, change: disputed, bank: &bank{err: errors.New("no bank")},
			want: "paid; succeeded", read: true, wrong: "no bank"},
		{name: "ADisputeWithoutAnyDisputes", payment: isPaid, change: disputed, want: "paid; succeeded"},
		{name: "OnNoPayment", change: both, bank: &bank{}, want: "open"},
		{name: "OnAFailedPayment", payment: hasFailed, change: both, bank: &bank{}, want: "open; failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, order, _ := p.orderWith(t, c.payment)
			p.responds(c.stripe...)
			seen := p.seen(stripe.IntentSucceeded)
			if c.change != nil {
				c.change(&seen)
			}
			err := p.service(c.bank, nil).Repairs().MovedByOthers(t.Context(), seen)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
			p.requirePlayed()
			require.Equal(t, c.want, p.ledger(order))
			require.Equal(t, c.read, c.bank != nil && len(c.bank.read) > 0)
		})
	}
}

// A refund that Stripe has and we have not gets a row, with the id and the origin that it had if it was ours.
func TestAdoptionOfARefund(t *testing.T) {
	t.Parallel()
	p := play(t)
	for _, c := range []struct {
		name    string
		change  func(p *played, r *stripe.Refund)
		listed  bool
		adopted bool
		want    string
		keeps   bool // the id that it names
	}{
		{"OfOthers", func(*played, *stripe.Refund) {}, true, true, "partially_refunded; succeeded; provider succeeded 400",
			false},
		{"ThatIsPending", func(_ *played, r *stripe.Refund) { r.Status = db.RefundStatusPending }, true, true,
			"paid; succeeded; provider pending 400", false},
		{"ThatIsNotListed", func(*played, *stripe.Refund) {}, false, false, "paid; succeeded", false},
		{"ThatHasFailed", func(_ *played, r *stripe.Refund) { r.Status = db.RefundStatusFailed }, true, false,
			"paid; succeeded", false},
		{"OfMoreThanThePayment", func(_ *played, r *stripe.Refund) { r.AmountMinor = 1001 }, true, false, "paid; succeeded",
			false},
		{"ThatWasOurs", func(_ *played, r *stripe.Refund) { r.RefundID = ids.New(ids.Refund) }, true, true,
			"partially_refunded; succeeded; api succeeded 400", true},
		{"ThatWasAutomatic", func(p *played, r *stripe.Refund) {
			r.RefundID = ids.Keyed(ids.Refund, p.w.Tenant.ID, "refund_order "+p.script.order.OrderID+":2")
		}, true, true, "partially_refunded; succeeded; automatic succeeded 400", true},
		{"ThatNamesTheRefundOfAnotherPayment", func(p *played, r *stripe.Refund) {
			p.script.intent += "-another"
			p.responds(append(isPaid[:2:2], refunds(db.RefundStatusPending))...)
			_, payment := paid(p.api)
			r.RefundID = refund(p.api, "of-"+payment, payment).ID()
		}, true, true, "partially_refunded; succeeded; provider succeeded 400", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, order, payment := p.orderWith(t, isPaid)
			r := foreign(db.RefundStatusSucceeded, 400)
			r.TenantID, r.OrderID, r.PaymentID = p.w.Tenant.ID, order, payment
			intent := p.script.intent
			c.change(p, &r)
			p.script.intent, r.IntentID = intent, intent
			if c.listed {
				p.responds(listing(r))
			} else {
				p.responds(listing())
			}
			adopted, err := p.service(nil, nil).Repairs().AdoptRefund(t.Context(), r)
			require.NoError(t, err)
			p.requirePlayed()
			require.Equal(t, c.adopted, adopted)
			require.Equal(t, c.want, p.ledger(order))
			require.Equal(t, c.keeps, p.w.Count(`SELECT count(*) FROM refunds WHERE id = $1 AND order_id = $2`, r.RefundID,
				order) == 1, "whether it keeps its id")
			require.Equal(t, r.Status == db.RefundStatusPending, p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND finished_at IS NULL`, "adopted "+r.ID) == 1, "whether it is polled")
		})
	}
	p, _, _ = p.orderWith(t, isPaid)
	p.responds(away(lists))
	_, err := p.service(nil, nil).Repairs().AdoptRefund(t.Context(), stripe.Refund{})
	require.ErrorContains(t, err, "no response")
}

// An intent that no payment will confirm is canceled by an operation that no caller asked for, begun once.
func TestCancelOfAnAbandonedIntent(t *testing.T) {
	t.Parallel()
	p := play(t)
	unused := func(p *played, order string) {
		p.w.Exec(`UPDATE payments SET updated_at = updated_at - interval '25 hours' WHERE order_id = $1`, order)
	}
	for _, c := range []struct {
		name    string
		payment []response
		before  func(p *played, order string)
		begun   bool
		retired int // of the order's intents
	}{
		{"OfAnOrderThatWasCanceled", nil, (*played).cancelOrder, true, 0},
		{"OfAnUnusedIntent", hasFailed, unused, true, 1},
		{"NotOfAnIntentThatTheNextPaymentWillUse", hasFailed, func(*played, string) {}, false, 0},
		{"NotOfAPaymentThatWaits", isWaiting, unused, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, order, _ := p.orderWith(t, c.payment)
			c.before(p, order)
			begins := func() bool {
				begun, err := p.service(nil, nil).Repairs().CancelAbandoned(t.Context(),
					p.seen(stripe.IntentRequiresPaymentMethod))
				require.NoError(t, err)
				return begun
			}
			require.Equal(t, c.begun, begins())
			require.Equal(t, c.retired, p.w.Count(`SELECT intents_retired FROM orders WHERE id = $1`, order))
			key := "cancel_abandoned_intent " + p.script.intent
			require.Equal(t, c.begun, p.w.RecoveryPoint(key) != "")
			if !c.begun {
				return
			}
			p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = $1`, key)
			require.False(t, begins(), "it was begun before")
			require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND next_attempt_at <= clock_timestamp()`, key), "and need not wait any longer")
			require.Equal(t, 1, p.w.Count(`SELECT count(*) FROM stripe_calls WHERE stripe_key LIKE '%:' || $1 || ':cancel:%'`,
				order), "its call is recorded once")
			p.responds(other(cancel, stripe.Conflict), shows(stripe.IntentProcessing))
			p.run(key)
			require.Contains(t, p.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = $1`, key),
				"the intent is processing: cancel the intent")
			p.responds(shows(stripe.IntentCanceled))
			p.run(key)
			require.Equal(t, "finished", p.w.RecoveryPoint(key))
			require.Zero(t, p.w.Count(`SELECT count(*) FROM payments WHERE order_id = $1 AND NOT intent_closed`, order))
		})
	}
}

// TestCancelsOfTwoAbandonedIntents: each has its own number, and its call is recorded when its cancel is begun.
func TestCancelsOfTwoAbandonedIntents(t *testing.T) {
	t.Parallel()
	p, order, _ := play(t).orderWith(t, nil)
	p.cancelOrder(order)
	for n := range 2 {
		begun, err := p.service(nil, nil).Repairs().CancelAbandoned(t.Context(), p.seen(
			stripe.IntentRequiresPaymentMethod, func(i *stripe.Intent) { i.ID = fmt.Sprint("pi_", n) }))
		require.NoError(t, err)
		require.True(t, begun)
	}
	require.Equal(t, "cancel:1 cancel:2", p.w.Text(`SELECT string_agg('cancel:' || split_part(stripe_key, ':cancel:', 2), ' '
		ORDER BY stripe_key) FROM stripe_calls WHERE resource_id = $1`, order))
}

// Whether the intent was canceled or paid ends the operation; nothing else does.
func TestEndOfAnAbandonedIntent(t *testing.T) {
	t.Parallel()
	p := play(t)
	for name, c := range map[string]struct {
		responses []response
		point     string
		why       string
		closed    int
	}{
		"Canceled": {[]response{done(cancel, stripe.IntentCanceled)}, "finished", "", 1},
		"Paid":     {[]response{other(cancel, stripe.Conflict), shows(stripe.IntentSucceeded)}, "finished", "", 0},
		"Unknown": {[]response{other(cancel, stripe.Unknown), shows(stripe.IntentRequiresAction)}, "cancel_abandoned_begun",
			"cancel the intent: unknown", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, order, _ := p.orderWith(t, hasFailed)
			p.w.Exec(`UPDATE payments SET updated_at = updated_at - interval '25 hours' WHERE order_id = $1`, order)
			begun, err := p.service(nil, nil).Repairs().CancelAbandoned(t.Context(),
				p.seen(stripe.IntentRequiresPaymentMethod))
			require.NoError(t, err)
			require.True(t, begun)
			p.responds(c.responses...)
			key := "cancel_abandoned_intent " + p.script.intent
			p.run(key)
			require.Equal(t, c.point, p.w.RecoveryPoint(key))
			require.True(t, c.point == "finished" || p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND starts_with(last_error, $2)`, key, c.why) == 1)
			require.Equal(t, c.closed, p.w.Count(`SELECT count(*) FROM payments WHERE order_id = $1 AND intent_closed`, order))
		})
	}
}

// An intent of a registered operation makes the keys of its charges due that have not ended.
func TestWebhookOfARegisteredCharge(t *testing.T) {
	t.Parallel()
	p, order, _ := play(t).orderWith(t, isWaiting)
	key := "pays-" + order
	hears := func(err error, charges ...compare.Charge) (due bool, _ error) {
		p.onlyDue("no key")
		for i := range charges {
			charges[i].TenantID, charges[i].Key = p.w.Tenant.ID, key
		}
		p.api.Payments = p.service(nil, tips(charges, err))
		err = p.webhook("payment_intent.succeeded", map[string]any{
			"id": p.script.intent + "-tip", "object": "payment_intent",
			"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order, "payonce_operation": "create_tip"},
		})
		return p.w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = $1 AND next_attempt_at <= clock_timestamp()`,
			key) == 1, err
	}
	for name, c := range map[string]struct {
		charge compare.Charge
		want   bool
	}{
		"ThatHasTheIntent":       {compare.Charge{IntentID: p.script.intent + "-tip"}, true},
		"ThatHasNoIntentYet":     {compare.Charge{}, true},
		"NotThatHasAnother":      {compare.Charge{IntentID: "pi_another"}, false},
		"NotThatHasEnded":        {compare.Charge{IntentID: p.script.intent + "-tip", Status: compare.ChargeSucceeded}, false},
		"NotThatFailedWithoutIt": {compare.Charge{Status: compare.ChargeFailed}, false},
	} {
		due, err := hears(nil, c.charge)
		require.NoError(t, err, name)
		require.Equal(t, c.want, due, name)
	}
	_, err := hears(errors.New("no database"))
	require.ErrorContains(t, err, "read the charges of create_tip: no database")
}

// TestWebhookWhoseChargeCannotBeRead: without an answer it is not known whose the intent is, so nothing is applied.
func TestWebhookWhoseChargeCannotBeRead(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	intent := map[string]any{
		"id": p.script.intent + "-tip", "object": "payment_intent",
		"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": p.api.Order(), "payonce_operation": "create_tip"},
	}
	const statement = "name: PaymentOfIntent "
	proxy.Seen()
	require.NoError(t, p.webhook("payment_intent.created", intent))
	reads := 0
	for _, seen := range proxy.Seen() {
		reads += strings.Count(seen, statement)
	}
	require.NotZero(t, reads)
	fault := proxy.Fail(statement, reads) // the last: that of the transaction
	require.ErrorContains(t, p.webhook("payment_intent.created", intent), pgproxy.FailureText(statement))
	require.True(t, fault.HasFired())
}

// TestAdoptionOfARefundThatDoesNotFitAnyMore: another refund of the payment has begun since what is left of it was read.
func TestAdoptionOfARefundThatDoesNotFitAnyMore(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	p.responds(isPaid...)
	order, payment := paid(p.api)
	p.requirePlayed()
	r := foreign(db.RefundStatusSucceeded, 800)
	r.TenantID, r.OrderID, r.PaymentID, r.IntentID = p.w.Tenant.ID, order, payment, p.script.intent
	p.responds(listing(r))
	goOn := make(chan struct{})
	read := proxy.Hold("name: ReconcileRefunds ", goOn)
	adopted := world.Async(func() bool {
		adopted, err := p.api.Payments.Repairs().AdoptRefund(t.Context(), r)
		require.NoError(t, err)
		return adopted
	})
	read.Await(t)
	p.responds(other(makes, stripe.Unknown))
	require.Equal(t, "202 pending", said(refund(p.api, "meanwhile", payment)))
	close(goOn)
	require.False(t, <-adopted)
	require.Equal(t, "paid; succeeded; api pending 300", p.ledger(order))
}

// TestWebhookOfTwoRegisteredCharges: an operation may have charged an intent twice, in parts.
func TestWebhookOfTwoRegisteredCharges(t *testing.T) {
	t.Parallel()
	p := play(t)
	var charges []compare.Charge
	for range 2 {
		_, order, _ := p.orderWith(t, isWaiting)
		charges = append(charges, compare.Charge{
			OrderRef: compare.OrderRef{TenantID: p.w.Tenant.ID, OrderID: order}, Key: "pays-" + order,
		})
	}
	p.onlyDue("no key")
	p.api.Payments = p.service(nil, tips(charges, nil))
	require.NoError(t, p.webhook("payment_intent.succeeded", map[string]any{
		"id": "pi_tip", "object": "payment_intent", "metadata": map[string]string{
			"tenant_id": p.w.Tenant.ID, "order_id": charges[0].OrderID, "payonce_operation": "create_tip"},
	}))
	require.Equal(t, 2, p.w.Count(`SELECT count(*) FROM idempotency_keys WHERE next_attempt_at <= clock_timestamp()`))
}

// The charges of registered operations are compared with their orders.
func TestOrderRowsHaveRegisteredCharges(t *testing.T) {
	t.Parallel()
	p, order, _ := play(t).orderWith(t, isPaid)
	ref := compare.OrderRef{TenantID: p.w.Tenant.ID, OrderID: order}
	charge := compare.Charge{OrderRef: ref, ID: "tip_1"}
	elsewhere := compare.Charge{OrderRef: compare.OrderRef{TenantID: ref.TenantID, OrderID: "ord_2"}, ID: "tip_2"}
	found, err := p.service(nil, tips([]compare.Charge{charge, elsewhere}, nil)).OrderRows(t.Context(),
		p.api.Pool.Queries, []compare.OrderRef{ref, ref})
	require.NoError(t, err)
	charge.Operation = "create_tip"
	require.Equal(t, []compare.Charge{charge}, found[ref].Charges)
	require.Equal(t, map[string]bool{"create_tip": true}, found[ref].Registered)
	require.NotNil(t, found[ref].Row)
	require.Len(t, found[ref].Payments, 1, "an order that is named twice is read once")
	_, err = p.service(nil, tips(nil, errors.New("no database"))).OrderRows(t.Context(), p.api.Pool.Queries,
		[]compare.OrderRef{ref})
	require.ErrorContains(t, err, "no database")
	none, err := p.service(nil, nil).OrderRows(t.Context(), p.api.Pool.Queries, []compare.OrderRef{ref})
	require.NoError(t, err)
	require.Nil(t, none[ref].Registered)
}

// owes makes a payment of a canceled order whose automatic refund was refused.
func (p *played) owes(t *testing.T) (order, payment string) {
	t.Helper()
	p, order, _ = p.orderWith(t, nil)
	p.cancelOrder(order)
	payment, err := p.service(nil, nil).Repairs().AdoptPayment(t.Context(), p.seen(stripe.IntentSucceeded))
	require.NoError(t, err)
	p.responds(listing(), other(makes, stripe.Refused), listing())
	p.run("refund_order " + order)
	require.Equal(t, "canceled; succeeded; automatic failed 1000", p.ledger(order))
	return order, payment
}

// What is owed is tried again, but for a payment whose refund is under way; that one holds up none of the others.
func TestRetryOfWhatIsOwed(t *testing.T) {
	t.Parallel()
	p := play(t)
	firstOrder, first := p.owes(t)
	secondOrder, second := p.owes(t)
	q, _, unowed := p.orderWith(t, isPaid)
	repairs := q.service(&bank{refuses: errors.New("disputed")}, nil).Repairs()
	now := func(payment string) error {
		return q.api.Pool.InTx(t.Context(), func(tx *db.Queries) error {
			_, err := repairs.RetryOwedNow(t.Context(), tx, q.w.Tenant.ID, payment)
			return err
		})
	}
	require.ErrorContains(t, now(first), "disputed")
	require.ErrorContains(t, now(unowed), "no refund of the payment is owed")
	require.ErrorIs(t, now(ids.New(ids.Payment)), payments.ErrNotFound)

	q.w.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
	q.w.Exec(`UPDATE payments SET amount_refunding_minor = 1000 WHERE id = $1`, first)
	n, err := repairs.RetryOwed(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "by itself it is tried whatever disputes say")
	require.Equal(t, "canceled; succeeded; automatic failed 1000", q.ledger(firstOrder))
	require.Equal(t, "canceled; succeeded; automatic pending 1000, automatic failed 1000", q.ledger(secondOrder))
	require.InDelta(t, 60, q.w.Count(`SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::integer
		FROM refunds_owed WHERE payment_id = $1`, first), 20, "it is postponed")
	q.w.Exec(`UPDATE payments SET amount_refunding_minor = 0 WHERE id = $1`, first)

	repairs = q.service(&bank{}, nil).Repairs()
	require.ErrorContains(t, now(second), "is under way already")
	require.NoError(t, now(first))
}

// A refund is of what is left: neither refunded, nor about to be, nor decided by a bank.
func TestRefundIsOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	p, order, payment := play(t).orderWith(t, isPaid)
	ask := func(key, body string, responses ...response) string {
		t.Helper()
		p.responds(responses...)
		a := p.api.Post("/v1/payments/"+payment+"/refunds", key, body)
		p.requirePlayed()
		return said(a)
	}
	made := func(minor int64) response {
		return refunds(db.RefundStatusSucceeded, func(r *response) {
			r.out.Refund.AmountMinor, r.out.Refund.ID = minor, ids.New("re_")
		})
	}
	require.Equal(t, "201 succeeded", ask("k1", `{"amount":300}`, made(300)))
	require.Equal(t, "refund-exceeds-payment", ask("k2", `{"amount":701}`))
	require.Equal(t, "201 succeeded", ask("k3", `{"amount":100}`, made(100)))
	require.Equal(t, "201 succeeded", ask("k4", `{}`, made(600)))
	require.Equal(t, "payment-not-refundable", ask("k5", `{}`))
	require.Equal(t, "refund-exceeds-payment", ask("k6", `{"amount":1}`))
	require.Equal(t, "refunded; succeeded; api succeeded 100, api succeeded 300, api succeeded 600", p.ledger(order))
	_, _, waits := p.orderWith(t, isWaiting)
	require.Equal(t, "payment-not-refundable", said(p.api.Post("/v1/payments/"+waits+"/refunds", "k7", `{}`)))
	require.Equal(t, "not-found", said(p.api.Post("/v1/payments/"+ids.New(ids.Payment)+"/refunds", "k8", `{}`)))

	p, _, payment = p.orderWith(t, isPaid)
	_, answer, err := p.service(&bank{refuses: payments.ErrPaymentDisputed}, nil).Operations()[payments.CreateRefund].Begin(
		t.Context(), idempotency.Request{
			TenantID: p.w.Tenant.ID, Key: "k9", Operation: payments.CreateRefund, Fingerprint: make([]byte, 32),
			Body: idempotency.Encode(payments.RefundRequest{PaymentID: payment}),
		})
	require.NoError(t, err)
	require.Contains(t, string(answer.Body), "payment-disputed")
	require.Equal(t, "finished", p.w.RecoveryPoint("k9"))
	// part: operator {
	for _, c := range []struct {
		bank *bank
		ask  int64
		want error
	}{
		{&bank{refuses: payments.ErrPaymentDisputed}, 300, payments.ErrPaymentDisputed},
		{&bank{}, 1001, payments.ErrRefundExceedsPayment}, {nil, 1001, payments.ErrRefundExceedsPayment}, {nil, 300, nil},
	} {
		require.ErrorIs(t, p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := p.service(c.bank, nil).Repairs().RefundFor(t.Context(), q, p.w.Tenant.ID, payment, "action", &c.ask)
			return err
		}), c.want)
	}
	// part: operator }
}
