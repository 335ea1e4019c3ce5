package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The relay remembers the last id it has sent, and asks for those above.
//
// Who teaches it: folklore, and the readers of many event stores. It looks right
// because ids grow, and it saves an UPDATE for each event.
//
// Why it fails: an id is drawn when a row is written, and seen when it is
// committed. A transaction that takes a little longer commits a number that the
// relay has already passed. Its event is in the table, and no query will ever look
// there again.
//
// The cure: each event carries its own mark. Readers get positions that are
// given after the commit.
var relayByCursor = exhibit{
	name: "relay_by_cursor", pattern: "a relay with a cursor over ids", taught: "folklore",
	cure:     "internal/outbox/doc.go; internal/outbox/feed.go",
	scenario: slowCommit, shows: eventLost,
	wrong: func(s *side) shop {
		s.setup(changesTable)
		s.setup(`CREATE TABLE cursor (last bigint); INSERT INTO cursor VALUES (0)`)
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
					ids, list := events(ctx, tx,
						`SELECT id, object, version FROM changes WHERE id > (SELECT last FROM cursor FOR UPDATE) ORDER BY id`)
					for i, e := range list {
						s.broker.Publish(e)
						exec(ctx, tx, `UPDATE cursor SET last = $1`, ids[i])
					}
				})
			},
		}
	},
}
