package payments_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// The rules that need neither a database nor Stripe, one table each.

func ptr[T any](v T) *T { return &v }

func TestIsFor(t *testing.T) {
	t.Parallel()
	p := db.Payment{AmountMinor: 1000, Currency: "usd"}
	require.True(t, payments.Rules.IsFor(p, stripe.Intent{AmountMinor: 1000, Currency: "usd"}))
	require.False(t, payments.Rules.IsFor(p, stripe.Intent{AmountMinor: 999, Currency: "usd"}))
	require.False(t, payments.Rules.IsFor(p, stripe.Intent{AmountMinor: 1000, Currency: "eur"}))
}

func TestPays(t *testing.T) {
	t.Parallel()
	part := stripe.Intent{AmountMinor: 1000, ReceivedMinor: 400, Currency: "usd"}
	all := stripe.Intent{AmountMinor: 1000, ReceivedMinor: 1000, Currency: "usd"}
	atOnce := db.Payment{AmountMinor: 1000, Currency: "usd"}
	later := db.Payment{AmountMinor: 1000, Currency: "usd", ManualCapture: true}
	require.True(t, payments.Rules.Pays(atOnce, all))
	require.False(t, payments.Rules.Pays(atOnce, part))
	require.True(t, payments.Rules.Pays(later, all))
	require.True(t, payments.Rules.Pays(later, part))
	require.False(t, payments.Rules.Pays(later, stripe.Intent{AmountMinor: 900, ReceivedMinor: 900, Currency: "usd"}))
}

// An intent that got further is the better one to continue with.
func TestProgressRanksIntents(t *testing.T) {
	t.Parallel()
	failure := &stripe.Failure{}
	ranked := []stripe.Intent{
		{Status: stripe.IntentRequiresConfirmation},
		{Status: stripe.IntentRequiresConfirmation, LastFailure: failure},
		{Status: stripe.IntentRequiresAction},
		{Status: stripe.IntentProcessing},
		{Status: stripe.IntentSucceeded},
	}
	for rank, i := range ranked {
		require.Equal(t, rank, payments.Rules.Progress(i), i.Status)
	}
	require.Equal(t, 0, payments.Rules.Progress(stripe.Intent{Status: stripe.IntentRequiresPaymentMethod}))
	require.Equal(t, 1, payments.Rules.Progress(stripe.Intent{Status: stripe.IntentRequiresPaymentMethod, LastFailure: failure}))
	require.Equal(t, 0, payments.Rules.Progress(stripe.Intent{Status: stripe.IntentCanceled, LastFailure: failure}))
	require.Equal(t, 0, payments.Rules.Progress(stripe.Intent{Status: "new"}))
}

func TestClosedOrder(t *testing.T) {
	t.Parallel()
	for status, want := range map[db.OrderStatus]error{
		db.OrderStatusOpen: nil, db.OrderStatusCanceled: payments.ErrOrderNotPayable, db.OrderStatusPaid: payments.ErrOrderAlreadyPaid,
		db.OrderStatusPartiallyRefunded: payments.ErrOrderAlreadyPaid, db.OrderStatusRefunded: payments.ErrOrderAlreadyPaid,
	} {
		require.Equal(t, want, payments.Rules.ClosedOrder(status), status)
	}
	require.Panics(t, func() { _ = payments.Rules.ClosedOrder("new") })
}

