package compare_test

import (
	"testing"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/stripe"
)

// tip adds a charge of the operation "tip", which the program has, to an order.
func tip(s compare.ChargeStatus, intent string, more ...func(*compare.Charge)) change {
	return func(o *compare.Order) {
		o.Registered = map[string]bool{"tip": true}
		c := compare.Charge{
			ID: "tip_1", Operation: "tip", IntentID: intent, AmountMinor: 1000, Currency: "usd", Status: s,
			Key: "tip-key",
		}
		for _, f := range more {
			f(&c)
		}
		o.Charges = append(o.Charges, c)
	}
}

func tipInProgress(c *compare.Charge) { c.InProgress = true }

func registered(o *compare.Order) { o.Registered = map[string]bool{"tip": true} }

// TestRegisteredIntent has a row for each rule about intents that an operation of one's
// own has made, for each condition of the rule.
func TestRegisteredIntent(t *testing.T) {
	t.Parallel()
	agrees := want{result: compare.Agrees}
	tipped := func(changes ...func(*stripe.Intent)) stripe.Intent {
		return intentWith(append(changes, madeBy("tip"))...)
	}
	noRow := want{
		result: compare.Differs, kind: unmatchedAtStripe, drift: 1000,
		detail: "paid at Stripe by tip, which has no row of it",
	}
	notHere := want{
		result: compare.Differs, kind: unmatchedAtStripe, drift: 1000, key: "tip-key",
		detail: "paid at Stripe by tip, and not here",
	}
	for _, c := range []struct {
		name   string
		intent stripe.Intent
		order  *compare.Order
		want   want
	}{
		{"OfAnOperationThatTheProgramDoesNotHave", tipped(), orderWith(), want{result: compare.Unregistered}},

		{"WithoutARow", tipped(), orderWith(registered), noRow},
		{"WithoutARowAndAPartWasRefunded", tipped(refunded(300)), orderWith(registered), want{
			result: compare.Differs, kind: unmatchedAtStripe, drift: 700, detail: noRow.detail,
		}},
		{"WithoutARowAndNotPaid", tipped(status(stripe.IntentCanceled), received(1000)), orderWith(registered), agrees},
		{"WithoutARowAndRefunded", tipped(refunded(1000)), orderWith(registered), agrees},
		{"WithTheRowOfAnotherOperation", tipped(), orderWith(tip(compare.ChargeSucceeded, thisOne,
			func(c *compare.Charge) { c.Operation = "fee" })), noRow},
		{"WithTheRowOfAnotherIntent", tipped(), orderWith(tip(compare.ChargePending, another)), noRow},
		{"WithARowThatFailedBeforeItsIntent", tipped(), orderWith(tip(compare.ChargeFailed, "")), noRow},

		{"PaidHereAndThere", tipped(), orderWith(tip(compare.ChargeSucceeded, thisOne)), agrees},
		{"LessWasReceived", tipped(received(700)), orderWith(tip(compare.ChargeSucceeded, thisOne)), want{
			result: compare.Differs, kind: amountMismatch, drift: -300, key: "tip-key",
			detail: "tip of 1000 usd here, 700 usd at Stripe",
		}},
		{"AnotherCurrencyWasReceived", tipped(currency("eur")), orderWith(tip(compare.ChargeSucceeded, thisOne)), want{
			result: compare.Differs, kind: amountMismatch, key: "tip-key",
			detail: "tip of 1000 usd here, 1000 eur at Stripe",
		}},
		{"PaidHereAndCanceledThere", tipped(status(stripe.IntentCanceled)),
			orderWith(tip(compare.ChargeSucceeded, thisOne)), want{
				result: compare.Differs, kind: missingAtStripe, drift: -1000, key: "tip-key",
				detail: `tip succeeded here, and is "canceled" at Stripe`,
			}},
		{"PaidHereAndCanceledThereAfterAll",
			tipped(status(stripe.IntentCanceled), received(1000)), orderWith(tip(compare.ChargeSucceeded, thisOne)), want{
				result: compare.Differs, kind: missingAtStripe, drift: -1000, key: "tip-key",
				detail: `tip succeeded here, and is "canceled" at Stripe`,
			}},
		{"NotPaidYet", tipped(status(stripe.IntentProcessing)),
			orderWith(tip(compare.ChargePending, thisOne, tipInProgress)), agrees},
		{"InProgress", tipped(), orderWith(tip(compare.ChargePending, thisOne, tipInProgress)), want{
			result: compare.InProgress, key: "tip-key",
		}},
		{"InProgressWithoutIntent", tipped(), orderWith(tip(compare.ChargePending, "", tipInProgress)), want{
			result: compare.InProgress, key: "tip-key",
		}},
		{"OfTwoTheOneWhoseIntentItIs", tipped(), orderWith(tip(compare.ChargePending, ""),
			tip(compare.ChargeSucceeded, thisOne)), agrees},
		{"WithoutIntentAndOfAnotherAmount", tipped(), orderWith(tip(compare.ChargePending, "", tipInProgress,
			func(c *compare.Charge) { c.AmountMinor = 900 })), noRow},
		{"WithoutIntentAndOfAnotherCurrency", tipped(), orderWith(tip(compare.ChargePending, "", tipInProgress,
			func(c *compare.Charge) { c.Currency = "eur" })), noRow},
		{"WithoutIntentAndOfAnotherOperation", tipped(), orderWith(tip(compare.ChargePending, "", tipInProgress,
			func(c *compare.Charge) { c.Operation = "fee" })), noRow},
		{"OfAPayment", tipped(status(stripe.IntentCanceled)),
			orderWith(registered, payment(1, db.PaymentStatusSucceeded, thisOne)), want{
				result: compare.Differs, kind: missingAtStripe, drift: -1000,
				detail: "succeeded here, and is canceled at Stripe", payment: "pay_1",
			}},
		{"OfAPaymentByAnUnknownOperation", tipped(), orderWith(payment(1, db.PaymentStatusSucceeded, thisOne)), agrees},
		{"Parked", tipped(), orderWith(tip(compare.ChargePending, "")), notHere},
		{"ParkedAndRefunded", tipped(refunded(1000)), orderWith(tip(compare.ChargePending, thisOne)), want{
			result: compare.Differs, kind: unmatchedAtStripe, key: "tip-key", detail: notHere.detail,
		}},
		{"FailedHereAndPaidThere", tipped(), orderWith(tip(compare.ChargeFailed, thisOne)), notHere},
		{"FailedHereAndRefundedThere", tipped(refunded(1000)), orderWith(tip(compare.ChargeFailed, thisOne)), agrees},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireDifference(t, c.want, compare.Intent(c.intent, c.order))
		})
	}
}
