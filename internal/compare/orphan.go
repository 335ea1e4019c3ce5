package compare

import "example.com/payonce/internal/stripe"

// NotRefundableError says why the money of an intent cannot be refunded by an operator
// as money that belongs to no payment.
type NotRefundableError struct{ Why string }

func (e *NotRefundableError) Error() string { return e.Why }

// RefundableAmount is how much of an intent an operator may refund although it belongs
// to no payment here, or a *NotRefundableError: what can be adopted is adopted first,
// and what belongs to a payment, or may yet, is refunded through that.
func RefundableAmount(i stripe.Intent, o *Order) (int64, error) {
	left := i.ReceivedMinor - i.RefundedMinor - i.LostMinor
	if i.Status != stripe.IntentSucceeded {
		return 0, &NotRefundableError{"Stripe has taken no money for it: it is " + string(i.Status)}
	}
	if paid := o.Paid(); paid != nil && paid.Uses(i.ID) {
		return 0, &NotRefundableError{"it belongs to " + paid.ID + ": refund that payment"}
	}
	if left == 0 && i.LostMinor > 0 {
		return 0, &NotRefundableError{"the customer has it back: a dispute of it was lost"}
	}
	if left == 0 {
		return 0, &NotRefundableError{"all of it was refunded already"}
	}
	switch d := Intent(i, o); {
	case d.Result == Unregistered:
		return 0, &NotRefundableError{"it was made by the operation " + i.Operation +
			", which this service does not know: only the service that made it can say whether it is to be refunded"}
	case d.Result == Agrees: // Without an operation nothing would be left of it.
		return 0, &NotRefundableError{"it is a charge of the operation " + i.Operation +
			", and Stripe and our rows agree"}
	case d.Result == Adoptable:
		return 0, &NotRefundableError{
			"it can be adopted: adopt it, then refund the payment, so that the tenant gets the events of both",
		}
	case d.Result != Differs:
		return 0, &NotRefundableError{"an operation in progress will find out what it is for"}
	case d.Key != "" && d.Discrepancy.PaymentID != "":
		return 0, &NotRefundableError{
			"it was charged for payment " + d.Discrepancy.PaymentID + ": retry that payment now",
		}
	case d.Key != "" && i.Operation != "":
		return 0, &NotRefundableError{"it is a charge of the operation " + i.Operation + ", which has a row of it: " +
			"retry its request now, or correct it at Stripe"}
	case d.Key != "":
		return 0, &NotRefundableError{
			"a checkout or a cancel of its order has not ended, and may yet use it: retry that request now",
		}
	}
	return left, nil
}
