package demo

import "example.com/payonce/stripesim"

// What must not turn up in the console and in logs: numbers that a card could have (they pass Luhn's check), each sent in
// different ways, and secrets that people paste into the wrong place.
const (
	CardInAnAddress  = "6011111111111117"
	CardInAHeader    = "378282246310005"
	CardInABody      = "4242424242424242"
	CardAsAMethod    = "5555555555554444"
	CardInMetadata   = "5105105105105100"
	StripeKeyPasted  = "sk_live_sent_by_mistake"
	ForeignRawKey    = "raw-key-of-a-stranger"
	OfAClientSecret  = "_secret_"
	SomeClientSecret = "pi_1" + OfAClientSecret + "1"
)

// ForbiddenText must appear nowhere.
var ForbiddenText = map[string]string{
	"a card number in an address": CardInAnAddress, "a card number in a header": CardInAHeader,
	"a card number in a body":         CardInABody,
	"a card number as payment method": CardAsAMethod, "a card number in metadata": CardInMetadata,
	"another account's Stripe key":        StripeKeyPasted,
	"a raw key that is not the console's": ForeignRawKey, "a client secret": OfAClientSecret,
	"the Stripe key of the demo": stripesim.DefaultKey, "the webhooks' secret": "whsec_demo",
}
