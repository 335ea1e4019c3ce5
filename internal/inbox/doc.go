// Package inbox applies each received event once, whatever its sender does:
// repeats it, sends it to two processes at once, or sends it again after a week.
//
// The promise is one row and one commit. An event has a row, unique by consumer
// and event id, that is written in the same transaction as the event's effect.
// At no moment does one exist without the other, so the row is not a note about the
// effect but its proof. Looking the row up first and
// writing it afterwards, or in a transaction of its own, would be a check and an
// act with a gap between them, and a kill finds that gap.
//
// # Two ways in
//
// Receive stores an event for later, in one statement. It is for senders that want an
// answer at once and resend until they get one: Stripe's webhooks. The Processor applies
// it. Events that arrive at the same time go through an Intake, where they share
// statements and commits, and nothing else: an event that cannot be stored does not keep
// out its neighbours.
//
// Consumer applies a broker's message while the broker waits, in one transaction, and
// acknowledges it after the commit. If that fails, the message is stored in our table
// and acknowledged: what is retried, for how long, and what happens in the end is decided
// here, where it can be queried, and not by a broker's redelivery limit, beyond which
// messages vanish.
//
// # Order
//
// A message with a subject and a version is applied after all earlier ones of
// its subject that have arrived, also when an earlier one failed and is being
// retried, or is parked. Stripe's events have no order; what they mean is read
// from the object they are about.
//
// # When something dies
//
//	before the commit   neither row nor effect; the sender sends it again
//	after the commit    both; the repetition finds the row and is dropped
//	commit in doubt     one of these two: the row decides when the event comes again
//	paused for long     two processes have it; the second waits for the first's
//	                    row, or its lease token is stale; one effect
//
// # What a handler must know
//
// Apply runs in the transaction and holds a connection: no network call in it,
// and it may run again if the commit fails. Whatever must be asked of other systems
// first, such as the state of an object at Stripe, is asked in Prepare, with no
// transaction open. Prepare may run any number of times, in several processes at once, so
// it changes nothing.
//
// The payload of an event is kept until the event is applied, also while it is parked,
// and dropped in the commit that applies it, because a webhook of Stripe's contains a
// client secret. Its digest stays, and its sender still has the event.
//
// A handler that fails is tried again with growing pauses, and after a bound its event is
// parked: kept, counted, and waiting for a person (Unpark). A panic is a failure. An
// attempt is counted before it is made, so an event that kills its process is parked,
// too.
//
// # Not promised
//
// Effects outside of the database, made in Prepare, may happen more than once. And an
// event that is repeated after Retention counts as new. Retention is longer than Stripe
// and our brokers keep what they could repeat.
package inbox
