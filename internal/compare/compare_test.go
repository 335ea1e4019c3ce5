package compare_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
)

// The order of every row: 1000 usd, open, and nothing was paid. What a row changes is
// what it is about.
const (
	tenant    = "ten_1"
	orderID   = "ord_1"
	paymentID = "pay_1"
	thisOne   = "pi_this"
	another   = "pi_another"
)

// change is what a row is about.
type change func(o *compare.Order)

func orderWith(changes ...change) *compare.Order {
	o := &compare.Order{Row: &db.Order{
		TenantID: tenant, ID: orderID, Status: db.OrderStatusOpen, AmountMinor: 1000, Currency: "usd",
	}}
	for _, c := range changes {
		c(o)
	}
	return o
}

func missing(o *compare.Order)  { o.Row = nil }
func canceled(o *compare.Order) { o.Row.Status = db.OrderStatusCanceled }
func paidUp(o *compare.Order)   { o.Row.Status = db.OrderStatusPaid }
func reserved(o *compare.Order) { o.Reserved = true }
func held(o *compare.Order)     { o.HolderKey, o.HolderInProgress = "holder", true }
func hanging(o *compare.Order)  { o.HolderKey = "holder" }
func beingCanceled(o *compare.Order) {
	key := "cancel"
	o.Row.CancelingKey = &key
}

// payment adds a payment of the order; no intent is one that is not known yet.
func payment(number int32, status db.PaymentStatus, intent string, more ...func(*compare.Payment)) change {
	return func(o *compare.Order) {
		p := compare.Payment{Payment: db.Payment{
			TenantID: tenant, ID: paymentID, OrderID: orderID, Status: status, IdempotencyKey: "key",
			AmountMinor: 1000, Currency: "usd", IntentNumber: number,
		}}
		if intent != "" {
			p.IntentID = &intent
		}
		for _, f := range more {
			f(&p)
		}
		o.Payments = append(o.Payments, p)
	}
}

// authorized is a payment of 1000 whose money is reserved.
func authorized(more ...func(*compare.Payment)) change {
	return func(o *compare.Order) {
		o.Row.Status = db.OrderStatusAuthorized
		payment(1, db.PaymentStatusAuthorized, thisOne, append(more, manual)...)(o)
	}
}

func manual(p *compare.Payment) { p.ManualCapture = true }

func capturing(p *compare.Payment) { p.CapturingKey = new("capture") }

func captured(minor int64) func(*compare.Payment) {
	return func(p *compare.Payment) { p.ManualCapture, p.CapturedMinor = true, &minor }
}

// partly is an intent of which so much was captured.
func partly(minor int64) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.ManualCapture, i.ReceivedMinor = true, minor }
}

func listed(minor int64) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.RefundedMinor, i.RefundedAtMost = minor, true }
}

func closedIntent(p *compare.Payment) { p.IntentClosed = true }

func inProgress(p *compare.Payment) { p.InProgress = true }

func idle(d time.Duration) func(*compare.Payment) { return func(p *compare.Payment) { p.Idle = d } }

func retired(intents int32) change { return func(o *compare.Order) { o.Row.IntentsRetired = intents } }

func refunding(minor int64) func(*compare.Payment) {
	return func(p *compare.Payment) { p.AmountRefundingMinor = minor }
}

// intentWith is an intent that was paid with 1000 usd.
func intentWith(changes ...func(*stripe.Intent)) stripe.Intent {
	i := stripe.Intent{
		ID: thisOne, Status: stripe.IntentSucceeded, AmountMinor: 1000, ReceivedMinor: 1000, Currency: "usd",
		TenantID: tenant, OrderID: orderID,
	}
	for _, c := range changes {
		c(&i)
	}
	return i
}

func status(s stripe.IntentStatus) func(*stripe.Intent) {
	return func(i *stripe.Intent) {
		i.Status = s
		i.ReceivedMinor = 0
	}
}

func charge(id string) func(*stripe.Intent) { return func(i *stripe.Intent) { i.ChargeID = id } }

func charged(id string) func(*compare.Payment) { return func(p *compare.Payment) { p.ChargeID = &id } }

func amount(minor int64) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.AmountMinor = minor }
}

func received(minor int64) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.ReceivedMinor = minor }
}

func refunded(minor int64) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.RefundedMinor = minor }
}

// lost is what disputes took.
func lost(minor int64) func(*stripe.Intent) { return func(i *stripe.Intent) { i.LostMinor = minor } }

func currency(c string) func(*stripe.Intent) { return func(i *stripe.Intent) { i.Currency = c } }

func madeBy(operation string) func(*stripe.Intent) {
	return func(i *stripe.Intent) { i.Operation = operation }
}

const (
	processing     = db.PaymentStatusProcessing
	requiresAction = db.PaymentStatusRequiresAction
	succeeded      = db.PaymentStatusSucceeded
	failed         = db.PaymentStatusFailed

	unmatchedAtStripe = db.DiscrepancyKindUnmatchedAtStripe
	missingAtStripe   = db.DiscrepancyKindMissingAtStripe
	amountMismatch    = db.DiscrepancyKindAmountMismatch
	statusMismatch    = db.DiscrepancyKindStatusMismatch
)

// want is what a row expects. The kind, drift and detail are those of the discrepancy,
// and are empty for results that have none.
type want struct {
	result  compare.Result
	kind    db.DiscrepancyKind
	drift   int64
	detail  string
	key     string
	payment string
}

func requireDifference(t *testing.T, w want, d compare.Difference) {
	t.Helper()
	require.Equal(t, w.result.String(), d.Result.String(), "%+v", d)
	require.Equal(t, w.key, d.Key)
	if w.kind == "" {
		return
	}
	require.Equal(t, w.kind, d.Discrepancy.Kind)
	require.Equal(t, w.drift, d.Discrepancy.DriftMinor)
	require.Equal(t, w.detail, d.Discrepancy.Detail)
	require.Equal(t, w.payment, d.Discrepancy.PaymentID)
}