// A new payment confirms the intent of the payment before it, unless that is closed or retired.
func TestNewRunNumbersItsIntent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target  db.OrderToPayRow
		number  int32
		intent  string
		point   string
		retired int32
	}{
		"First":         {db.OrderToPayRow{}, 1, "", payments.PaymentRecorded, 0},
		"SameAgain":     {db.OrderToPayRow{IntentID: "pi_1", IntentNumber: 1}, 1, "pi_1", payments.IntentRecorded, 0},
		"Closed":        {db.OrderToPayRow{IntentID: "pi_1", IntentNumber: 1, IntentClosed: true}, 2, "", payments.PaymentRecorded, 0},
		"NeverMade":     {db.OrderToPayRow{IntentNumber: 3}, 4, "", payments.PaymentRecorded, 0},
		"Retired":       {db.OrderToPayRow{IntentID: "pi_2", IntentNumber: 2}, 3, "", payments.PaymentRecorded, 2},
		"NotYetRetired": {db.OrderToPayRow{IntentID: "pi_2", IntentNumber: 2}, 2, "pi_2", payments.IntentRecorded, 1},
	} {
		c.target.Order.IntentsRetired = c.retired
		r := payments.NewRun("ten_1", "k", payments.PayRequest{PaymentMethod: "pm_card_visa"}, c.target, nil)
		require.Equal(t, c.number, r.Payment.IntentNumber, name)
		require.Equal(t, c.intent != "", r.Payment.IntentID != nil, name)
		require.Equal(t, c.point, payments.Rules.FirstPoint(r), name)
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	for status, want := range map[db.PaymentStatus]bool{
		db.PaymentStatusProcessing: false, db.PaymentStatusRequiresAction: false, db.PaymentStatusSucceeded: true,
		db.PaymentStatusFailed: true, db.PaymentStatusCanceled: true,
	} {
		require.Equal(t, want, (&payments.Run{Payment: db.Payment{Status: status}}).Ended(), status)
	}
}

// A payment's row keeps the charge that the settlement names, or else that of the response, and why it failed.
func TestRowAfterASettlement(t *testing.T) {
	t.Parallel()
	r := &payments.Run{Payment: db.Payment{Version: 4, NextAction: []byte("{}")}}
	named := r.After(payments.Settlement{
		Status: db.PaymentStatusSucceeded, ChargeID: "ch_1", Outcome: stripe.Outcome{Intent: stripe.Intent{ChargeID: "ch_2"}},
		Failure: stripe.Failure{Code: "not_failed"},
	})
	require.Equal(t, "ch_1", *named.ChargeID)
	require.Equal(t, int64(5), int64(named.Version))
	require.Nil(t, named.NextAction)
	require.Nil(t, named.FailureCode)
	failed := r.After(payments.Settlement{
		Status: db.PaymentStatusFailed, ClosesIntent: true, Failure: stripe.Failure{Code: "x", DeclineCode: "y", Message: "z"},
		Outcome: stripe.Outcome{Intent: stripe.Intent{ChargeID: "ch_2"}},
	})
	require.Equal(t, []string{"ch_2", "x", "y", "z"},
		[]string{*failed.ChargeID, *failed.FailureCode, *failed.FailureDeclineCode, *failed.FailureMessage})
	require.True(t, failed.IntentClosed)
	require.Nil(t, r.After(payments.Settlement{Status: db.PaymentStatusFailed}).ChargeID)
}

// Only a refusal says why; another outcome is the provider's error.
func TestFailureOfAnExhaustedConfirm(t *testing.T) {
	t.Parallel()
	r := &payments.Run{}
	code := func(outcome db.StripeOutcome, code *string) string {
		return payments.Rules.Failed(r, db.StripeCallGetRow{Outcome: outcome, ErrorCode: code}).Failure.Code
	}
	require.Equal(t, "amount_too_small", code(db.StripeOutcomeRefused, ptr("amount_too_small")))
	require.Equal(t, "provider_error", code(db.StripeOutcomeRefused, nil))
	require.Equal(t, "provider_error", code(db.StripeOutcomeUnknown, ptr("api_error")))
}

