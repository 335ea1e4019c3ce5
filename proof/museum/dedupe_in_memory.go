package main

import (
	"context"
	"sync"
)

// The consumer remembers which ids it has seen, in a map or a cache.
//
// Who teaches it: folklore; a Redis with an expiry is the same with more wires.
// It looks right because repetitions come within seconds.
//
// Why it fails: they come because a process has exited. The process does the work,
// commits, and is gone before the broker knows; the one that gets the message
// next has an empty map.
//
// The cure: what was seen is a row, in the transaction of what was done.
var dedupeInMemory = exhibit{
	name: "dedupe_in_memory", pattern: "dedupe in memory", taught: "folklore",
	cure:     "db/migrations/00007_inbox_events.sql: PRIMARY KEY (consumer, event_id)",
	scenario: crashesBeforeAck, shows: bookedTwice,
	wrong: func(s *side) shop {
		s.setup(booksTables)
		var seen sync.Map
		return shop{Booked: bookedQuery, Receive: func(ctx context.Context, m message, ack func()) {
			if _, again := seen.Load(m.ID); !again {
				s.book(ctx, s.DB, m)
				seen.Store(m.ID, true)
			}
			ack()
		}}
	},
}