// TestIntent has a row for each rule of Intent, for each condition of the rule.
func TestIntent(t *testing.T) {
	t.Parallel()
	agrees := want{result: compare.Agrees}
	holderHangs := want{result: compare.Differs, kind: unmatchedAtStripe, drift: 1000, key: "holder",
		detail: "paid at Stripe, and the checkout or cancel that reserves the order is parked or hangs"}
	adoptable := want{result: compare.Adoptable, kind: unmatchedAtStripe, drift: 1000,
		detail: "paid at Stripe, and no payment here"}
	for _, c := range []struct {
		name   string
		intent stripe.Intent
		order  *compare.Order
		want   want
	}{
		// A payment that succeeded here.
		{"PaidHereAndThere", intentWith(), orderWith(paidUp, payment(1, succeeded, thisOne)), agrees},
		{"PaidWithTheSameCharge", intentWith(charge("ch_1")),
			orderWith(paidUp, payment(1, succeeded, thisOne, charged("ch_1"))), agrees},
		{"PaidWithAnotherCharge", intentWith(charge("ch_2")),
			orderWith(paidUp, payment(1, succeeded, thisOne, charged("ch_1"))), want{
				result: compare.Differs, kind: statusMismatch, drift: 0, payment: paymentID,
				detail: "charge ch_1 here, ch_2 at Stripe",
			}},
		{"PaidAndStripeNamesNoCharge", intentWith(),
			orderWith(paidUp, payment(1, succeeded, thisOne, charged("ch_1"))), agrees},
		{"PaidAndItsChargeWasNotRecorded", intentWith(charge("ch_2")),
			orderWith(paidUp, payment(1, succeeded, thisOne)), agrees},
		{"PaidHereAndCanceledThere", intentWith(status(stripe.IntentCanceled)),
			orderWith(paidUp, payment(1, succeeded, thisOne)), want{
				result: compare.Differs, kind: missingAtStripe, drift: -1000, payment: paymentID,
				detail: "succeeded here, and is canceled at Stripe",
			}},
		{"PaidHereAndUnknownThere", stripe.Intent{ID: thisOne, TenantID: tenant, OrderID: orderID},
			orderWith(missing, payment(1, succeeded, thisOne)), want{
				result: compare.Differs, kind: missingAtStripe, drift: -1000, payment: paymentID,
				detail: "succeeded here, and does not exist at Stripe",
			}},
		{"LessWasReceived", intentWith(received(700)), orderWith(paidUp, payment(1, succeeded, thisOne)), want{
			result: compare.Differs, kind: amountMismatch, drift: -300, payment: paymentID,
			detail: "1000 usd here, 700 usd at Stripe",
		}},
		{"AnotherCurrencyWasReceived", intentWith(currency("eur")),
			orderWith(paidUp, payment(1, succeeded, thisOne)), want{
				result: compare.Differs, kind: amountMismatch, drift: 0, payment: paymentID,
				detail: "1000 usd here, 1000 eur at Stripe",
			}},
		{"AnotherIntentOfAPaidOrderWasCanceled", intentWith(status(stripe.IntentCanceled)),
			orderWith(paidUp, payment(1, succeeded, another)), agrees},
		{"AnotherIntentOfAPaidOrderWasRefunded", intentWith(received(700), refunded(700)),
			orderWith(paidUp, payment(1, succeeded, another)), agrees},

		// No payment that succeeded, and no money.
		{"NothingWasPaid", intentWith(status(stripe.IntentCanceled)), orderWith(), agrees},
		{"NothingWasPaidYet", intentWith(status(stripe.IntentProcessing)),
			orderWith(payment(1, processing, thisOne, inProgress)), agrees},

		// Money that belongs to no payment here: first the payment that may be about to find it.
		{"ItsPaymentIsInProgress", intentWith(), orderWith(payment(1, processing, thisOne, inProgress)), want{
			result: compare.InProgress, key: "key",
		}},
		{"ItsPaymentWaitsForTheCustomer", intentWith(), orderWith(payment(1, requiresAction, thisOne, inProgress)),
			want{
				result: compare.InProgress, key: "key",
			}},
		{"APaymentWithoutIntentIsInProgress", intentWith(), orderWith(payment(1, processing, "", inProgress)), want{
			result: compare.InProgress, key: "key",
		}},
		{"ItsPaymentIsInProgressAndAllWasRefunded", intentWith(refunded(1000)),
			orderWith(payment(1, processing, thisOne, inProgress)), want{result: compare.InProgress, key: "key"}},
		{"ItsPaymentIsInProgressAndADisputeTookAll", intentWith(lost(1000)),
			orderWith(payment(1, processing, thisOne, inProgress)), want{result: compare.InProgress, key: "key"}},
		{"ItsPaymentIsForAnotherAmount", intentWith(amount(900), received(900)),
			orderWith(payment(1, processing, thisOne, inProgress)), want{
				result: compare.Differs, kind: amountMismatch, drift: 900, payment: paymentID,
				detail: "the payment is for 1000 usd, and 900 usd was paid",
			}},
		{"ItsPaymentIsInAnotherCurrency", intentWith(currency("eur")),
			orderWith(payment(1, processing, thisOne, inProgress)), want{
				result: compare.Differs, kind: amountMismatch, drift: 1000, payment: paymentID,
				detail: "the payment is for 1000 usd, and 1000 eur was paid",
			}},
		{"ItsPaymentIsForAnotherAmountAndAllWasRefunded", intentWith(amount(900), received(900), refunded(900)),
			orderWith(payment(1, processing, thisOne, inProgress)), want{result: compare.InProgress, key: "key"}},
		{"ItsPaymentIsParked", intentWith(), orderWith(payment(1, requiresAction, thisOne)), want{
			result: compare.Differs, key: "key", kind: unmatchedAtStripe, drift: 1000, payment: paymentID,
			detail: "paid at Stripe, requires_action here, and the payment's key is parked",
		}},
		{"APaymentWithoutIntentIsParked", intentWith(), orderWith(payment(1, processing, "")), want{
			result: compare.Differs, key: "key", kind: unmatchedAtStripe, drift: 1000, payment: paymentID,
			detail: "paid at Stripe, processing here, and the payment's key is parked",
		}},

		// Then what needs nothing, or can only be decided later.
		{"AllWasRefunded", intentWith(refunded(1000)), orderWith(missing), agrees},
		{"TheOrderDoesNotExist", intentWith(refunded(300)), orderWith(missing), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 700,
			detail: "paid at Stripe, and the order does not exist here",
		}},
		{"ADisputeTookAll", intentWith(refunded(300), lost(700)), orderWith(missing), agrees},
		{"ADisputeTookAPart", intentWith(lost(300)), orderWith(missing), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 700,
			detail: "paid at Stripe, and the order does not exist here; 300 usd were lost in disputes",
		}},
		{"TheOrderIsReserved", intentWith(), orderWith(reserved, held), want{result: compare.InProgress}},
		{"TheOrderIsBeingCanceled", intentWith(), orderWith(beingCanceled, held), want{result: compare.InProgress}},
		{"TheOrderIsReservedByWhatHangs", intentWith(), orderWith(reserved, hanging), holderHangs},
		{"TheOrderIsBeingCanceledByWhatHangs", intentWith(), orderWith(beingCanceled, hanging), holderHangs},
		{"TheOrderIsReservedByNothing", intentWith(), orderWith(reserved), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 1000, detail: holderHangs.detail,
		}},
		{"TheOrderWasCanceled", intentWith(), orderWith(canceled, beingCanceled), adoptable},

		// Then what an operator must decide.
		{"AnotherPaymentIsInProgress", intentWith(), orderWith(payment(2, processing, another, inProgress)), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
			detail: "paid at Stripe while another payment of the order is in progress: " + paymentID,
		}},
		{"AnotherPaymentForAnotherAmountIsInProgress", intentWith(amount(900)),
			orderWith(payment(2, processing, another, inProgress)), want{
				result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
				detail: "paid at Stripe while another payment of the order is in progress: " + paymentID,
			}},
		{"TheOrderIsPaidTwice", intentWith(), orderWith(paidUp, payment(1, succeeded, another)), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
			detail: "the order is paid a second time, after " + paymentID + " with " + another,
		}},
		{"TheOrderIsPaidTwiceWithTwoCharges", intentWith(charge("ch_2")),
			orderWith(paidUp, payment(1, succeeded, another, charged("ch_1"))), want{
				result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
				detail: "the order is paid a second time, after " + paymentID + " with " + another,
			}},
		{"ForAnotherAmount", intentWith(amount(900)), orderWith(), want{
			result: compare.Differs, kind: amountMismatch, drift: 1000,
			detail: "the order is for 1000 usd, and 1000 usd was paid",
		}},
		{"WithAnotherAmount", intentWith(received(900)), orderWith(), want{
			result: compare.Differs, kind: amountMismatch, drift: 900,
			detail: "the order is for 1000 usd, and 900 usd was paid",
		}},
		{"InAnotherCurrency", intentWith(currency("eur")), orderWith(), want{
			result: compare.Differs, kind: amountMismatch, drift: 1000,
			detail: "the order is for 1000 usd, and 1000 eur was paid",
		}},

		// And what is provably the order's.
		{"TheOrderIsOpen", intentWith(), orderWith(), adoptable},
		{"TheOrderIsOpenAfterAFailedPayment", intentWith(), orderWith(payment(1, failed, thisOne)), adoptable},
		{"TheOrderIsOpenAndAPartWasRefunded", intentWith(refunded(300)), orderWith(), want{
			result: compare.Adoptable, kind: unmatchedAtStripe, drift: 700,
			detail: "paid at Stripe, and no payment here",
		}},
		{"TheOrderIsCanceled", intentWith(), orderWith(canceled), adoptable},
		{"TheOrderIsCanceledAndAPartWasRefunded", intentWith(refunded(300)), orderWith(canceled), want{
			result: compare.Adoptable, kind: unmatchedAtStripe, drift: 700,
			detail: "paid at Stripe, and no payment here",
		}},
		{"TheOrderIsPaidWithoutAPayment", intentWith(), orderWith(paidUp), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
			detail: "paid at Stripe, and the order is paid",
		}},

		// What another operation made is its own to compare.
		{"AnotherOperationsIntent", intentWith(madeBy("tip")), orderWith(), want{result: compare.Unregistered}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireDifference(t, c.want, compare.Intent(c.intent, c.order))
		})
	}
}