func TestErrorOfAPayment(t *testing.T) {
	t.Parallel()
	require.Equal(t, "the issuer declined the payment", (&payments.PaymentError{Declined: true}).Error())
	require.Equal(t, "the payment failed", (&payments.PaymentError{}).Error())
	pool, err := postgres.Open(t.Context(), "postgres://nobody@127.0.0.1:9/nowhere", postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	require.NotPanics(t, func() {
		payments.Rules.LogOf(payments.New(pool, nil, nil, nil, payments.Options{})).Info("a service without a log")
	})
}

// A payment shows why it failed, even if Stripe gave no message.
func TestShownFailure(t *testing.T) {
	t.Parallel()
	require.Nil(t, payments.PaymentOf(db.Payment{}).Failure)
	require.Equal(t, payments.PaymentFailure{Code: "x"}, *payments.PaymentOf(db.Payment{FailureCode: ptr("x")}).Failure)
	require.Equal(t, "m", payments.PaymentOf(db.Payment{FailureCode: ptr("x"), FailureMessage: ptr("m")}).Failure.Message)
	require.Panics(t, func() { payments.Rules.OrderOf(db.Order{Items: []byte("no JSON"), Metadata: []byte("{}")}) })
}

// Refunds.

func TestRefundStepOfACurrency(t *testing.T) {
	t.Parallel()
	p := db.Payment{
		Status: db.PaymentStatusSucceeded, AmountMinor: 1001, AmountRefundingMinor: 300, Currency: "isk",
	}
	require.NoError(t, payments.Rules.CheckRefundStep(p, nil))
	require.NoError(t, payments.Rules.CheckRefundStep(p, ptr(int64(200))))
	require.NoError(t, payments.Rules.CheckRefundStep(p, ptr(int64(701))), "all that is left can be refunded")
	var invalid *payments.InvalidError
	require.ErrorAs(t, payments.Rules.CheckRefundStep(p, ptr(int64(301))), &invalid)
	require.Equal(t, "/amount", invalid.Pointer)
}

func TestSameRefund(t *testing.T) {
	t.Parallel()
	known := db.Refund{PaymentID: "pay_1", AmountMinor: 300}
	require.NoError(t, payments.Rules.SameRefund(known, payments.RefundRequest{PaymentID: "pay_1"}))
	require.NoError(t, payments.Rules.SameRefund(known, payments.RefundRequest{PaymentID: "pay_1", Amount: ptr(int64(300))}))
	require.ErrorIs(t, payments.Rules.SameRefund(known, payments.RefundRequest{PaymentID: "pay_1", Amount: ptr(int64(301))}), payments.ErrKeyOfAnotherRefund)
	require.ErrorIs(t, payments.Rules.SameRefund(known, payments.RefundRequest{PaymentID: "pay_2"}), payments.ErrKeyOfAnotherRefund)
}

// What others have refunded, or are refunding, is not left for ours.
func TestRefundFits(t *testing.T) {
	t.Parallel()
	other := func(status db.RefundStatus, minor int64) stripe.Refund {
		return stripe.Refund{Status: status, AmountMinor: minor}
	}
	for name, c := range map[string]struct {
		listed []stripe.Refund
		want   bool
	}{
		"Alone":             {nil, true},
		"BesideFailedOnes":  {[]stripe.Refund{other(db.RefundStatusFailed, 900), other(db.RefundStatusCanceled, 900)}, true},
		"BesideASuccess":    {[]stripe.Refund{other(db.RefundStatusSucceeded, 700)}, true},
		"NotBesideASuccess": {[]stripe.Refund{other(db.RefundStatusSucceeded, 701)}, false},
		"NotBesideAPending": {[]stripe.Refund{other(db.RefundStatusPending, 701)}, false},
		"NotBesideBoth":     {[]stripe.Refund{other(db.RefundStatusPending, 400), other(db.RefundStatusSucceeded, 400)}, false},
	} {
		require.Equal(t, c.want, payments.Rules.RefundFits(1000, 300, c.listed), name)
	}
}

// The reason is a parameter of the call: with another one Stripe's key would not be the same call.
func TestCallOfARefundHasItsReason(t *testing.T) {
	t.Parallel()
	with := func(reason *string) []byte { return payments.Rules.RefundCall(db.Refund{Reason: reason}).Params }
	require.NotEqual(t, with(nil), with(ptr("fraudulent")))
	require.Equal(t, with(nil), with(ptr("")))
}

// The poll of a pending refund is between 30 s and 15 min, and a twentieth of its age.
func TestPollOfAPendingRefund(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		0: payments.Rules.RefundPoll, 10 * time.Minute: payments.Rules.RefundPoll, 100 * time.Minute: 5 * time.Minute, 100 * time.Hour: payments.Rules.RefundPollMax,
	} {
		require.Equal(t, want, payments.Rules.NextPoll(&idempotency.Claim{Age: age}), age)
	}
}

