// Package inbox applies each received event once, also if its sender repeats it, sends it to two processes at the same
// time, or sends it again after a week.
//
// The promise is one row and one commit. An event has a row, unique by consumer and
// event id, that is written in the same transaction as the event's effect. At no
// moment does one exist without the other, so the row is not a note about the
// effect but its proof. Looking the row up first and writing it afterwards, or in
// another transaction, would be a check and an act with a gap between them, in
// which a process can crash.
//
// # Two ways in
//
// Receive stores an event for later, in one statement. It is for senders that need a response soon and resend until
// they get one: Stripe's webhooks. The Processor applies it. Events that arrive at the same time go through an Intake,
// where they share statements and commits, and nothing else: an event that cannot be stored does not keep out its
// neighbours.
//
// Consumer applies an event of our own (package subscriber) while the broker waits, in one transaction, and acknowledges it after the commit.
// If that fails, the message is stored in our table and acknowledged: retries, their limit and what follows are decided
// here, where they can be queried, and not by a broker's redelivery limit, beyond which messages are dropped.
//
// A handler is asked first which events it would do nothing with (Settled): most webhooks are about a payment whose
// response has said the same already. Those share a statement and a commit, and are not leased.
//
// # Order
//
// A message with a subject and a version is applied after all earlier ones of
// its subject that have arrived, also when an earlier one failed and is being
// retried, or is parked. Stripe's events have no order; the object that they are about
// is read from Stripe instead.
//
// # Failures
//
//	crash before the commit   neither row nor effect; the sender sends it again
//	crash after the commit    both; the repetition finds the row and is dropped
//	commit in doubt           one of these two: the row decides when it is sent again
//	paused for long           two processes have it; the second waits for the first's
//	                          row, or its lease token is stale; one effect
//
// # Rules for handlers
//
// Apply runs in the transaction and holds a connection: it makes no network call, and it may run again if the commit
// fails. State of other systems, such as an object at Stripe, is read before that in Prepare, with no transaction open.
// Prepare may run any number of times, in several processes at the same time, so it changes nothing.
//
// The payload of an event is kept until the event is applied, also while it is parked,
// and dropped in the commit that applies it. Its digest stays, and its sender still has
// the event.
//
// A handler that fails is retried with growing pauses, and after a limit its event is parked: kept, counted, and
// waiting for an operator (Unpark). A panic is a failure. An attempt is counted before it is made, so an event that
// crashes its process is parked, too.
//
// What does not count is an outage: while Stripe or the database is away (ErrAway) every event would fail, and a few
// hours would park them all. Those attempts go on, once a minute, until an answer says something about the event.
//
// # Not promised
//
// Effects outside of the database, made in Prepare, may happen more than once. And an
// event that is repeated after Retention counts as new. Retention is longer than Stripe
// and the brokers keep messages that they could repeat.
package inbox
