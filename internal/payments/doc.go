// Package payments holds the money: orders, payments, refunds and checkouts, and
// the way each goes from a request to its answer.
//
// Who is authoritative: Stripe, about whether money moved; our own tables, about
// everything else. A payment is three short phases with two calls between them,
// and no transaction is open during a call:
//
//	Begin          claim the key, record the payment          one commit
//	  create the PaymentIntent, unconfirmed                   no money moves
//	createIntent   store its id                               one commit
//	  confirm it under the caller's key                       THE MONEY MOVES
//	confirm        outcome, order, events, answer             one commit
//
// One order has one live PaymentIntent. So the worst case, a confirm whose answer
// was lost, is settled by reading one object, however long ago it was sent, and
// Stripe itself refuses to confirm an intent that is already paid.
//
// A call has four outcomes (Verdict): done, refused for good, not executed, or
// unknown. Unknown is a state a payment can be in. It is never stored as an
// answer and never a reason to compensate. It is resolved by reading the intent;
// failing that, by repeating the call under the same key while Stripe still
// remembers the key; and failing that, by canceling the intent, after which no
// money can move and the payment has definitely failed.
//
// What happens when something dies: a process, at any line, and the completer
// calls the same function from the last recovery point; Stripe, and payments
// stay processing until it answers; the caller, and nothing changes.
//
// # Where to find what
//
// Start with pay.go, the payment's life on one screen.
//
//	service.go                      the Service, its errors, the table of operations
//	pay.go, pay_begin, pay_settle   a payment: run, first phase, last phase
//	refund.go, refund_begin, …      a refund, in the same three parts
//	cancel.go, cancel_intent.go     canceling an order or a payment, and its intent
//	checkout.go                     the saga; checkout_forward, checkout_pay, checkout_undo
//	                                and checkout_expire are its steps and compensations
//	orders.go, stock.go, money.go   orders, stock and reservations, currencies and amounts
//	objects.go, reads.go, id.go     what the API shows, and the GET endpoints
//
//	gateway.go                      what we need of a provider: Gateway, stripe.Outcome, Verdict
//	stripe.go, stripe_transport.go  the Gateway for Stripe; classify.go reads its replies,
//	                                stripe_limits.go keeps to its rate limits
//	calls.go                        the identity of each call, and the record of each attempt
//	waiting.go                      what to do while an outcome is unknown
//	lost_intent.go                  finding an intent whose creation nobody recorded
//
//	webhook.go                      Stripe's events
//	reconcile.go                    Stripe's objects against our rows, all the time: judge.go
//	                                compares two, comparer.go walks the lists, adopt.go and
//	                                sweep.go repair; audit.go does the same and only reports
//	operator.go, ghost_refund.go    what a person can have done
//	story.go, story_verdict.go      the story of a key, for GET /v1/idempotency-keys/{key}
package payments