// TestDifferenceOfNoPayment: the reader looks for the object's payment in another order only if this one has none, and
// whether all was given back, by refunds or by a dispute.
// TestAuthorizedIntent has a row for each condition about an authorization: one that a payment has, one that no payment
// has, and one that was captured in part.
func TestAuthorizedIntent(t *testing.T) {
	t.Parallel()
	agrees := want{result: compare.Agrees}
	changed := func(drift int64, detail string) want {
		return want{result: compare.StatusChanged, kind: statusMismatch, drift: drift, detail: detail, payment: paymentID}
	}
	requiresCapture := status(stripe.IntentRequiresCapture)
	const capturedThere = "authorized here, and succeeded at Stripe"
	const parked = ", and the key of its capture or cancel is parked"
	adopts := want{result: compare.Adoptable, kind: unmatchedAtStripe, detail: "authorized at Stripe, and no payment here"}
	paidThere := func(drift int64) want {
		return want{result: compare.Adoptable, kind: unmatchedAtStripe, drift: drift,
			detail: "paid at Stripe, and no payment here"}
	}
	for _, c := range []struct {
		name   string
		intent stripe.Intent
		order  *compare.Order
		want   want
	}{
		{"HeldHereAndThere", intentWith(requiresCapture), orderWith(authorized()), agrees},
		{"CaptureIsProcessing", intentWith(status(stripe.IntentProcessing)), orderWith(authorized()), agrees},
		{"Captured", intentWith(), orderWith(authorized()), changed(1000, capturedThere)},
		{"CapturedInPart", intentWith(partly(400)), orderWith(authorized()), changed(400, capturedThere)},
		{"Canceled", intentWith(status(stripe.IntentCanceled)), orderWith(authorized()),
			changed(0, "authorized here, and canceled at Stripe")},
		{"Missing", intentWith(status("")), orderWith(authorized()), want{result: compare.Differs, kind: missingAtStripe,
			detail: "authorized here, and does not exist at Stripe", payment: paymentID}},
		{"CapturedMoreThanAuthorized", intentWith(received(1001)), orderWith(authorized()), want{
			result: compare.Differs, kind: amountMismatch, drift: 1001, payment: paymentID,
			detail: "1000 usd authorized, and 1001 usd captured"}},
		{"CapturedNothing", intentWith(received(0)), orderWith(authorized()), want{result: compare.Differs,
			kind: amountMismatch, payment: paymentID, detail: "1000 usd authorized, and 0 usd captured"}},
		{"CapturedInAnotherCurrency", intentWith(currency("eur")), orderWith(authorized()), want{result: compare.Differs,
			kind: amountMismatch, drift: 1000, payment: paymentID, detail: "1000 usd authorized, and 1000 eur captured"}},
		{"CapturedWhileACaptureIsInProgress", intentWith(), orderWith(authorized(capturing, inProgress)),
			want{result: compare.InProgress, key: "capture"}},
		{"CapturedWhileItsCaptureIsParked", intentWith(), orderWith(authorized(capturing)), want{
			result: compare.Differs, kind: statusMismatch, drift: 1000, key: "capture", payment: paymentID,
			detail: capturedThere + parked}},
		{"CapturedWhileItsOrderIsCanceled", intentWith(), orderWith(authorized(), beingCanceled, held),
			want{result: compare.InProgress, key: "holder"}},
		{"CapturedWhileTheCancelOfItsOrderIsParked", intentWith(), orderWith(authorized(), beingCanceled, hanging), want{
			result: compare.Differs, kind: statusMismatch, drift: 1000, key: "holder", payment: paymentID,
			detail: capturedThere + parked}},
		{"AnotherIntentOfItsOrderIsPaid", intentWith(func(i *stripe.Intent) { i.ID = another }), orderWith(authorized()),
			want{result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
				detail: "paid at Stripe while another payment of the order is in progress: " + paymentID}},
		{"AnotherIntentOfItsOrderIsHeld", intentWith(requiresCapture, func(i *stripe.Intent) { i.ID = another }),
			orderWith(authorized()), agrees},

		// A hold that no payment here has.
		{"HeldWithoutAPayment", intentWith(requiresCapture), orderWith(), adopts},
		{"HeldOfAnIntentThatWasDeclined", intentWith(requiresCapture), orderWith(payment(1, failed, thisOne)), adopts},
		{"HeldOfAClosedIntent", intentWith(requiresCapture), orderWith(payment(1, failed, thisOne, closedIntent)), agrees},
		{"HeldAfterAnotherWasClosed", intentWith(requiresCapture), orderWith(payment(1, failed, another, closedIntent)),
			adopts},
		{"HeldOfNoOrder", intentWith(requiresCapture), orderWith(missing), agrees},
		{"HeldOfAPaidOrder", intentWith(requiresCapture), orderWith(paidUp, payment(1, succeeded, another)), agrees},
		{"HeldOfACanceledOrder", intentWith(requiresCapture), orderWith(canceled), agrees},
		{"HeldOfACheckoutsOrder", intentWith(requiresCapture), orderWith(reserved), agrees},
		{"HeldWhileTheOrderIsCanceled", intentWith(requiresCapture), orderWith(beingCanceled), agrees},
		{"HeldWhileAPaymentRuns", intentWith(requiresCapture), orderWith(payment(1, processing, thisOne)), agrees},
		{"HeldOfAnotherAmount", intentWith(requiresCapture, amount(999)), orderWith(), agrees},
		{"HeldInAnotherCurrency", intentWith(requiresCapture, currency("eur")), orderWith(), agrees},

		// Captured in part.
		{"CapturedInPartHereAndThere", intentWith(partly(400)), orderWith(paidUp, payment(1, succeeded, thisOne,
			captured(400))), agrees},
		{"CapturedLessThanHere", intentWith(partly(400)), orderWith(paidUp, payment(1, succeeded, thisOne,
			captured(500))), want{result: compare.Differs, kind: amountMismatch, drift: -100, payment: paymentID,
			detail: "500 usd here, 400 usd at Stripe"}},
		{"CapturedInPartWithoutAPayment", intentWith(partly(400)), orderWith(), paidThere(400)},
		{"CapturedInPartAndGivenBack", intentWith(partly(400), refunded(400)), orderWith(), agrees},
		{"CapturedByHalfAsAListShowsIt", intentWith(partly(500), listed(500)), orderWith(), want{result: compare.Differs,
			kind: unmatchedAtStripe, detail: "paid at Stripe, and a list does not say for certain what was given back of it"}},
		{"CapturedInPartOfAnotherAmount", intentWith(partly(400), amount(999)), orderWith(), want{
			result: compare.Differs, kind: amountMismatch, drift: 400,
			detail: "the order is for 1000 usd, and 400 usd was paid"}},
		{"LessWithoutManualCapture", intentWith(received(400)), orderWith(), want{result: compare.Differs,
			kind: amountMismatch, drift: 400, detail: "the order is for 1000 usd, and 400 usd was paid"}},
		{"MoreWithManualCapture", intentWith(partly(1001)), orderWith(), want{result: compare.Differs,
			kind: amountMismatch, drift: 1001, detail: "the order is for 1000 usd, and 1001 usd was paid"}},
		{"NothingWithManualCapture", intentWith(partly(0), refunded(-1)), orderWith(), want{result: compare.Differs,
			kind: amountMismatch, drift: 1, detail: "the order is for 1000 usd, and 0 usd was paid"}},
	} {
		t.Run(c.name, func(t *testing.T) { requireDifference(t, c.want, compare.Intent(c.intent, c.order)) })
	}
}

