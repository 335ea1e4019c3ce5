// Package outbox publishes every change, exactly once in effect, and the changes of one
// order, payment or refund in the order they happened.
//
// # The three writes
//
// A broker and a database cannot commit together. So an event is a row, written
// by Append in the transaction of the change it reports. The relay sends it later, in
// three steps, after each of which the process may die:
//
//	lease     one statement: the head of each aggregate and what follows it
//	publish   no transaction open; the broker acknowledges it
//	mark      one transaction, under the token of the lease
//
//	dies before it leased     the event is there, unleased
//	dies before it published  the lease runs out; another relay sends it
//	dies before it marked     the lease runs out; it is sent again, same id
//	paused past its lease     another relay sent and marked it; our mark changes
//	                          no row (payonce_outbox_fenced_total)
//	broker away               no attempt is counted against an event; what is due
//	                          goes out when the broker is back
//	database away             the same
//
// Marking first and publishing afterwards would lose the event in the second
// case, and nobody would ever know.
//
// # Order
//
// An aggregate's row lock gives its changes their versions; (aggregate, version)
// is the identity of an event, and a primary key. Sequences and transaction ids
// say nothing about the order of commits, so nothing here is a cursor over them:
// every row carries its own published_at.
//
// Only the oldest unpublished event of an aggregate can be leased, together with
// those that follow it, so two relays never hold two events of one aggregate,
// and any number of them may run. Taking whatever is not locked (SKIP LOCKED
// alone) would hand version 1 to one relay and version 2 to a faster one. Within
// a batch an event leaves when the one before it is acknowledged. Therefore the
// broker's log always has the first occurrence of version n+1 after that of version n;
// repetitions may come at any time, even late, from a relay that was paused. Consumers
// dedupe by id and compare versions, never arrival times.
//
// # Poison
//
// An event that the broker rejects for good, or that fails many times while others
// pass, is parked: it holds back its own aggregate, and no other.
// Parked events are counted (payonce_outbox_parked), logged, and wait for Unpark.
//
// # The feed
//
// Readers of GET /v1/events need one order for all events of a tenant, in which
// nothing ever appears behind a reader's cursor. So an event's position is given
// after its commit, under the lock of the tenant's row in event_feeds: by the
// relay when it marks, or by a reader who finds committed events without one.
// Both place what was written first first, be it theirs or another relay's.
// The reader's way makes the feed complete without relay and broker; the relay's
// makes reading it free of writes. Positions count without a gap.
//
// # Retention
//
// Published events stay for Retention, so that Replay can send again what a
// broker has lost, and readers can be away for as long. Then the reaper removes
// them. A cursor whose event was removed still works if nothing after it was,
// which is the case of every reader who is up to date, however long the tenant
// was quiet; otherwise it is ErrUnknownCursor, because going on would skip
// events without a word. The reader then starts over, from the oldest event kept.
//
// # Not promised
//
// A broker that loses what it acknowledged, while we cannot tell, needs Replay.
// After that the first-occurrence rule holds again for what it sends.
package outbox
