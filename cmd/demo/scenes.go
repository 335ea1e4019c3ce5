package main

// scenes is the story, in the order in which it is told. Each has orders of its
// own, so that the last column of the table can be read line by line.
var scenes = []scene{
	{
		title: "A customer pays",
		why:   "An order is made, and paid with a card. Every request carries an Idempotency-Key.",
		play:  aCustomerPays,
	},
	{
		title: "The shop asks again",
		why:   "It never saw the answer, so it repeats the request under the same key: at the other process, the\nJSON written differently, the key in quotes. That means the same, so it gets the same answer.",
		play:  theShopAsksAgain,
	},
	{
		title: "Fifty clicks at once",
		why:   "The same payment arrives fifty times at the same moment, at both processes. Stripe is slow today.",
		play:  fiftyClicks,
	},
	{
		title: "A key is used for something else",
		why:   "A bug in the shop sends another customer's order under a key that is taken.",
		play:  aKeyIsUsedTwice,
	},
	{
		title: "Two tabs, two keys, one order",
		why:   "The customer pays one order in two browser tabs. Different keys do not make it two payments.",
		play:  twoTabs,
	},
	{
		title: "The card is declined",
		why:   "A decline is an answer, too: kept and repeated. Another card is a new intent, with a new key.",
		play:  theCardIsDeclined,
	},
	{
		title: "The bank wants to see the customer",
		why:   "3-D Secure: the payment waits for the customer, and is finished once the customer has acted.",
		play:  theBankAsks,
	},
	{
		title: "Money goes back",
		why:   "Part of a payment is refunded, twice under one key; then two clerks refund more than is left.",
		play:  moneyGoesBack,
	},
	{
		title: "Stripe's webhooks stutter",
		why:   "Again 3-D Secure, but the shop never asks again. Stripe's webhooks finish the payment, although the\nimportant one comes three times and an older one comes last.",
		ours:  true,
		play:  webhooksStutter,
	},
	{
		title: "A checkout is undone",
		why:   "Order, stock, payment, notice: four steps. When the card is declined, the ones before it are undone.",
		play:  aCheckoutIsUndone,
	},
	{
		title: "The last three cups",
		why:   "Twelve customers want one of three cups at the same moment.",
		play:  theLastThreeCups,
	},
	{
		title: "A consumer is killed before it can acknowledge",
		why:   "The ledger books a payment, and dies before the broker hears of that. It will be told again.",
		ours:  true,
		play:  aConsumerIsKilled,
	},
	{
		title: "The broker is killed",
		why:   "Whoever wants to hear of payments has to wait. Whoever wants to pay does not.",
		ours:  true,
		play:  theBrokerIsKilled,
	},
	{
		title: "Stripe's answer gets lost",
		why:   "Stripe takes the money, and then the connection breaks. Nobody here can know whether it did.",
		play:  stripesAnswerGetsLost,
	},
	{
		title: "Stripe's answer to a refund gets lost",
		why:   "The same on the way back. A refund sent twice would be money lost twice.",
		play:  stripesAnswerToARefundGetsLost,
	},
	{
		title: "kill -9 at the worst moment",
		why:   "Stripe has taken the money; the process that asked for it is killed before it can write that down.",
		ours:  true,
		play:  killedInTheWorstMoment,
	},
	{
		title: "A checkout is killed at every step",
		why:   "Six checkouts, and six processes that each die at a different step.",
		ours:  true,
		play:  killedAtEveryStep,
	},
	{
		title: "Asked again, much too late",
		why:   "Stored answers expire. What was done under a key is known for ever, and never done again.",
		ours:  true,
		play:  muchTooLate,
	},
	{
		title: "The database goes back in time",
		why:   "Two customers pay, and then the database must be restored from an older backup.",
		ours:  true,
		play:  theDatabaseGoesBack,
	},
}
