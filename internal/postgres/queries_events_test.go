package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

// Events are deleted once they were published five hours ago. Of feed tenant two have been deleted.
const feedRows = `
	outbox_events
	  aggregate_id  version  seq  published_at  position
	  a             1        6    -8h           3
	  a             2        8    -7h           4
	  a             3        12   -2h           6
	  b             1        10   .             5
	  b             2        14   -6h           7
	  c             1        24   .             .
	  c             2        26   .             .
	  d             1        22   .             .

	outbox_events
	  tenant_id  aggregate_id  version  seq  published_at  position
	  placed     e             1        2    .             1

	event_feeds
	  tenant_id  last_position  removed_through  removed_event  reap_at
	  acme       40             6                c-9            -6h
	  acme:eu    7              2                z-1            -3h
	  behind     0              0                .              -5h
	  placed     1              0                .              -4h
	  later      0              0                .              +1h
`

func TestQueriesOfTheFeed(t *testing.T) {
	t.Parallel()
	checkQueries(t, feedRows, []queryCase{
		{rule: "LocksInOrder", query: q.FeedLock, with: []string{"placed", tenant, "missing", "behind"}, want: `
			row acme:eu
			row behind
			row placed
			locks event_feeds/behind
			locks event_feeds/placed
			locks event_feeds/tenant`},
		{rule: "InsertsInOrder", query: q.FeedCreate, with: []string{"new_2", tenant, "new_1"}, want: `
			inserts event_feeds/new_1: reap_at=now
			inserts event_feeds/new_2: reap_at=now`},
		{rule: "LooksForAnEventWithoutAPosition", query: q.FeedIsBehind, each: "acme:eu placed missing",
			with: func(of string) any { return of }, want: `
			acme:eu: returns true
			placed: returns false
			missing: returns false`},
		{rule: "AssignsInTheOrderOfInserts", query: q.FeedAssignPositions,
			with: db.FeedAssignPositionsParams{TenantID: tenant, LimitRows: 9}, want: `
			changes event_feeds/tenant: last_position=10
			changes outbox_events/c/1: position=9
			changes outbox_events/c/2: position=10
			changes outbox_events/d/1: position=8`},
		{rule: "StopsAtTheLimit", query: q.FeedAssignPositions,
			with: db.FeedAssignPositionsParams{TenantID: tenant, LimitRows: 2}, want: `
			changes event_feeds/tenant: last_position=9
			changes outbox_events/c/1: position=9
			changes outbox_events/d/1: position=8`},
		{rule: "FindsThePositionOfAnEvent", query: q.FeedCursor, each: "a-1 a-2 a-4 c-1 z-1 c-9 b-3",
			with: func(event string) any {
				return db.FeedCursorParams{TenantID: tenant, AggregateID: event[:1], Version: int64(event[2] - '0'),
					EventID: event}
			}, want: `
			a-1: returns 3
			a-2: returns 4
			a-4: no row
			c-1: no row
			z-1: returns 2
			c-9: no row
			b-3: no row`},
		{rule: "HasLostWhatAReaderMissed", query: q.FeedCursor, each: "a-1 a-2 z-1", with: func(event string) any {
			return db.FeedCursorParams{TenantID: tenant, AggregateID: event[:1], Version: int64(event[2] - '0'),
				EventID: event}
		}, first: "UPDATE event_feeds SET removed_through = 4 WHERE tenant_id = 'acme:eu'", want: `
			a-1: no row
			a-2: returns 4
			z-1: returns 4`},
		{rule: "KnowsNothingOfOthers", query: q.FeedCursor,
			with: db.FeedCursorParams{TenantID: "missing", AggregateID: "a", Version: 1, EventID: "a-1"}, want: `
			no row`},
		{rule: "ReadsInOrder", query: q.FeedList,
			with: db.FeedListParams{TenantID: tenant, AfterPosition: 4, LimitRows: 2}, want: `
			row AggregateID=b Version=1 Type=order.created Data={} CreatedAt=-9h Position=5
			row AggregateID=a Version=3 Type=order.created Data={} CreatedAt=-9h Position=6`},
		{rule: "TakesTheOneDueLongest", query: q.FeedDue, with: []string{}, want: `
			returns acme
			locks event_feeds/twin`},
		{rule: "TakesOneThatIsDue", query: q.FeedDue, with: []string{"acme", "behind", "placed", tenant}, want: `
			no row`},
		{rule: "SkipsTenants", query: q.FeedDue, with: []string{"acme", "placed"}, want: `
			returns behind
			locks event_feeds/behind`},
		{rule: "SkipsAFeedThatIsLocked", query: q.FeedDue, locked: "event_feeds/twin", with: []string{}, want: `
			returns behind
			locks event_feeds/behind`},
		{rule: "DeletesOldPublishedEvents", query: q.FeedReap,
			with: db.FeedReapParams{TenantID: tenant, Retention: 5 * time.Hour, LimitRows: 9}, want: `
			returns 3
			changes event_feeds/tenant: removed_event=b-2 removed_through=7
			deletes outbox_events/a/1
			deletes outbox_events/a/2
			deletes outbox_events/b/2`},
		{rule: "DeletesTheOldestFirst", query: q.FeedReap,
			with: db.FeedReapParams{TenantID: tenant, Retention: 5 * time.Hour, LimitRows: 2}, want: `
			returns 2
			changes event_feeds/tenant: removed_event=a-2 removed_through=4
			deletes outbox_events/a/1
			deletes outbox_events/a/2`},
		{rule: "DeletesTheOldestOfTwo", query: q.FeedReap,
			with: db.FeedReapParams{TenantID: tenant, Retention: 5 * time.Hour, LimitRows: 1}, want: `
			returns 1
			changes event_feeds/tenant: removed_event=a-1 removed_through=3
			deletes outbox_events/a/1`},
		{rule: "NeverMovesBack", query: q.FeedReap,
			first: "UPDATE event_feeds SET removed_through = 7 WHERE tenant_id = 'acme:eu'",
			with:  db.FeedReapParams{TenantID: tenant, Retention: 5 * time.Hour, LimitRows: 2}, want: `
			returns 2
			deletes outbox_events/a/1
			deletes outbox_events/a/2`},
		{rule: "DependsOnTheOldestEvent", query: q.FeedScheduleReap, each: "acme:eu placed behind missing",
			with: func(of string) any {
				return db.FeedScheduleReapParams{TenantID: of, Retention: 10 * time.Hour}
			}, want: `
			acme:eu: changes event_feeds/tenant: reap_at=+2h
			placed: changes event_feeds/placed: reap_at=now+10h
			behind: changes event_feeds/behind: reap_at=now+10h
			missing: nothing`},
		{rule: "DependsOnTheOldestPublishedEvent", query: q.FeedScheduleReap,
			first: "UPDATE outbox_events SET published_at = NULL WHERE aggregate_id = 'a' AND version = 1",
			with:  db.FeedScheduleReapParams{TenantID: tenant, Retention: 10 * time.Hour}, want: `
			changes event_feeds/tenant: reap_at=+3h`},
		{rule: "WaitsAMinuteAtLeast", query: q.FeedScheduleReap,
			with: db.FeedScheduleReapParams{TenantID: tenant, Retention: time.Hour}, want: `
			changes event_feeds/tenant: reap_at=now+1m`},
		{rule: "KeepsWhatIsReplayedMeanwhile", query: q.FeedReap,
			meanwhile: "UPDATE outbox_events SET published_at = NULL WHERE aggregate_id = 'a' AND version = 2",
			with:      db.FeedReapParams{TenantID: tenant, Retention: 5 * time.Hour, LimitRows: 9}, want: `
			returns 2
			changes event_feeds/tenant: removed_event=b-2 removed_through=7
			deletes outbox_events/a/1
			deletes outbox_events/b/2
			locks outbox_events/a/2`},
	})
}
