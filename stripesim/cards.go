package stripesim

import "strings"

// card is one of Stripe's test cards and what it does when it is charged.
type card struct {
	token   string // pm_card_…; the same with tok_ in front is its card token
	number  string
	brand   string
	country string
	funding string

	code, decline string // refused with these
	message       string
	radar         bool // blocked by Stripe before the issuer was asked

	authenticate bool   // 3-D Secure before it can be charged on session
	dispute      string // the reason it is disputed with, once charged
	inquiry      bool   // the dispute is only an inquiry
	refund       string // the outcome of its refunds: pending or failed
}

const (
	declinedMessage = "Your card was declined."
	authMessage     = "Your card was declined. This transaction requires authentication."
)

var cards = []card{
	{token: "pm_card_visa", number: "4242424242424242", brand: "visa"},
	{token: "pm_card_visa_debit", number: "4000056655665556", brand: "visa", funding: "debit"},
	{token: "pm_card_mastercard", number: "5555555555554444", brand: "mastercard"},
	{token: "pm_card_mastercard_debit", number: "5200828282828210", brand: "mastercard", funding: "debit"},
	{token: "pm_card_mastercard_prepaid", number: "5105105105105100", brand: "mastercard", funding: "prepaid"},
	{token: "pm_card_amex", number: "378282246310005", brand: "amex"},
	{token: "pm_card_discover", number: "6011111111111117", brand: "discover"},
	{token: "pm_card_diners", number: "3056930009020004", brand: "diners"},
	{token: "pm_card_jcb", number: "3566002020360505", brand: "jcb"},
	{token: "pm_card_unionpay", number: "6200000000000005", brand: "unionpay"},
	{token: "pm_card_bypassPending", number: "4000000000000077", brand: "visa"},

	{
		token: "pm_card_visa_chargeDeclined", number: "4000000000000002", brand: "visa", code: "card_declined",
		decline: "generic_decline", message: declinedMessage,
	},
	{
		token: "pm_card_chargeDeclined", number: "4000000000000002", brand: "visa", code: "card_declined",
		decline: "generic_decline", message: declinedMessage,
	},
	{
		token: "pm_card_visa_chargeDeclinedInsufficientFunds", number: "4000000000009995", brand: "visa",
		code: "card_declined", decline: "insufficient_funds", message: "Your card has insufficient funds.",
	},
	{
		token: "pm_card_chargeDeclinedInsufficientFunds", number: "4000000000009995", brand: "visa",
		code: "card_declined", decline: "insufficient_funds", message: "Your card has insufficient funds.",
	},
	{
		token: "pm_card_visa_chargeDeclinedLostCard", number: "4000000000009987", brand: "visa", code: "card_declined",
		decline: "lost_card", message: declinedMessage,
	},
	{
		token: "pm_card_visa_chargeDeclinedStolenCard", number: "4000000000009979", brand: "visa",
		code: "card_declined", decline: "stolen_card", message: declinedMessage,
	},
	{
		token: "pm_card_chargeDeclinedExpiredCard", number: "4000000000000069", brand: "visa", code: "expired_card",
		message: "Your card has expired.",
	},
	{
		token: "pm_card_chargeDeclinedIncorrectCvc", number: "4000000000000127", brand: "visa", code: "incorrect_cvc",
		message: "Your card's security code is incorrect.",
	},
	{
		token: "pm_card_chargeDeclinedProcessingError", number: "4000000000000119", brand: "visa",
		code: "processing_error", message: "An error occurred while processing your card. Try again in a little bit.",
	},
	{
		token: "pm_card_visa_chargeDeclinedVelocityLimitExceeded", number: "4000000000006975", brand: "visa",
		code: "card_declined", decline: "card_velocity_exceeded", message: declinedMessage,
	},
	{
		token: "pm_card_chargeDeclinedFraudulent", number: "4100000000000019", brand: "visa", code: "card_declined",
		decline: "fraudulent", message: declinedMessage, radar: true,
	},
	{
		token: "pm_card_radarBlock", number: "4100000000000019", brand: "visa", code: "card_declined",
		decline: "fraudulent", message: declinedMessage, radar: true,
	},
	{
		token: "pm_card_chargeCustomerFail", number: "4000000000000341", brand: "visa", code: "card_declined",
		decline: "generic_decline", message: declinedMessage,
	},

	{token: "pm_card_threeDSecure2Required", number: "4000000000003220", brand: "visa", authenticate: true},
	{token: "pm_card_threeDSecureRequired", number: "4000000000003063", brand: "visa", authenticate: true},
	{
		token: "pm_card_authenticationRequired", number: "4000002760003184", brand: "visa", country: "DE",
		authenticate: true,
	},
	{
		token: "pm_card_authenticationRequiredOnSetup", number: "4000002500003155", brand: "visa", country: "FR",
		authenticate: true,
	},
	{
		token: "pm_card_threeDSecureRequiredChargeDeclined", number: "4000008400001629", brand: "visa",
		authenticate: true, code: "card_declined", decline: "generic_decline", message: declinedMessage,
	},

	{token: "pm_card_createDispute", number: "4000000000000259", brand: "visa", dispute: "fraudulent"},
	{
		token: "pm_card_createDisputeProductNotReceived", number: "4000000000002685", brand: "visa",
		dispute: "product_not_received",
	},
	{
		token: "pm_card_createDisputeInquiry", number: "4000000000001976", brand: "visa", dispute: "general",
		inquiry: true,
	},

	{token: "pm_card_pendingRefund", number: "4000000000007726", brand: "visa", refund: "pending"},
	{token: "pm_card_refundFail", number: "4000000000005126", brand: "visa", refund: "failed"},
}

var cardsByName = func() map[string]*card {
	m := map[string]*card{}
	for i := range cards {
		c := &cards[i]
		if c.country == "" {
			c.country = "US"
		}
		if c.funding == "" {
			c.funding = "credit"
		}
		m[c.token] = c
		m["tok_"+strings.TrimPrefix(c.token, "pm_card_")] = c
		if m[c.number] == nil {
			m[c.number] = c
		}
	}
	return m
}()

func (c *card) last4() string { return c.number[len(c.number)-4:] }

// fingerprint is the same for the same number everywhere.
func (c *card) fingerprint() string {
	var h uint64
	for _, b := range []byte(c.number) {
		h = mix(h ^ uint64(b))
	}
	return letters(h, 1, 16)
}
