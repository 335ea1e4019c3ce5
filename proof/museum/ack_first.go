package main

import "context"

// Acknowledge, then work.
//
// Who teaches it: no text. It is the default of several clients:
// automatic acknowledgement, offsets committed by a timer. It looks right because
// the queue is short, and no message is ever seen twice.
//
// Why it fails: a process that is killed between the two has let the broker
// drop what it has not done yet. At most once, and sometimes not at all.
//
// The cure: the broker may drop the message when the effect is committed, or the message
// is in our own table.
var ackFirst = exhibit{
	name: "ack_first", pattern: "acknowledge, then commit", taught: "folklore, clients' defaults",
	cure:     "internal/inbox/consumer.go, Handle",
	scenario: crashesAfterAck, shows: neverBooked,
	wrong: func(s *side) shop {
		s.setup(booksTables)
		return shop{Booked: bookedQuery, Receive: func(ctx context.Context, m message, ack func()) {
			ack()
			s.book(ctx, s.DB, m)
		}}
	},
}
