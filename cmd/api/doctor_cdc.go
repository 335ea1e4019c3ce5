package main

import (
	"context"

	"example.com/payonce/internal/postgres"
)

// cdc examines what change data capture needs in the place of a broker: a log that can be decoded, and a slot.
func (p patient) cdc(ctx context.Context, d *diagnosis) {
	pool, _, err := p.openDatabase(ctx)
	if err == nil {
		defer pool.Close()
		var s postgres.CDCState
		if s, err = pool.CDC(ctx); err == nil {
			d.say(healthy, "broker.reachable", "none: events go into the write-ahead log of the database")
			captured(d, s)
			return
		}
	}
	d.say(bad, "broker.reachable", "%w; BROKER_URL=cdc: needs the database only", err)
	d.notAsked("the database is away", "broker.stream")
}

// captured reports the first of what loses events now, then of what will lose them.
func captured(d *diagnosis, s postgres.CDCState) {
	const id = "broker.stream"
	switch {
	case s.WALLevel != "logical":
		d.say(bad, id, "wal_level is %s, so the log cannot be decoded: set it to logical and restart PostgreSQL", s.WALLevel)
	case s.Lost > 0:
		d.say(bad, id, "%d slots have lost what they need, because it was more than max_slot_wal_keep_size (%s): drop "+
			"them, have the connector make its slot anew, then run `api relay replay`", s.Lost, s.Keeps)
	case s.Slots == 0:
		d.say(bad, id, "no logical slot: events that are published now reach no reader; have the connector make its slot, then run "+
			"`api relay replay`")
	case !s.Published:
		d.say(bad, id, "no publication has the table cdc_events, so pgoutput sends nothing of it: CREATE PUBLICATION "+
			"payonce_events FOR TABLE cdc_events WITH (publish = 'insert')")
	case s.Read == 0:
		d.say(warning, id, "none of %d slots is read, and the server keeps %d MB of its log for them: see the connector, or "+
			"drop the unused slots", s.Slots, s.HeldBytes>>20)
	case s.Keeps == "-1":
		d.say(warning, id, "read, %d MB behind; max_slot_wal_keep_size is -1, so a slot without a reader fills the disk: set "+
			"it to what the disk can spare", s.HeldBytes>>20)
	default:
		d.say(healthy, id, "read, %d MB behind; at most %s are kept for a slot without a reader", s.HeldBytes>>20, s.Keeps)
	}
}
