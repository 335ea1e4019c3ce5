package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

// Responses and tombstones are kept for five hours.
const retentionRows = `
	idempotency_keys
	  key          finished_at  answer_dropped_at  request  traceparent
	  dropped      -9h          -2h                .        .
	  dropped_old  -9h          -6h                .        .
	  dropped_1st  -9h          -7h                .        .
	  old          -6h          .                  r        00-a
	  oldest       -8h          .                  r        00-b
	  recent       -1h          .                  r        00-c
	  unfinished   .            .                  r        00-d
`

func TestQueriesOfRetention(t *testing.T) {
	t.Parallel()
	const retention = 5 * time.Hour
	checkQueries(t, retentionRows, []queryCase{
		{rule: "DropsOldResponses", query: q.KeyDropAnswers,
			with: db.KeyDropAnswersParams{Retention: retention, BatchMax: 9}, want: `
			returns 4
			changes idempotency_keys/old: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null
			changes idempotency_keys/oldest: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null
			changes idempotency_keys/twin/oldest: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null
			changes idempotency_keys/twin/recent: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null`},
		{rule: "BeginsWithTheOldest", query: q.KeyDropAnswers,
			with: db.KeyDropAnswersParams{Retention: retention, BatchMax: 1}, want: `
			returns 1
			changes idempotency_keys/twin/recent: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null`},
		{rule: "SkipsALockedKey", query: q.KeyDropAnswers, locked: "idempotency_keys/twin/recent",
			with: db.KeyDropAnswersParams{Retention: retention, BatchMax: 1}, want: `
			returns 1
			changes idempotency_keys/oldest: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null`},
		{rule: "SkipsSomeOfTheOldest", query: q.KeyDropAnswers,
			with: db.KeyDropAnswersParams{Retention: retention, BatchMax: 1, Skip: 1}, want: `
			returns 1
			changes idempotency_keys/oldest: answer_body=null answer_dropped_at=now answer_headers=null
				answer_status=null answer_version=null request=null traceparent=null
			locks idempotency_keys/twin/recent`},
		{rule: "AgeOfTheOldestThatIsStored", query: q.KeyOldestResponse, want: `returns -8h1m`},
		{rule: "DeletesOldTombstones", query: q.KeyDeleteTombstones,
			with: db.KeyDeleteTombstonesParams{Retention: retention, BatchMax: 9}, want: `
			returns 4
			deletes idempotency_keys/dropped_1st
			deletes idempotency_keys/dropped_old
			deletes idempotency_keys/twin/dropped_1st
			deletes idempotency_keys/twin/old`},
		{rule: "BeginsWithTheOldest", query: q.KeyDeleteTombstones,
			with: db.KeyDeleteTombstonesParams{Retention: retention, BatchMax: 1}, want: `
			returns 1
			deletes idempotency_keys/twin/old`},
		{rule: "SkipsALockedKey", query: q.KeyDeleteTombstones, locked: "idempotency_keys/twin/old",
			with: db.KeyDeleteTombstonesParams{Retention: retention, BatchMax: 1}, want: `
			returns 1
			deletes idempotency_keys/dropped_1st`},
	})
}
