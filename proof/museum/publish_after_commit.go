package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Commit, then tell the broker.
//
// Who teaches it: folklore; most code that was written before its team knew of
// an outbox. It looks right because nothing is announced that did not happen.
//
// Why it fails: between the COMMIT and the broker is a moment, and processes die
// in it: at each deploy, if there are enough of them. The order is paid, and the
// warehouse never receives it. Nothing in the database says that it should have.
//
// The cure: the event is a row, in the transaction of the change.
var publishAfterCommit = exhibit{
	name: "publish_after_commit", pattern: "dual write: commit, then publish", taught: "folklore",
	cure:     "internal/outbox/outbox.go, Append",
	scenario: brokerAwayAtTheEnd, shows: eventLost,
	wrong: func(s *side) shop {
		s.setup(changesTable)
		return shop{
			Changes: changesQuery,
			Change: func(ctx context.Context, id string, meanwhile func()) {
				var e event
				inTx(ctx, s.DB, func(tx pgx.Tx) {
					e = write(ctx, tx, id)
					meanwhile()
				})
				s.broker.Publish(e)
			},
		}
	},
}
