package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Tell the broker, then commit.
//
// Who teaches it: folklore, as the cure for the exhibit before this one; and
// frameworks whose "transactional" handler publishes inside. It looks right
// because an error from the broker rolls the change back.
//
// Why it fails: it works in one direction only. When the process is killed, or the
// COMMIT is refused, the broker does not roll back. The warehouse sends what
// no customer has paid for.
//
// The cure: the same outbox. What is rolled back takes its event with it.
var publishBeforeCommit = exhibit{
	name: "publish_before_commit", pattern: "dual write: publish, then commit", taught: "folklore",
	cure:     "internal/outbox/outbox.go, Append",
	scenario: crashesBeforeCommit, shows: eventOfNothing,
	wrong: func(s *side) shop {
		s.setup(changesTable)
		return shop{
			Changes: changesQuery,
			Change: func(ctx context.Context, id string, meanwhile func()) {
				inTx(ctx, s.DB, func(tx pgx.Tx) {
					s.broker.Publish(write(ctx, tx, id))
					meanwhile()
				})
			},
		}
	},
}
