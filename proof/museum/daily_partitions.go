package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// The table of keys is partitioned by day, so that old keys go with DROP TABLE.
//
// Who teaches it: [3]. It looks right because deleting from a big table is slow
// and dropping a partition is not.
//
// Why it fails: in a partitioned table a primary key must contain the column
// that it is partitioned by; as printed, PostgreSQL refuses the schema. So the
// day is added to the key, the migration runs, and the promise has become: a
// key is unique on each day. A request at 23:59:59 whose retry comes at 00:00:01
// is two requests.
//
// The cure: a narrow table of keys, not partitioned, whose answers expire.
var dailyPartitions = exhibit{
	name: "daily_partitions", pattern: "keys partitioned by day", taught: "[3]",
	cure:     "db/migrations/00002_idempotency_keys.sql, internal/idempotency/reaper.go",
	scenario: pastMidnight, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(`CREATE TABLE keys (key text, day date DEFAULT current_date, status int, body bytea, PRIMARY KEY ` +
			`(key, day)) PARTITION BY RANGE (day)`)
		for day := -2; day <= 1; day++ {
			from := time.Now().UTC().AddDate(0, 0, day)
			s.setup(fmt.Sprintf(`CREATE TABLE keys_%s PARTITION OF keys FOR VALUES FROM ('%s') TO ('%s')`,
				from.Format("20060102"), from.Format(time.DateOnly), from.AddDate(0, 0, 1).Format(time.DateOnly)))
		}
		return shop{Pay: func(ctx context.Context, r request) (a answer) {
			if exec(ctx, s.DB, `INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, r.Key) == 1 {
				return finished(ctx, s.DB, r.Key, s.charge(ctx, "", r))
			}
			var status *int
			if found(s.DB.QueryRow(ctx, `SELECT status, body FROM keys WHERE key = $1`, r.Key), &status,
				&a.Body); status == nil {
				return refusal(http.StatusConflict, "a request with this key is at work")
			}
			a.Status = *status
			return a
		}}
	},
}
