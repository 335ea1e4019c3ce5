package main

import (
	"context"
	"net/http"
)

// The answer is stored as jsonb, and replayed from there.
//
// Who teaches it: [1], [2], [3] and [4], whose comment promises the original
// answer byte for byte. It looks right because it is the same JSON.
//
// Why it fails: it is the same value, and other bytes. jsonb sorts the members,
// drops the spaces and all but the last of two equal names, and writes 1e2 as
// 100. A client that signs the body, hashes it, compares it in a test or caches it by
// its ETag sees two answers to one request; and an answer that is no JSON, an
// error page for one, cannot be stored at all.
//
// The cure: an answer is bytes.
var replayThroughJSONB = exhibit{
	name: "replay_through_jsonb", pattern: "replay through jsonb", taught: "[1], [2], [3], [4]",
	cure:     "docs/adr/0007-an-answer-is-bytes.md",
	scenario: sendAgain, shows: answerChanged,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text PRIMARY KEY, body jsonb)`)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if exec(ctx, s.DB, `INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, r.Key) == 1 {
				a := s.charge(ctx, r.Key, r)
				exec(ctx, s.DB, `UPDATE keys SET body = $2 WHERE key = $1`, r.Key, string(a.Body))
				return a
			}
			var body *string
			if found(s.DB.QueryRow(ctx, `SELECT body::text FROM keys WHERE key = $1`, r.Key), &body); body == nil {
				return refusal(http.StatusConflict, "a request with this key is at work")
			}
			return answer{http.StatusCreated, []byte(*body)}
		}}
	},
}
