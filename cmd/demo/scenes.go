package main

// scene is one part of the demo.
type scene struct {
	title string
	text  string // printed under the title: what happens
	// localOnly scenes kill processes, change where webhooks go or use Stripe with the shop's key, so they need a system
	// that the demo started: -against skips them.
	localOnly bool
	short     bool // played without -all: together about ten seconds
	play      func(*sceneRun)
}

// scenes are played in this order. Each has orders of its own, so that the last
// column of the table can be read line by line.
var scenes = []scene{
	{
		title: "A customer pays",
		text:  "An order is created and paid with a card. Every request carries an Idempotency-Key.",
		play:  customerPays,
	},
	{
		title: "The shop retries",
		text: "The shop never received the response, so it repeats the request with the same key: to the other " +
			"process, with the JSON written differently and the key in quotes. It gets the same response.",
		play: shopRetries,
	},
	{
		title: "Fifty duplicates at once",
		text:  "One payment request is sent fifty times at once, to both processes, while Stripe is slow.",
		short: true,
		play:  fiftyDuplicates,
	},
	{
		title: "A key is reused for another order",
		text:  "A bug in the shop sends another customer's order with a key that was used before.",
		play:  keyReused,
	},
	{
		title: "Two tabs, two keys, one order",
		text:  "The customer pays one order in two browser tabs. Different keys do not make it two payments.",
		play:  twoKeysOneOrder,
	},
	{
		title: "The card is declined",
		text:  "A decline is stored and replayed too. Paying with another card is a new request with a new key.",
		play:  cardDeclined,
	},
	{
		title: "The bank requires 3-D Secure",
		text:  "The bank asks the customer to confirm. The payment waits, and is completed after the confirmation.",
		play:  bankAuthentication,
	},
	{
		title: "Refunds",
		text:  "Part of a payment is refunded, twice with one key; then two refunds at once exceed what is left.",
		play:  partialRefunds,
	},
	{
		title: "An authorization is released",
		text: "The shop authorizes and does not capture. It cancels the payment: the money is released, nothing was " +
			"taken, and the order can be paid with another card.",
		play: authorizationReleased,
	},
	{
		title: "Webhooks are repeated and out of order",
		text: "3-D Secure again, but the shop does not retry. Stripe's webhooks complete the payment, although the " +
			"important one is delivered three times and an older one arrives last.",
		localOnly: true,
		play:      webhooksRepeatedAndReordered,
	},
	{
		title: "Two disputes",
		text: "Two customers ask their banks for their money. The shop submits evidence of both at Stripe; one " +
			"dispute is won, the other is lost.",
		localOnly: true,
		play:      disputesWonAndLost,
	},
	{
		title: "A checkout is compensated",
		text: "A checkout has four steps: order, stock, payment, notification. When the card is declined, it undoes " +
			"the first two.",
		play: checkoutCompensated,
	},
	{
		title: "Three cups, twelve buyers",
		text:  "Twelve customers try to buy one of three cups at the same moment.",
		play:  limitedStock,
	},
	{
		title: "A consumer is killed before it acknowledges",
		text: "The ledger books a payment and is killed before it acknowledges the event. The broker delivers " +
			"it again.",
		localOnly: true,
		play:      consumerKilled,
	},
	{
		title:     "The broker is killed",
		text:      "Events wait in the database until the broker is back. Payments do not wait.",
		localOnly: true,
		play:      brokerKilled,
	},
	{
		title: "Stripe's response is lost",
		text:  "Stripe charges the card, then the connection breaks. The API cannot know of the charge.",
		short: true,
		play:  stripeResponseLost,
	},
	{
		title: "Stripe's response to a refund is lost",
		text:  "The same for a refund. Sending it twice would refund the money twice.",
		play:  refundResponseLost,
	},
	{
		title:     "kill -9 after the charge",
		text:      "Stripe has charged the card. The API process is killed before it can record that.",
		localOnly: true,
		short:     true,
		play:      killedAfterTheCharge,
	},
	{
		title: "kill -9 in the middle of a capture",
		text: "An order is authorized, and captured in part when it is shipped. Stripe has captured; the API process " +
			"is killed before it can record that.",
		localOnly: true,
		play:      killedInACapture,
	},
	{
		title:     "A checkout is killed at every step",
		text:      "Six checkouts; each is interrupted at a different step, because its process is killed.",
		localOnly: true,
		play:      checkoutKilledAtEveryStep,
	},
	{
		title:     "A retry after the stored response expired",
		text:      "Stored responses expire. The key is kept, so its request is never executed a second time.",
		localOnly: true,
		play:      keyExpired,
	},
	{
		title: "The database is restored from a backup",
		text: "Two customers pay. Then the database is lost, and restored from a backup that is older than the " +
			"payments.",
		localOnly: true,
		play:      databaseRestored,
	},
}
