package main

import "context"

// Note that it was seen, then do the work.
//
// Who teaches it: [2], which calls it the right order, and adds that a
// transaction around both is better. It looks right because two consumers cannot
// both insert the note.
//
// Why it fails: without that transaction the note is a promise that a dead
// process made. The next delivery finds it, and has nothing to do.
//
// The cure: that transaction. It is not the better way, it is the way.
var noteThenBook = exhibit{
	name: "note_then_book", pattern: "inbox: note, then work", taught: "[2]",
	cure:     "internal/inbox/consumer.go, apply: one transaction",
	scenario: crashesAtWork, shows: neverBooked,
	wrong: func(s *side) shop {
		s.setup(booksTables)
		return shop{Booked: bookedQuery, Receive: func(ctx context.Context, m message, ack func()) {
			if noted(ctx, s.DB, m.ID) {
				s.book(ctx, s.DB, m)
			}
			ack()
		}}
	},
}
