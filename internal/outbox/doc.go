// Package outbox publishes every change, exactly once in effect, and the changes of one
// order, payment or refund in the order they happened.
//
// # The three writes
//
// A broker and a database cannot commit together. So an event is a row, written
// by Append in the transaction of the change it reports. The relay sends it later, in
// three steps, after each of which the process may crash:
//
//	lease     one transaction: a row of outbox_leases lists the heads of the batch,
//	          each the oldest event of its aggregate; what follows them belongs to it
//	publish   no transaction open; the broker acknowledges the events
//	mark      one transaction, which also deletes the lease; without it, none
//
//	crash before the lease    the event is stored, and not leased
//	crash before publishing   the lease expires; another relay sends it
//	crash before the mark     the lease expires; it is sent again, with the same id
//	paused past its lease     another relay has deleted the lease and sends the events;
//	                          ours marks nothing (payonce_outbox_fenced_total)
//	paused during the lease   it holds OutboxLock, and all relays wait; after 2 s PostgreSQL ends
//	                          its session, nothing is leased, and they go on (a wait that
//	                          lasts 5 s would be an error, and tried again)
//	broker unreachable        no attempt is counted against an event; due events
//	                          are sent when the broker can be reached
//	database unreachable      the same
//
// Marking first and publishing afterwards would lose the event in the second case, without a trace.
//
// # Order
//
// An aggregate's row lock gives its changes their versions; (aggregate, version)
// is the identity of an event, and a primary key. Sequences and transaction ids
// do not follow the order of commits, so no cursor over them is used:
// every row has its own published_at.
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
// no event ever appears before a reader's cursor. So an event's position is given
// after its commit, under the lock of the tenant's row in event_feeds: by the
// relay when it marks, or by a reader that finds committed events without one.
// Both place earlier events first, whichever relay leased them.
// The reader's makes the feed complete without relay and broker; the relay's lets
// readers read without writing. Positions count without a gap.
//
// # Retention
//
// Published events stay for Retention, so that Replay can send again what a
// broker has lost, and readers can be offline for as long. Then the reaper removes
// them. A cursor whose event was removed still works if no event after it was,
// which is so for every reader that is up to date, however long the tenant
// had no events; otherwise it is ErrUnknownCursor, because the reader would silently
// miss events. It then starts again, from the oldest event kept.
//
// # Not promised
//
// A broker that loses what it acknowledged needs Replay, because the relay cannot detect it. After that the
// first-occurrence rule holds again for the events that were sent.
package outbox
