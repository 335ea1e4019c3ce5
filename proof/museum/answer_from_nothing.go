package main

import "context"

// INSERT … ON CONFLICT DO NOTHING; and who did not insert answers with what is
// stored.
//
// Who teaches it: folklore, one step after reading that the insert is the lock.
// It looks right because it is half of it: no customer is charged twice here.
//
// Why it fails: "another request has the key" is not "another request is done". A
// duplicate that arrives while the first is at the provider finds the row and
// no answer in it, and turns the lack of one into a success without a body. The
// customer's app shows an empty receipt, or crashes; the retry shows another.
//
// The cure: a key in flight has a state of its own, and an answer of its own: 409.
var answerFromNothing = exhibit{
	name: "answer_from_nothing", pattern: "ON CONFLICT DO NOTHING, then answer from the row", taught: "folklore",
	cure:     "internal/idempotency/store.go, Lookup: in flight is a state",
	scenario: doubleClick, shows: emptyAnswer,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text PRIMARY KEY, status int DEFAULT 200, body bytea)`)
		return shop{Pay: func(ctx context.Context, r request) (a answer) {
			if exec(ctx, s.DB, `INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, r.Key) == 0 {
				found(s.DB.QueryRow(ctx, `SELECT status, body FROM keys WHERE key = $1`, r.Key), &a.Status, &a.Body)
				return a
			}
			a = s.charge(ctx, "", r)
			exec(ctx, s.DB, `UPDATE keys SET status = $2, body = $3 WHERE key = $1`, r.Key, a.Status, a.Body)
			return a
		}}
	},
}
