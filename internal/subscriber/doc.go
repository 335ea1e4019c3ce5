// Package subscriber applies our own events in a consumer of ours, without trusting the broker that announces them.
//
// # What is believed
//
// A client that can publish to the broker can send any message under any id, and an event's id can be predicted: it is the id of
// an order or payment and a version. So a message is only a hint that there is an event. What is applied is our own row in
// the outbox, rendered by the code with which the relay renders it.
//
//	no row of ours           the message is forged, or older than outbox.Retention; nothing is stored
//	a row, other bytes       the message was changed; our row is applied
//	a row, whose customer    the message is from before the erasure (package erasure); our row is applied
//	was erased
//	a row, the same bytes    our row is applied
//
// Nothing is stored under the id of a message that has no row: such a row would be taken for proof that the event with
// this id was applied, once it comes. Forged messages are counted (payonce_forged_messages_total), logged and
// acknowledged.
//
// # What no message announces
//
// A broker that deduplicates drops the relay's message if a forged one with its id came first, and a message may be
// deleted there. So RunOnce goes through the feeds of all tenants (package outbox), event by event, and applies what the
// consumer has not received some seconds after it was written. consumer_positions has how far it has come. So events are
// applied also while the broker is away, only later.
//
// # Order
//
// Before an event, the earlier ones of its subject are applied, from their rows: a message that comes early, and one that
// was dropped, change no order.
//
// # Failures
//
// A crash between the effect and the acknowledgement, or the position, repeats the event, and the inbox drops it. Two
// processes that go through the feeds at once do the same work; the inbox lets one of them apply an event.
//
// An event whose row cannot be rendered, because its order or payment cannot be read, is not applied, and neither are
// the later ones of its subject. It is logged at every pass, and the position stays before it until its row is repaired.
//
// # Not promised
//
// Consumers of others read the broker itself. They are as safe as the broker's credentials: see deploy/nats.conf.
package subscriber