// TestPaidMinor: a payment took what was captured of it, and nothing before.
func TestPaidMinor(t *testing.T) {
	t.Parallel()
	require.Zero(t, compare.PaidMinor(db.Payment{Status: db.PaymentStatusAuthorized, AmountMinor: 1000}))
	require.EqualValues(t, 1000, compare.PaidMinor(db.Payment{Status: succeeded, AmountMinor: 1000}))
	require.EqualValues(t, 400, compare.PaidMinor(db.Payment{
		Status: succeeded, AmountMinor: 1000, CapturedMinor: new(int64(400)),
	}))
}

func TestDifferenceOfNoPayment(t *testing.T) {
	t.Parallel()
	refundOf := func(intent string) stripe.Refund {
		return refundWith(refundDone, func(r *stripe.Refund) { r.IntentID = intent })
	}
	for name, c := range map[string]struct {
		noPayment, givenBack bool
		difference           compare.Difference
	}{
		"AnIntent":                    {true, false, compare.Intent(intentWith(), orderWith())},
		"AnIntentOfAPayment":          {false, false, compare.Intent(intentWith(), orderWith(payment(1, failed, thisOne)))},
		"AnIntentThatWasRefunded":     {true, true, compare.Intent(intentWith(refunded(1000)), orderWith())},
		"AnIntentLostInADispute":      {true, true, compare.Intent(intentWith(lost(1000)), orderWith(missing))},
		"AnIntentLostInPart":          {true, false, compare.Intent(intentWith(lost(300)), orderWith(missing))},
		"ARefund":                     {true, false, compare.RefundOf(refundOf(another), orderWith())},
		"ARefundOfAPayment":           {false, false, compare.RefundOf(refundOf(thisOne), orderWith(payment(1, failed, thisOne)))},
		"ARefundOfAPaymentThatIsPaid": {false, false, compare.RefundOf(refundOf(thisOne), orderWith(payment(1, succeeded, thisOne)))},
	} {
		require.Equal(t, c.noPayment, c.difference.NoPayment, name)
		require.Equal(t, c.givenBack, c.difference.GivenBack, name)
	}
}

