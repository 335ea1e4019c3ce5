package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/stripe"
)

// TestRefundableAmount: an operator refunds directly only what belongs to no payment.
func TestRefundableAmount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		intent stripe.Intent
		order  *compare.Order
		minor  int64
		why    string
	}{
		{"TheOrderDoesNotExist", intentWith(), orderWith(missing), 1000, ""},
		{"APartWasRefunded", intentWith(refunded(300)), orderWith(missing), 700, ""},
		{"TheOrderIsPaidTwice", intentWith(), orderWith(paidUp, payment(1, succeeded, another)), 1000, ""},
		{"ADisputeTookAPart", intentWith(lost(300)), orderWith(missing), 700, ""},
		{"AChargeOfAnOperationWithoutARow", intentWith(madeBy("tip")), orderWith(registered), 1000, ""},
		{"OfAnotherAmountThanItsPayment", intentWith(amount(900), received(900)),
			orderWith(payment(1, processing, thisOne, inProgress)), 900, ""},
		{"NotWhatWasNotPaid", intentWith(status(stripe.IntentCanceled), received(1000)), orderWith(missing), 0,
			"Stripe has taken no money for it: it is canceled"},
		{"NotWhatBelongsToAPayment", intentWith(received(700)), orderWith(paidUp, payment(1, succeeded, thisOne)), 0,
			"it belongs to " + paymentID + ": refund that payment"},
		{"NotWhatWasRefunded", intentWith(refunded(1000)), orderWith(missing), 0, "all of it was refunded already"},
		{"NotWhatADisputeTook", intentWith(refunded(300), lost(700)), orderWith(missing), 0,
			"the customer has it back: a dispute of it was lost"},
		{"NotWhatAnUnknownOperationMade", intentWith(madeBy("tip")), orderWith(), 0,
			"it was made by the operation tip, which this service does not know: only the service that made it can say " +
				"whether it is to be refunded"},
		{"NotAChargeThatHasARow", intentWith(madeBy("tip")), orderWith(tip(compare.ChargeSucceeded, thisOne)), 0,
			"it is a charge of the operation tip, and Stripe and our rows agree"},
		{"NotAChargeThatItsOperationMayCorrect", intentWith(madeBy("tip")),
			orderWith(tip(compare.ChargeFailed, thisOne)), 0,
			"it is a charge of the operation tip, which has a row of it: retry its request now, or correct it at Stripe"},
		{"NotWhatCanBeAdopted", intentWith(), orderWith(), 0,
			"it can be adopted: adopt it, then refund the payment, so that the tenant gets the events of both"},
		{"NotWhileTheOrderIsReserved", intentWith(), orderWith(reserved, held), 0,
			"an operation in progress will find out what it is for"},
		{"NotWhileWhatReservesTheOrderIsParked", intentWith(), orderWith(reserved, hanging), 0,
			"a checkout or a cancel of its order has not ended, and may yet use it: retry that request now"},
		{"NotWhileItsPaymentIsInProgress", intentWith(), orderWith(payment(1, processing, thisOne, inProgress)), 0,
			"an operation in progress will find out what it is for"},
		{"NotWhileItsPaymentIsParked", intentWith(), orderWith(payment(1, processing, thisOne)), 0,
			"it was charged for payment " + paymentID + ": retry that payment now"},
		{"NotWhileItsPaymentIsParkedWhateverItsMetadataSays", intentWith(madeBy("tip")),
			orderWith(payment(1, processing, thisOne)), 0,
			"it was charged for payment " + paymentID + ": retry that payment now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			minor, err := compare.RefundableAmount(c.intent, c.order)
			require.Equal(t, c.minor, minor)
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			var not *compare.NotRefundableError
			require.ErrorAs(t, err, &not)
			require.Equal(t, c.why, not.Error())
		})
	}
}
