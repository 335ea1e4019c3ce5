// Package payments holds the money: orders, payments and refunds, and the way each goes
// from a request to its answer.
//
// Who is authoritative: Stripe, about whether money moved; our own tables, about everything else. A
// payment is three short phases with two calls between them, and no transaction is open during a call:
//
//	beginPayment   claim the key, record the payment          one commit
//	  create the PaymentIntent, unconfirmed                   no money moves
//	recordIntent   store its id                               one commit
//	  confirm it under the caller's key                       THE MONEY MOVES
//	finish         outcome, order, events, answer             one commit
//
// One order has one live PaymentIntent. So the worst case, a confirm whose response
// was lost, is settled by reading one object, however long ago it was sent, and
// Stripe itself refuses to confirm an intent that is already paid.
//
// A call has four outcomes (stripe.Effect): done, refused for good, not executed, or unknown.
// Unknown is a state a payment can be in. It is never stored as an answer and never a reason to
// compensate. It is resolved by reading the intent; failing that, by repeating the call under the
// same key while Stripe still remembers the key; and failing that, by canceling the intent, after
// which no money can move and the payment has definitely failed.
//
// If a process is killed, at any line, the completer calls the same function from the last recovery
// point. While Stripe is down, payments stay processing. A client that disconnects changes nothing.
//
// A payment can be a step of another operation, such as a checkout. Then the other
// operation says what happens when it ends (Ending); this package does not know it. An
// operation of one's own that makes charges itself registers them (Registered).
//
// # Where to find what
//
// Start with payment.go, the payment's life on one screen.
//
//	payment.go                  a payment in which nothing goes wrong
//	batches.go                  its statements over arrays, each named after its query in
//	                            db/queries/payments.sql: the rows of concurrent requests
//	                            as one (postgres.Batched)
//	payment_resume.go           what is reached only when a call was sent before
//	refund.go, refund_begin,    a refund: what it is, its first phase, the run,
//	refund_run, refund_finish   its end
//	refund_seen.go              refunds as Stripe lists them, also those of others
//	refund_owed.go              automatic refunds that failed
//	cancel.go, cancel_intent    canceling an order or a payment, and its intent
//	orders.go                   orders
//	objects.go, reads.go        what the API shows, and the GET endpoints
//	events.go                   events, and the data of those that are stored without it
//	webhook.go                  Stripe's events
//
//	service.go, operations.go   the Service, its errors, the table of operations
//	gateway.go                  what is needed of a provider
//	order_rows.go, registered   our rows for a comparison with Stripe (package compare)
//	repairs.go                  what the reconciler and an operator may have done:
//	  repair_adopt              create the rows of money that has none
//	  repair_cancel_abandoned   cancel an intent that no payment will confirm
//	  repair_find_intent        find an intent whose creation was not recorded
//	  repair_refund_orphan      refund money that belongs to no payment
//	  repair_manual             what an operator asks for
package payments