// TestIntentDiscrepancyNamesItsObject: what an operator finds in a discrepancy.
func TestIntentDiscrepancyNamesItsObject(t *testing.T) {
	t.Parallel()
	d := compare.Intent(intentWith(currency("eur")), orderWith()).Discrepancy
	require.Equal(t, compare.Discrepancy{
		Kind: amountMismatch, Object: compare.PaymentIntent, ObjectID: thisOne, TenantID: tenant, OrderID: orderID,
		Currency: "eur", DriftMinor: 1000, Detail: "the order is for 1000 usd, and 1000 eur was paid",
	}, d)
	none := compare.Intent(intentWith(currency("")), orderWith()).Discrepancy
	require.Equal(t, "usd", none.Currency, "the order's, if Stripe names none")
	unknown := compare.Intent(stripe.Intent{ID: thisOne}, orderWith(payment(1, succeeded, thisOne)))
	require.Equal(t, "usd", unknown.Discrepancy.Currency, "the payment's")
	neither := compare.Intent(intentWith(currency("")), orderWith(missing)).Discrepancy
	require.Empty(t, neither.Currency)
}

const (
	pending        = db.RefundStatusPending
	refundDone     = db.RefundStatusSucceeded
	refundFailed   = db.RefundStatusFailed
	refundCanceled = db.RefundStatusCanceled
)

// someRefund is an id that a refund of ours may have.
var someRefund = ids.Keyed(ids.Refund, tenant, "refund")

// refundWith is a refund of 400 usd at Stripe, in the name of a row of ours.
func refundWith(s db.RefundStatus, changes ...func(*stripe.Refund)) stripe.Refund {
	r := stripe.Refund{
		ID: "re_1", Status: s, IntentID: thisOne, AmountMinor: 400, Currency: "usd",
		TenantID: tenant, OrderID: orderID, PaymentID: paymentID, RefundID: someRefund,
	}
	for _, c := range changes {
		c(&r)
	}
	return r
}

// refundRow adds the row to the order.
func refundRow(s db.RefundStatus, more ...func(*compare.RefundRow)) change {
	return func(o *compare.Order) {
		row := compare.RefundRow{Refund: db.Refund{
			TenantID: tenant, ID: someRefund, OrderID: orderID, PaymentID: paymentID, IdempotencyKey: "refund",
			Status: s, AmountMinor: 400, Currency: "usd",
		}}
		if s != pending { // Stripe's response was recorded.
			stripeID("re_1")(&row)
		}
		for _, f := range more {
			f(&row)
		}
		o.Refunds = append(o.Refunds, row)
	}
}

func refundInProgress(r *compare.RefundRow) { r.InProgress = true }

func namedOther(r *compare.RefundRow) { r.ID = "rfd_other" }

func stripeID(id string) func(*compare.RefundRow) {
	return func(r *compare.RefundRow) { r.StripeRefundID = &id }
}

