// Package protocol is a model of the payment protocol, small enough that every interleaving of it can be visited.
//
// A state of the model is everything at one moment: the rows of an order, its payments, keys, calls, refunds and what
// is owed; the intents and refunds at Stripe, and what Stripe remembers under its keys; two processes and what they
// hold in memory; requests on their way; and what clients have been told. A step is the smallest thing that another
// process can see: one commit, one request executed at Stripe, one response received, one object read. Explore visits
// all states in the order of their distance from the first, so the first violation that it finds has the shortest
// history. From each state in which no process works it also follows the fair end, in which no more faults happen and
// no webhook comes, and holds what is left against the invariants of the second kind: everything has ended or is
// parked, and Stripe and our rows agree.
//
// # How it is held to the code
//
// Where the code has a pure function the model calls it, so a change of the function is one of the model: package
// compare decides what the reconciler and the webhooks conclude (Intent, RefundOf, RefundTransition, MayConfirm,
// IsAbandoned, IsOwnRefund, NextNumber), calls.Exhausted when nothing is sent again, and the constants of
// idempotency, calls, compare and payments when something is parked, forgotten or abandoned. What a response of
// Stripe means is asked of the service's own client, over a socket. Where the code's rule is inside a method with a
// transaction or in SQL, the model states it again, and each step and each rule names the functions and statements
// that it stands for. Tests compare the rest: the code of those names is what it was when the model was last compared
// with it (places.txt); the recovery points, statuses and operations are the code's, all of them or with a reason; and
// the transitions that the model takes are those that the triggers of a real database allow.
//
// A rule can be left out (Rules). For each one a test requires that the invariant that it keeps is then found broken,
// so no invariant is one that cannot fail.
//
// # What it assumes
//
//   - Stripe keeps its promises: a key that is less than a day old repeats its response, an intent that is paid or
//     canceled is confirmed no more, what was refunded and is left is counted right, and a list shows everything.
//   - A request arrives within half a day or never, and no process is paused inside a run for longer than that.
//   - A commit is atomic, and reads see what was committed. Row locks are the atomicity of a step.
//   - A webhook, and each thing that the reconciler reads, is read, compared and written in one step: what a read shows
//     is never old when it is applied.
//   - A process is one run at a time, and either of the two does what the other can, so states that differ only in
//     which of them does something are one.
//   - Time passes by 13 hours at once, while no process works. Limits that are shorter than a commit apart are not
//     told from one another: when a lease runs out, a retry is due or a poll comes is any time at all.
//   - Another program pays only intents that the service has recorded, or those of an order that was canceled. An
//     intent that the service never heard of and that is paid elsewhere is a second charge that no service could
//     prevent.
//   - Between what a restore has lost and the next request of a client no day passes, so Stripe still knows the keys,
//     unless `api restored` follows the restore (Scope.Announced).
//     The reconciler reads what was lost within minutes, and after `api restored` before a payment makes an intent.
//
// # What it does not cover
//
//   - More than one order, two processes, three clients' keys and three intents; amounts other than half and whole.
//   - Checkouts, disputes, registered operations, operators' repairs, the outbox, the broker and deliveries to
//     tenants.
//   - The search for an intent in parts: it is one step, and a backup is never made in the middle of it
//     (TestBackupDuringASearch is).
//   - An earlier intent of an order that nothing has used for a day, and is canceled before another is made. Others than
//     the service change no intent from one kind of capture to the other. An authorization that Stripe does not say the end
//     of is read once more; in the model it always says it.
//   - The cancel of an intent that another payment of the order makes way for, as a call of its own: it is one step with
//     the look that leads to it.
//   - What Stripe releases of an authorization and shows as a refund (internal/stripe's tests have both regimes).
//   - The details of waiting: the turn of refunds of one payment, rate limits, the breaker, how long pauses are.
//   - More than one retry of what is owed: the code has five, and parks after the last as the model does after its
//     one.
//   - Refunds that are pending when others make them or when they are found after a restore; amounts or metadata that
//     somebody has edited at Stripe (compare's own tests have them).
package protocol