// The first automatic refund of an order has a key without a number here, and one with a number at Stripe.
func TestKeysOfAutomaticRefunds(t *testing.T) {
	t.Parallel()
	require.Equal(t, "refund_order ord_1", payments.Rules.AutomaticKey("ord_1", 1))
	require.Equal(t, "refund_order ord_1:2", payments.Rules.AutomaticKey("ord_1", 2))
	require.Equal(t, []string{"ten_1:ord_1:refund", "ten_1:ord_1:refund:1", "ten_1:ord_1:refund:2"},
		payments.AutomaticStripeKeys("ten_1", "ord_1")[:3])
	require.Equal(t, db.RefundOriginAutomatic, payments.Rules.OriginOf(stripe.Refund{
		TenantID: "ten_1", OrderID: "ord_1", RefundID: payments.Rules.AutomaticRefundID("ten_1", "ord_1", payments.Rules.AutomaticRefundsMax),
	}))
	require.Equal(t, db.RefundOriginApi, payments.Rules.OriginOf(stripe.Refund{
		TenantID: "ten_1", OrderID: "ord_1", RefundID: payments.Rules.AutomaticRefundID("ten_1", "ord_2", 1),
	}))
}

// Those that have a row come first, and then the older ones.
func TestKnownRefundsComeFirst(t *testing.T) {
	t.Parallel()
	at := func(id string, minute int) stripe.Refund {
		return stripe.Refund{ID: id, CreatedAt: time.Unix(int64(minute)*60, 0)}
	}
	order := &compare.Order{Refunds: []compare.RefundRow{{Refund: db.Refund{StripeRefundID: ptr("re_known")}}}}
	list := []stripe.Refund{at("re_young", 3), at("re_old", 1), at("re_known", 9)}
	var sorted []string
	for _, r := range payments.Rules.KnownFirst(list, order) {
		sorted = append(sorted, r.ID)
	}
	require.Equal(t, []string{"re_known", "re_old", "re_young"}, sorted)
	require.Equal(t, "re_young", list[0].ID, "the list itself stays as it is")
}

// The search for an intent that was lost.

func TestIntentThatPaysAnOrder(t *testing.T) {
	t.Parallel()
	run := &payments.Run{Payment: db.Payment{TenantID: "ten_1", OrderID: "ord_1", AmountMinor: 1000, Currency: "usd"}}
	may := func(change func(*stripe.Intent)) bool {
		i := stripe.Intent{ID: "pi_1", TenantID: "ten_1", OrderID: "ord_1", AmountMinor: 1000, Currency: "usd"}
		change(&i)
		return payments.Rules.PaysOrder(run, []string{"pi_known"}, i)
	}
	require.True(t, may(func(*stripe.Intent) {}))
	for name, change := range map[string]func(*stripe.Intent){
		"of another tenant":     func(i *stripe.Intent) { i.TenantID = "ten_2" },
		"of another order":      func(i *stripe.Intent) { i.OrderID = "ord_2" },
		"of another amount":     func(i *stripe.Intent) { i.AmountMinor = 999 },
		"of an operation":       func(i *stripe.Intent) { i.Operation = "create_tip" },
		"canceled":              func(i *stripe.Intent) { i.Status = stripe.IntentCanceled },
		"that the order knows":  func(i *stripe.Intent) { i.ID = "pi_known" },
		"of another's currency": func(i *stripe.Intent) { i.Currency = "eur" },
	} {
		require.False(t, may(change), name)
	}
}

// The search begins with the order, but no longer before the first attempt than Stripe remembers a key twice.
func TestBeginOfASearch(t *testing.T) {
	t.Parallel()
	sent := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]time.Duration{
		time.Minute: 3 * time.Minute, 47 * time.Hour: 47*time.Hour + 2*time.Minute, 49 * time.Hour: 48*time.Hour + 2*time.Minute,
	} {
		from := payments.Rules.SearchFrom(&payments.Run{Order: db.Order{CreatedAt: sent.Add(-age)}}, db.StripeCallGetRow{FirstSentAt: sent})
		require.Equal(t, want, sent.Sub(from), age)
	}
	last := db.StripeCallGetRow{FirstSentAt: sent}
	require.Equal(t, 25*time.Hour+2*time.Minute, payments.Rules.SearchProves(last).Sub(sent))
	last.ErrorCached = true
	require.True(t, payments.Rules.SearchProves(last).IsZero())
}

// Adoption.