// TestRefundOf has a row for each rule about refunds, for each condition of the rule.
func TestRefundOf(t *testing.T) {
	t.Parallel()
	agrees := want{result: compare.Agrees}
	gone := stripe.Refund{ID: "re_1", RefundID: someRefund}
	paid := payment(1, succeeded, thisOne)
	adoptable := want{
		result: compare.Adoptable, kind: unmatchedAtStripe, drift: -400, payment: paymentID,
		detail: "refunded at Stripe, and no refund here",
	}
	unmatched := adoptable
	unmatched.result = compare.Differs
	differs := func(kind db.DiscrepancyKind, drift int64, detail string) want {
		return want{result: compare.Differs, kind: kind, drift: drift, detail: detail, payment: paymentID}
	}
	changed := func(drift int64, detail string) want {
		return want{result: compare.StatusChanged, kind: statusMismatch, drift: drift, detail: detail,
			payment: paymentID}
	}
	for _, c := range []struct {
		name   string
		refund stripe.Refund
		order  *compare.Order
		want   want
	}{
		// A refund that has a row.
		{"TheSameHereAndThere", refundWith(refundDone), orderWith(refundRow(refundDone)), agrees},
		{"PendingHereAndThere", refundWith(pending), orderWith(refundRow(pending, refundInProgress)), agrees},
		{"AnotherAmount", refundWith(refundDone, func(r *stripe.Refund) { r.AmountMinor = 300 }),
			orderWith(refundRow(refundDone)),
			differs(amountMismatch, 100, "refund of 400 usd here, 300 usd at Stripe")},
		{"AnotherCurrency", refundWith(refundDone, func(r *stripe.Refund) { r.Currency = "eur" }),
			orderWith(refundRow(refundDone)), differs(amountMismatch, 0, "refund of 400 usd here, 400 eur at Stripe")},
		{"PendingHereAndInProgress", refundWith(refundDone), orderWith(refundRow(pending, refundInProgress)),
			want{result: compare.InProgress, key: "refund"}},
		{"AnotherAmountWhileOursIsInProgress", refundWith(refundDone, func(r *stripe.Refund) { r.AmountMinor = 300 }),
			orderWith(refundRow(pending, refundInProgress)), want{result: compare.InProgress, key: "refund"}},
		{"AnotherAmountAndPendingWhileOursIsInProgress",
			refundWith(pending, func(r *stripe.Refund) { r.AmountMinor = 300 }),
			orderWith(refundRow(pending, refundInProgress)), want{result: compare.InProgress, key: "refund"}},
		{"AnotherAmountAndOursIsParked", refundWith(refundDone, func(r *stripe.Refund) { r.AmountMinor = 300 }),
			orderWith(refundRow(pending)), differs(amountMismatch, -300, "refund of 400 usd here, 300 usd at Stripe")},
		{"PendingHereAndKnownThere", refundWith(refundDone),
			orderWith(refundRow(pending, refundInProgress, stripeID("re_1"))),
			changed(-400, "refund pending here, succeeded at Stripe")},
		{"CanceledAfterItsSuccess", refundWith(refundCanceled), orderWith(refundRow(refundDone)),
			changed(400, "refund succeeded here, canceled at Stripe")},
		{"PendingHereAndParked", refundWith(refundDone), orderWith(refundRow(pending)),
			changed(-400, "refund pending here, succeeded at Stripe")},
		{"FailedLater", refundWith(refundFailed), orderWith(refundRow(refundDone, refundInProgress)),
			changed(400, "refund succeeded here, failed at Stripe")},
		{"CanceledLater", refundWith(refundCanceled), orderWith(refundRow(pending)),
			changed(0, "refund pending here, canceled at Stripe")},
		{"UnknownThere", gone, orderWith(refundRow(refundDone)),
			differs(missingAtStripe, 400, "refund succeeded here, and does not exist at Stripe")},
		{"PendingHereAndUnknownThere", gone, orderWith(refundRow(pending)), agrees},
		{"UnknownThereWhileItsKeyIsUnfinished", gone, orderWith(refundRow(refundDone, refundInProgress)),
			differs(missingAtStripe, 400, "refund succeeded here, and does not exist at Stripe")},
		{"InProgressAndUnknownThere", gone, orderWith(refundRow(pending, refundInProgress)),
			want{result: compare.InProgress, key: "refund"}},
		{"InProgressAndNoLongerKnownThere", gone, orderWith(refundRow(pending, refundInProgress, stripeID("re_1"))),
			want{result: compare.InProgress, key: "refund"}},
		{"FailedHereAndSucceededThere", refundWith(refundDone), orderWith(refundRow(refundFailed)),
			differs(statusMismatch, -400, "refund failed here, succeeded at Stripe")},
		{"SucceededHereAndPendingThere", refundWith(pending), orderWith(refundRow(refundDone)),
			differs(statusMismatch, 400, "refund succeeded here, pending at Stripe")},
		{"FailedHereAndCanceledThere", refundWith(refundCanceled), orderWith(refundRow(refundFailed)), agrees},

		// A refund that has none.
		{"ThatFailed", refundWith(refundFailed), orderWith(paid), agrees},
		{"ThatWasCanceled", refundWith(refundCanceled), orderWith(paid), agrees},
		{"OfNoPayment", refundWith(refundDone), orderWith(), agrees},
		{"OfAnIntentThatIsNotThePayments", refundWith(refundDone), orderWith(payment(1, succeeded, another)), agrees},
		{"ASecondInTheNameOfOne", refundWith(refundDone),
			orderWith(paid, refundRow(refundDone, stripeID("re_first"))), adoptable},
		{"ASecondInTheNameOfOneThatWasRefused", refundWith(refundDone),
			orderWith(paid, refundRow(refundFailed, func(r *compare.RefundRow) { r.StripeRefundID = nil })), adoptable},
		{"ThatIsOurs", refundWith(refundDone), orderWith(paid), adoptable},
		{"ThatIsOursAndPending", refundWith(pending), orderWith(paid), want{
			result: compare.Adoptable, kind: unmatchedAtStripe, payment: paymentID,
			detail: "refunded at Stripe, and no refund here",
		}},
		{"ThatIsOursAndAllThatIsLeft", refundWith(refundDone),
			orderWith(payment(1, succeeded, thisOne, refunding(600))), adoptable},
		{"OfMoreThanIsLeft", refundWith(refundDone), orderWith(payment(1, succeeded, thisOne, refunding(601))),
			differs(unmatchedAtStripe, -400,
				"refunded at Stripe, and no refund here: more than what is left of the payment")},
		{"OfMoreThanIsLeftWhileOursIsInProgress", refundWith(refundDone), orderWith(
			payment(1, succeeded, thisOne, refunding(601)), refundRow(pending, refundInProgress, namedOther)),
			want{result: compare.InProgress, key: "refund"}},
		{"OfMoreThanIsLeftWhileOursIsParked", refundWith(refundDone), orderWith(
			payment(1, succeeded, thisOne, refunding(601)), refundRow(pending, namedOther)),
			differs(unmatchedAtStripe, -400,
				"refunded at Stripe, and no refund here: more than what is left of the payment")},
		{"OfMoreThanIsLeftWhileThatOfAnotherPaymentIsInProgress", refundWith(refundDone), orderWith(
			payment(1, succeeded, thisOne, refunding(601)), refundRow(pending, refundInProgress, namedOther,
				func(r *compare.RefundRow) { r.PaymentID = "pay_other" })),
			differs(unmatchedAtStripe, -400,
				"refunded at Stripe, and no refund here: more than what is left of the payment")},
		{"OfMoreThanIsLeftAfterOursWhoseKeyIsUnfinished", refundWith(refundDone), orderWith(
			payment(1, succeeded, thisOne, refunding(601)),
			refundRow(refundDone, refundInProgress, namedOther, stripeID("re_other"))),
			differs(unmatchedAtStripe, -400,
				"refunded at Stripe, and no refund here: more than what is left of the payment")},
		{"WithMetadataOfAnotherProgram", refundWith(refundDone, func(r *stripe.Refund) { r.RefundID = "RMA-7" }),
			orderWith(paid), adoptable},
		{"WithoutMetadata", refundWith(refundDone, func(r *stripe.Refund) { r.PaymentID, r.RefundID = "", "" }),
			orderWith(paid), adoptable},
		{"InTheWrongCurrency", refundWith(refundDone, func(r *stripe.Refund) { r.Currency = "eur" }), orderWith(paid),
			differs(unmatchedAtStripe, -400, "refunded at Stripe, and no refund here: the payment is in usd")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireDifference(t, c.want, compare.RefundOf(c.refund, c.order))
		})
	}
}

