package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The relay takes what is unpublished and not locked, so that several can run.
//
// Who teaches it: folklore: FOR UPDATE SKIP LOCKED is how one builds a queue on
// PostgreSQL. ([1] and [4] have a poller without any lock, with the same effect
// as soon as there are two of it.) It looks right because no event is sent by two
// relays, and none is lost.
//
// Why it fails: it is a queue, and order was promised. One relay is paused
// after it has read "paid"; the other skips the locked row, and sends "refunded".
//
// The cure: only the oldest unpublished event of an object can be leased, and
// who has it has all that follow it.
var relaySkipLocked = exhibit{
	name: "relay_skip_locked", pattern: "a relay with plain SKIP LOCKED", taught: "folklore, [1], [4]",
	cure:     "db/queries/outbox.sql, OutboxLease: heads only",
	scenario: twoRelays, shows: outOfOrder,
	wrong: func(s *side) shop {
		s.setup(changesTable)
		return shop{
			Changes: changesQuery,
			Change: func(ctx context.Context, id string, meanwhile func()) {
				inTx(ctx, s.DB, func(tx pgx.Tx) {
					write(ctx, tx, id)
					meanwhile()
				})
			},
			Relay: func(ctx context.Context) {
				inTx(ctx, s.DB, func(tx pgx.Tx) {
					ids, list := events(ctx, tx, `SELECT id, object, version FROM changes WHERE published_at IS NULL
						ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
					for _, e := range list {
						s.broker.Publish(e)
					}
					exec(ctx, tx, `UPDATE changes SET published_at = clock_timestamp() WHERE id = ANY($1)`, ids)
				})
			},
		}
	},
}
