package main

import (
	"context"
	"net/http"
)

// One upsert that inserts the key or returns what is there:
// ON CONFLICT … DO UPDATE SET key = key, to force a RETURNING.
//
// Who teaches it: [4], as the statement that is free of races. It is, and that
// is why it looks right.
//
// Why it fails: the row it returns looks the same to the one who made it and to
// those who found it: pending. So the first request, too, learns that another
// request is at work, and waits for one that does not exist. No customer is
// ever charged, or answered. (And each replay writes a new version of its row.)
//
// The cure: ask for what tells them apart, the number of rows inserted.
var upsertPending = exhibit{
	name: "upsert_pending", pattern: "upsert that returns \"pending\"", taught: "[4]",
	cure:     "internal/idempotency/begin.go, Begin: the claim knows its own token",
	scenario: oneByOne, shows: neverPaid,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text PRIMARY KEY, state text NOT NULL, status int, body bytea)`)
		return shop{Pay: func(ctx context.Context, r request) answer {
			var state string
			var status *int
			var body []byte
			found(s.DB.QueryRow(ctx, `INSERT INTO keys (key, state) VALUES ($1, 'pending')
				ON CONFLICT (key) DO UPDATE SET key = excluded.key RETURNING state, status, body`, r.Key), &state,
				&status, &body)
			switch state {
			case "completed":
				return answer{*status, body}
			case "pending":
				return refusal(http.StatusConflict, "a request with this key is at work")
			}
			a := s.charge(ctx, "", r)
			exec(ctx, s.DB, `UPDATE keys SET state = 'completed', status = $2, body = $3 WHERE key = $1`, r.Key,
				a.Status, a.Body)
			return a
		}}
	},
}
