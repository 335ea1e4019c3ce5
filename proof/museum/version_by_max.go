package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The version of a change is the highest so far, plus one.
//
// Who teaches it: folklore. It looks right because it is one statement, and a
// statement is atomic.
//
// Why it fails: it reads a snapshot. Two transactions see the same highest
// version, and both make the next. Consumers who go by versions, as they should,
// drop one of the two changes as a repetition. (With a unique index one of the
// requests fails instead, in the busiest hour, for no reason that its customer
// could understand.)
//
// The cure: the version is in the object's row, and raised there: the row's lock
// makes the second writer wait for the first, and then see what it did.
var versionByMax = exhibit{
	name: "version_by_max", pattern: "version = max() + 1", taught: "folklore",
	cure:     "docs/adr/0011-order-comes-from-the-row-lock.md",
	scenario: twoWriters, shows: versionTwice,
	wrong: func(s *side) shop {
		s.setup(changesTable)
		return shop{
			Changes: changesQuery,
			Change: func(ctx context.Context, id string, meanwhile func()) {
				inTx(ctx, s.DB, func(tx pgx.Tx) {
					exec(ctx, tx, `INSERT INTO changes (object, version)
						SELECT $1, coalesce(max(version), 0) + 1 FROM changes WHERE object = $1`, id)
					meanwhile()
				})
			},
			Relay: func(ctx context.Context) {
				_, list := events(ctx, s.DB,
					`UPDATE changes SET published_at = clock_timestamp() WHERE published_at IS NULL RETURNING id, object, version`)
				for _, e := range list {
					s.broker.Publish(e)
				}
			},
		}
	},
}
