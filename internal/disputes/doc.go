// Package disputes keeps the disputes of our payments as Stripe shows them.
//
// A dispute moves money on a payment of ours without a request to this service: the bank
// takes the amount and a fee, and may give the amount back months later. Nothing here
// decides anything. A dispute is read at Stripe and recorded in one transaction with what it
// changes: its movements, each once by the id of Stripe's balance transaction, what the
// payment and the order show as disputed, and its events.
//
// Events of Stripe arrive twice, in any order, or never. So an event is only the reason to
// read the dispute (webhook.go), and without any event Stripe's lists are read and every
// open dispute is read again (loop.go). Two readers at once do not undo each other: each
// remembers the version that was recorded before it read, and records nothing if that has
// changed since.
package disputes