// An adopted payment gets the id that a refund of it names, if it can have had that.
func TestAdoptionKeepsTheIDThatARefundNames(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := stripe.Intent{TenantID: "ten_1", OrderID: "ord_1", CreatedAt: now}
	once := ids.New(ids.Payment)
	names := func(change func(*stripe.Refund)) []stripe.Refund {
		r := stripe.Refund{TenantID: "ten_1", OrderID: "ord_1", PaymentID: once, CreatedAt: now}
		change(&r)
		return []stripe.Refund{{}, r}
	}
	adopted, _ := payments.Rules.AdoptedID(i, names(func(*stripe.Refund) {}))
	require.Equal(t, once, adopted)
	old := ids.Payment + ids.Floor(now.Add(-payments.AbandonedAfter-payments.Rules.ClocksApart-time.Minute))
	for name, change := range map[string]func(*stripe.Refund){
		"OfAnotherTenant": func(r *stripe.Refund) { r.TenantID = "ten_2" },
		"OfAnotherOrder":  func(r *stripe.Refund) { r.OrderID = "ord_2" },
		"OfNoPayment":     func(r *stripe.Refund) { r.PaymentID = once + "x" }, // between two that would do
		"TooOld":          func(r *stripe.Refund) { r.PaymentID = old },
		"YoungerThanTheRefund": func(r *stripe.Refund) {
			r.PaymentID = ids.At(ids.Payment, now.Add(payments.Rules.ClocksApart+time.Minute))
		},
	} {
		refunds := names(change)
		id, kept := payments.Rules.AdoptedID(i, refunds)
		require.NotEqual(t, refunds[1].PaymentID, id, name)
		require.True(t, ids.Is(ids.Payment, id), name)
		require.Equal(t, now.UTC().Truncate(time.Millisecond), ids.Time(id), "it sorts among payments of its time")
		require.Equal(t, refunds, kept, name)
	}
}

// The numbers of cancels are in their keys.
func TestCancelsOfAnOrder(t *testing.T) {
	t.Parallel()
	same, another := payments.Rules.CancelCall(db.Payment{IntentID: ptr("pi_1")}, 1).Params, calls.New(stripe.OpCancel, "", "", "pi_2").Params
	require.Equal(t, []compare.Cancel{{IntentNumber: 2, SameIntent: true}, {IntentNumber: 12}}, payments.Rules.CancelsOf(
		[]db.CancelCallsOfOrderRow{
			{StripeKey: "ten_1:ord_1:cancel:2:3", ParamsSha256: same}, {StripeKey: "ten_1:ord_1:cancel:12", ParamsSha256: another},
			{StripeKey: "ten_1:ord_1:cancel:x", ParamsSha256: same},
		}, "pi_1"))
}

func TestKeyOfACancel(t *testing.T) {
	t.Parallel()
	p := db.Payment{TenantID: "ten_1", OrderID: "ord_1", IntentNumber: 2, IntentID: ptr("pi_1")}
	require.Equal(t, "ten_1:ord_1:cancel:2", payments.Rules.CancelCall(p, 1).Key)
	require.Equal(t, "ten_1:ord_1:cancel:2:2", payments.Rules.CancelCall(p, 2).Key)
}

// Webhooks.

// While Stripe is away an event waits. Any other error is the event's.
func TestEventWaitsWhileStripeIsAway(t *testing.T) {
	t.Parallel()
	for _, away := range []error{stripe.ErrAway, stripe.ErrThrottled, stripe.ErrUnavailable} {
		err := payments.AwayWithStripe(fmt.Errorf("read it: %w", away))
		require.ErrorIs(t, err, inbox.ErrAway)
		require.ErrorIs(t, err, away)
	}
	require.NotErrorIs(t, payments.AwayWithStripe(errors.New("another")), inbox.ErrAway)
	require.NoError(t, payments.AwayWithStripe(nil))
}

func TestEventsThatEndAnIntent(t *testing.T) {
	t.Parallel()
	require.True(t, payments.Rules.EndsIntent("payment_intent.succeeded"))
	require.True(t, payments.Rules.EndsIntent("payment_intent.canceled"))
	require.False(t, payments.Rules.EndsIntent("payment_intent.created"))
}
