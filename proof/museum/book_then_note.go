package main

import "context"

// Have we seen it? If not, do the work, then note that we have.
//
// Who teaches it: [1], as the inbox pattern, with a unique index to be safe. It
// looks right because the index refuses the second note.
//
// Why it fails: it is check-then-write at the other end of the system. The
// broker loses patience with a slow consumer and delivers to a second one; both
// look, both work, and the index refuses the second note of what was done twice.
//
// The cure: the note and the work are one transaction, and the note comes first.
var bookThenNote = exhibit{
	name: "book_then_note", pattern: "inbox: look, work, then note", taught: "[1]",
	cure:     "docs/adr/0012-inbox-row-and-effect.md",
	scenario: deliveredTwice, shows: bookedTwice,
	wrong: func(s *side) shop {
		s.setup(booksTables)
		return shop{Booked: bookedQuery, Receive: func(ctx context.Context, m message, ack func()) {
			var id string
			if !found(s.DB.QueryRow(ctx, `SELECT id FROM processed WHERE id = $1`, m.ID), &id) {
				s.book(ctx, s.DB, m)
				noted(ctx, s.DB, m.ID)
			}
			ack()
		}}
	},
}