// TestIsOwnRefund: only a refund that names its payment, and a refund that no row has, was ours.
func TestIsOwnRefund(t *testing.T) {
	t.Parallel()
	paid := payment(1, succeeded, thisOne)
	for name, c := range map[string]struct {
		own    bool
		refund stripe.Refund
		order  *compare.Order
	}{
		"Ours":              {true, refundWith(refundDone), orderWith(paid)},
		"OursBesideAnother": {true, refundWith(refundDone), orderWith(paid, refundRow(refundDone, namedOther))},
		"OfNoPayment":       {false, refundWith(refundDone), orderWith()},
		"OfAnotherIntent":   {false, refundWith(refundDone), orderWith(payment(1, succeeded, another))},
		"ACopyOfOurs":       {false, refundWith(refundDone), orderWith(paid, refundRow(refundDone))},
		"AnyText":           {false, refundWith(refundDone, func(r *stripe.Refund) { r.RefundID = "RMA-7" }), orderWith(paid)},
		"OfAnotherTenant":   {false, refundWith(refundDone, func(r *stripe.Refund) { r.TenantID = "t" }), orderWith(paid)},
		"OfAnotherOrder":    {false, refundWith(refundDone, func(r *stripe.Refund) { r.OrderID = "o" }), orderWith(paid)},
		"OfAnotherPayment":  {false, refundWith(refundDone, func(r *stripe.Refund) { r.PaymentID = "p" }), orderWith(paid)},
		"NotAtAllOfPayonce": {false, refundWith(refundDone, func(r *stripe.Refund) { r.RefundID = "" }), orderWith(paid)},
	} {
		require.Equal(t, c.own, compare.IsOwnRefund(c.refund, c.order), name)
	}
}

// TestRefundDiscrepancyNamesItsObject: the row's names where there is a row.
func TestRefundDiscrepancyNamesItsObject(t *testing.T) {
	t.Parallel()
	known := compare.RefundOf(refundWith(refundFailed), orderWith(refundRow(refundDone))).Discrepancy
	require.Equal(t, compare.Discrepancy{
		Kind: statusMismatch, Object: compare.Refund, ObjectID: "re_1", TenantID: tenant, OrderID: orderID,
		PaymentID: paymentID, RefundID: someRefund, Currency: "usd", DriftMinor: 400,
		Detail: "refund succeeded here, failed at Stripe",
	}, known)
	fromDashboard := refundWith(refundDone, func(r *stripe.Refund) { r.RefundID, r.Currency = "", "eur" })
	require.Equal(t, compare.Discrepancy{
		Kind: unmatchedAtStripe, Object: compare.Refund, ObjectID: "re_1", TenantID: tenant, OrderID: orderID,
		PaymentID: paymentID, Currency: "eur", DriftMinor: -400,
		Detail: "refunded at Stripe, and no refund here: the payment is in usd",
	}, compare.RefundOf(fromDashboard, orderWith(payment(1, succeeded, thisOne))).Discrepancy)
}

// TestRefundTransition has every pair of statuses.
func TestRefundTransition(t *testing.T) {
	t.Parallel()
	type sums struct{ reserved, refunded int64 }
	legal := map[[2]db.RefundStatus]sums{
		{pending, refundDone}:        {0, 400},
		{pending, refundFailed}:      {-400, 0},
		{pending, refundCanceled}:    {-400, 0},
		{refundDone, refundFailed}:   {-400, -400},
		{refundDone, refundCanceled}: {-400, -400},
	}
	all := []db.RefundStatus{pending, refundDone, refundFailed, refundCanceled, ""}
	for _, from := range all {
		for _, to := range all {
			reserved, refunded, ok := compare.RefundTransition(from, to, 400)
			want, isLegal := legal[[2]db.RefundStatus{from, to}]
			require.Equal(t, isLegal, ok, "%s to %s", from, to)
			require.Equal(t, want, sums{reserved, refunded}, "%s to %s", from, to)
		}
	}
}

func TestOrderPayments(t *testing.T) {
	t.Parallel()
	for s, want := range map[db.PaymentStatus]struct{ live, paid bool }{
		processing: {live: true}, requiresAction: {live: true}, succeeded: {paid: true},
		failed: {}, db.PaymentStatusCanceled: {},
	} {
		o := orderWith(payment(1, s, thisOne))
		require.Equal(t, want.live, o.Live() != nil, s)
		require.Equal(t, want.paid, o.Paid() != nil, s)
	}
	o := orderWith(payment(1, failed, another), payment(2, processing, ""))
	require.Same(t, &o.Payments[1], o.Live())
	require.True(t, o.Payments[0].Uses(another))
	require.False(t, o.Payments[0].Uses(thisOne))
	require.False(t, o.Payments[1].Uses(""), "none is known")
}

func TestResultNames(t *testing.T) {
	t.Parallel()
	for result, name := range map[compare.Result]string{
		compare.Agrees: "agrees", compare.InProgress: "in_progress", compare.Adoptable: "adoptable",
		compare.StatusChanged: "status_changed", compare.Abandoned: "abandoned", compare.Differs: "differs",
		compare.Unregistered: "unregistered",
	} {
		require.Equal(t, name, result.String())
	}
	require.Panics(t, func() { _ = compare.Result(99).String() })
}

