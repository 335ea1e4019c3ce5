package main

import "context"

// Is the key there? If not, charge, and write it down.
//
// Who teaches it: most first attempts; and the outbox
// example of [1], where the look and the insert even share a transaction. It
// looks right because it says in code what was asked for in words, and because
// every test that sends one request after the other passes.
//
// Why it fails: a double click is two requests in the same millisecond. Both
// look before either has written. The primary key is there and does its work:
// it refuses the second row, after the second charge.
//
// The cure: claim first, with the INSERT itself; a request that inserted nothing does
// not charge.
var checkThenWrite = exhibit{
	name: "check_then_write", pattern: "check, then write", taught: "folklore, [1]",
	cure:     "db/queries/payments.sql, PaymentBegin: the insert is the lock",
	scenario: doubleClick, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text PRIMARY KEY, status int, body bytea)`)
		return shop{Pay: func(ctx context.Context, r request) (a answer) {
			if found(s.DB.QueryRow(ctx, `SELECT status, body FROM keys WHERE key = $1`, r.Key), &a.Status, &a.Body) {
				return a
			}
			a = s.charge(ctx, "", r)
			exec(ctx, s.DB, `INSERT INTO keys VALUES ($1, $2, $3)`, r.Key, a.Status, a.Body)
			return a
		}}
	},
}
