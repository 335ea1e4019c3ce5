package main

import (
	"context"
	"net/http"
)

// Most exhibits are wrong in one thing only. What they have in common, and have
// right for as long as nothing breaks, is here: a key is claimed by its INSERT,
// a duplicate gets 409, and what is done is answered from the row.

const keysTable = `CREATE TABLE keys (key text PRIMARY KEY, claimed_at timestamptz NOT NULL DEFAULT ` +
	`clock_timestamp(), status int, body bytea)`

// claimed claims a key. If it is taken, the answer is what its row says.
func claimed(ctx context.Context, q querier, key string) (mine bool, a answer) {
	if exec(ctx, q, `INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, key) == 1 {
		return true, a
	}
	var status *int
	if found(q.QueryRow(ctx, `SELECT status, body FROM keys WHERE key = $1`, key), &status, &a.Body) && status != nil {
		a.Status = *status
		return false, a
	}
	return false, refusal(http.StatusConflict, "a request with this key is at work")
}

// finished stores the answer of a key, and returns it.
func finished(ctx context.Context, q querier, key string, a answer) answer {
	exec(ctx, q, `UPDATE keys SET status = $2, body = $3 WHERE key = $1`, key, a.Status, a.Body)
	return a
}