// TestMayConfirm: whether a payment of the order uses the intent, or the next one would.
func TestMayConfirm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		order *compare.Order
		want  bool
	}{
		{"ALivePaymentUsesIt", orderWith(canceled, payment(1, processing, thisOne)), true},
		{"ALivePaymentHasNoIntentYet", orderWith(missing, payment(1, processing, "")), true},
		{"ALivePaymentUsesAnother", orderWith(payment(2, requiresAction, another)), false},
		{"TheOrderDoesNotExist", orderWith(missing), false},
		{"TheOrderIsClosed", orderWith(canceled, payment(1, failed, thisOne)), false},
		{"TheOrderIsPaid", orderWith(paidUp), false},
		{"TheOrderIsReserved", orderWith(reserved, payment(1, failed, another)), true},
		{"TheOrderIsBeingCanceled", orderWith(beingCanceled, payment(1, failed, another)), true},
		{"TheOrderWasNeverPaid", orderWith(), true},
		{"TheLastPaymentUsedIt", orderWith(payment(1, failed, another), payment(2, failed, thisOne)), true},
		{"TheLastPaymentUsedItWhateverTheirOrder", orderWith(payment(2, failed, thisOne), payment(1, failed, another)),
			true},
		{"APaymentUsedItAlmostADayAgo", orderWith(payment(1, failed, thisOne, idle(compare.UnusedAfter-1))), true},
		{"NoPaymentUsedItForADay", orderWith(payment(1, failed, thisOne, idle(compare.UnusedAfter))), false},
		{"OneOfItsPaymentsIsOfToday", orderWith(payment(1, failed, thisOne, idle(compare.UnusedAfter)),
			payment(1, failed, thisOne)), true},
		{"ItIsRetired", orderWith(retired(2), payment(2, failed, thisOne)), false},
		{"TheOneBeforeItIsRetired", orderWith(retired(1), payment(2, failed, thisOne)), true},
		{"AnEarlierPaymentUsedIt", orderWith(payment(1, failed, thisOne), payment(2, failed, another)), false},
		{"AnEarlierPaymentUsedItWhateverTheirOrder",
			orderWith(payment(2, failed, another), payment(1, failed, thisOne)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.order.MayConfirm(thisOne))
		})
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	require.Zero(t, orderWith(payment(1, failed, another)).Number(thisOne))
	require.EqualValues(t, 2, orderWith(payment(1, failed, another), payment(2, failed, thisOne)).Number(thisOne))
}

func TestIsAbandoned(t *testing.T) {
	t.Parallel()
	before := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	old := func(i *stripe.Intent) { i.CreatedAt = before.Add(-time.Second) }
	for s, unconfirmed := range map[stripe.IntentStatus]bool{
		stripe.IntentRequiresPaymentMethod: true, stripe.IntentRequiresConfirmation: true,
		stripe.IntentRequiresAction: true, stripe.IntentRequiresCapture: true,
		stripe.IntentProcessing: false, stripe.IntentSucceeded: false, stripe.IntentCanceled: false,
	} {
		require.Equal(t, unconfirmed, compare.Unconfirmed(s), s)
		require.Equal(t, unconfirmed, orderWith(canceled).IsAbandoned(intentWith(status(s), old), before), s)
	}
	waits := intentWith(status(stripe.IntentRequiresPaymentMethod), old)
	require.False(t, orderWith().IsAbandoned(waits, before), "the order's next payment may use it")
	hold := intentWith(status(stripe.IntentRequiresCapture), old)
	require.False(t, orderWith(authorized()).IsAbandoned(hold, before), "it may be captured")
	hold.ID = another
	require.True(t, orderWith(authorized()).IsAbandoned(hold, before), "another one is the payment's")
	require.True(t, orderWith(paidUp, payment(1, succeeded, thisOne)).IsAbandoned(hold, before))
	waits.CreatedAt = before
	require.False(t, orderWith(canceled).IsAbandoned(waits, before), "it is too young")
}

// TestCancelNumber: two intents of an order never get one number, in our rows or in a
// cancel, because Stripe would refuse the second cancel under the same key.
func TestCancelNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		order    *compare.Order
		recorded []compare.Cancel
		number   int32
		ok       bool
	}{
		{"ItsPaymentsOwn", orderWith(payment(1, failed, another), payment(2, failed, thisOne)),
			[]compare.Cancel{{IntentNumber: 7, SameIntent: true}}, 2, true},
		{"ThatOfItsRecordedCancel", orderWith(missing),
			[]compare.Cancel{{IntentNumber: 1}, {IntentNumber: 7, SameIntent: true}}, 7, true},
		{"TheFirstOfAnOrderThatDoesNotExist", orderWith(missing), nil, 1, true},
		{"TheNextThatIsFree", orderWith(missing), []compare.Cancel{{IntentNumber: 1}}, 2, true},
		{"AGap", orderWith(payment(1, failed, another), payment(3, failed, another)), nil, 2, true},
		{"ANumberWithoutIntent", orderWith(payment(1, processing, "")), nil, 1, true},
		{"NotWhatTheNextPaymentMayGet", orderWith(payment(1, failed, another)), nil, 2, false},
		{"NotWhatTheFirstPaymentMayGet", orderWith(), nil, 1, false},
		{"WhatNoPaymentCanGetAnyMore", orderWith(canceled, payment(1, failed, another)), nil, 2, true},
		{"NotThatOfAnotherCancelOfAGap", orderWith(payment(1, failed, another), payment(3, failed, another)),
			[]compare.Cancel{{IntentNumber: 2}}, 4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			number, ok := c.order.CancelNumber(thisOne, c.recorded)
			require.Equal(t, c.number, number)
			require.Equal(t, c.ok, ok)
		})
	}
}

func TestNextNumber(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, orderWith().NextNumber(thisOne))
	require.EqualValues(t, 2, orderWith(payment(1, failed, another)).NextNumber(thisOne))
	require.EqualValues(t, 1, orderWith(payment(1, failed, thisOne), payment(2, failed, another)).NextNumber(thisOne),
		"its own")
	require.EqualValues(t, 4, orderWith(payment(3, failed, another), payment(1, failed, another)).NextNumber(thisOne))
}
