package disputes

// evidence says what convinces a bank, by Stripe's reason.
var evidence = map[string]string{
	"fraudulent": "That the cardholder ordered: 3-D Secure, address and IP address, earlier orders that were not " +
		"disputed, the signature of the delivery.",
	"unrecognized":         "That the cardholder ordered: the receipt, the description on the statement, earlier orders.",
	"product_not_received": "The carrier's number and the proof of delivery to the address of the order.",
	"product_unacceptable": "The description at the time of the order, and what was offered to the customer.",
	"duplicate": "That both payments were ordered: the histories of their two keys show two orders and two " +
		"charges.",
	"credit_not_processed":  "The refund with Stripe's id, or the terms that exclude one.",
	"subscription_canceled": "The terms, and that it was not canceled in time.",
}

// Evidence is what to send to the bank for a reason of Stripe's.
func Evidence(reason string) string {
	if text, ok := evidence[reason]; ok {
		return text
	}
	return "The order, the receipt, the terms and the correspondence with the customer."
}

// DashboardURL is where a dispute is answered.
func DashboardURL(stripeID string) string { return "https://dashboard.stripe.com/disputes/" + stripeID }
