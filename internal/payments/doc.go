// Package payments holds the money: orders, payments, refunds and the way each
// goes from a request to its answer.
//
// Who is authoritative: Stripe, about whether money moved; the orders and
// payments tables, about everything else. A payment is three short phases with
// two calls between them, and no transaction is open during a call:
//
//	Begin          claim the key, record the payment          one commit
//	  create the PaymentIntent, unconfirmed                   no money moves
//	createIntent   store its id                               one commit
//	  confirm it under the caller's key                       THE MONEY MOVES
//	confirm        outcome, order, events, answer             one commit
//
// One order has one live PaymentIntent. That is why the worst case, a confirm
// whose answer was lost, is settled by looking at one object, at any age, and
// why a second confirm of something paid is refused by Stripe itself.
//
// A call has four outcomes (Verdict): done, refused for good, not executed,
// unknown. Unknown is a state a payment can be in, never an answer that is
// stored, never a reason to compensate. What resolves it, in this order: the
// intent as Stripe shows it; the same call again under the same key, while
// Stripe still remembers the key; and where neither tells, canceling the intent,
// after which no money can move and the payment has definitely failed.
//
// What happens when each dies: a process at any line, the completer calls the
// same function from the last recovery point; Stripe, payments wait as
// processing and new ones too; the caller, nothing.
package payments
