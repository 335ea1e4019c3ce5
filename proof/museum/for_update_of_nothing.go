package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The same with a lock: SELECT … FOR UPDATE, and all of it in one transaction.
//
// Who teaches it: [1], as the cure for check-then-write. It looks right because
// FOR UPDATE does make the second request wait, in every case but one.
//
// Why it fails: that one case is the first request with a key. There is no row
// yet, and a row that does not exist cannot be locked: both requests lock
// nothing, do not wait, and charge. The second then trips over the primary
// key, and its transaction takes everything back but the charge.
//
// The cure: the row that is inserted is the lock.
var forUpdateOfNothing = exhibit{
	name: "for_update_of_nothing", pattern: "SELECT … FOR UPDATE of a key that is not there", taught: "[1]",
	cure:     "docs/adr/0002-the-insert-is-the-lock.md",
	scenario: doubleClick, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text PRIMARY KEY, status int, body bytea)`)
		return shop{Pay: func(ctx context.Context, r request) (a answer) {
			inTx(ctx, s.DB, func(tx pgx.Tx) {
				if found(tx.QueryRow(ctx, `SELECT status, body FROM keys WHERE key = $1 FOR UPDATE`, r.Key), &a.Status,
					&a.Body) {
					return
				}
				a = s.charge(ctx, "", r)
				exec(ctx, tx, `INSERT INTO keys VALUES ($1, $2, $3)`, r.Key, a.Status, a.Body)
			})
			return a
		}}
	},
}
