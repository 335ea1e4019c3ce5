package postgres_test

import (
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

// The lease token of every event is 7: so the defaults have it.
const outboxRows = `
	outbox_events
	  aggregate_id  version  seq  published_at  position  parked_at  leased_until  attempts  last_error  created_at
	  blocked       1        1    .             .         -2h        .             9         refused     -9h
	  blocked       2        22   .             .         .          .             .         .           -9h
	  done          1        2    -8h           1         .          .             .         .           -9h
	  done          2        4    -7h           2         .          .             .         .           -9h
	  done          3        6    -6h           3         .          +1h           .         .           -9h
	  expired       1        28   .             .         .          -1h           2         .           -2h
	  follows       1        8    -6h           4         .          .             .         .           -9h
	  follows       2        10   .             .         .          .             .         .           -9h
	  leased        1        14   .             .         .          +1h           1         timeout     -9h
	  leased        2        16   .             .         .          .             .         .           -9h
	  ready         1        9    .             .         .          .             .         .           -5h
	  ready         2        12   .             .         .          .             .         .           -5h
	  ready         3        18   .             .         .          .             .         .           -5h
	  replayed      1        24   .             6         .          .             .         .           -9h
	  replayed      2        26   .             7         -3h        .             9         refused     -9h

	outbox_events
	  tenant_id  aggregate_id  version  seq  published_at  position  leased_until  traceparent
	  acme       traced        1        40   -30h          40        .             00-d
	  acme       shared        1        42   .             42        +1h           .
	  acme:eu    traced        1        41   -30h          40        .             .
	  acme:eu    traced        2        45   -30h          41        .             00-b
	  acme:eu    traced        3        47   -30h          43        .             00-c
	  acme:eu    shared        1        43   -30h          42        .             .

	event_feeds
	  tenant_id  last_position
	  acme       50
	  acme:eu    7
	  another    3
`

func TestQueriesOfTheOutbox(t *testing.T) {
	t.Parallel()
	lease := func(change func(p *db.OutboxLeaseParams)) any {
		return but(db.OutboxLeaseParams{Lease: time.Minute, HeadsMax: 99, RunMax: 9}, change)
	}
	checkQueries(t, outboxRows, []queryCase{
		{rule: "InsertsEvents", query: q.OutboxAppend, with: db.OutboxAppendParams{
			TenantIds: []string{tenant, tenant}, AggregateIds: []string{"pay", "ord"}, Versions: []int64{2, 3},
			Types: []string{"payment.succeeded", "order.paid"}, Data: [][]byte{[]byte("p"), []byte("o")},
			Traceparent: ptr("00-a"),
		}, want: `
			inserts outbox_events/pay/2: created_at=now data=p leased_until=-infinity traceparent=00-a
				type=payment.succeeded
			inserts outbox_events/ord/3: created_at=now data=o leased_until=-infinity traceparent=00-a
				type=order.paid`},
		{rule: "NeverReplacesAnEvent", query: q.OutboxAppend, with: db.OutboxAppendParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"done"}, Versions: []int64{2},
			Types: []string{"order.paid"}, Data: [][]byte{[]byte("o")},
		}, want: `
			error 23505 outbox_events_pkey`},

		{rule: "LeasesFirstEventsAndTheirFollowers", query: q.OutboxLease,
			with: lease(func(*db.OutboxLeaseParams) {}), any: true, show: "Version", want: `
			row AggregateID=expired Version=1 Seq=28 Type=order.created Data={} CreatedAt=-2h LeaseToken=8
				Attempts=2
			row AggregateID=follows Version=2 Seq=10 Type=order.created Data={} CreatedAt=-9h LeaseToken=8
			row AggregateID=ready Version=1 Seq=9 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			row AggregateID=ready Version=2 Seq=12 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			row AggregateID=ready Version=3 Seq=18 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			row AggregateID=replayed Version=1 Seq=24 Type=order.created Data={} CreatedAt=-9h LeaseToken=8
			row twin AggregateID=done Version=1 Seq=23 Type=order.created Data={} CreatedAt=-9h1m LeaseToken=8
			row twin AggregateID=follows Version=1 Seq=29 Type=order.created Data={} CreatedAt=-2h1m
				LeaseToken=8 Attempts=2
			row twin AggregateID=leased Version=1 Seq=11 Type=order.created Data={} CreatedAt=-9h1m LeaseToken=8
			row twin AggregateID=leased Version=2 Seq=15 Type=order.created Data={} CreatedAt=-9h1m LeaseToken=8
				Attempts=1
			row twin AggregateID=ready Version=1 Seq=17 Type=order.created Data={} CreatedAt=-9h1m LeaseToken=8
			row twin AggregateID=ready Version=2 Seq=10 Type=order.created Data={} CreatedAt=-5h1m LeaseToken=8
			row twin AggregateID=ready Version=3 Seq=13 Type=order.created Data={} CreatedAt=-5h1m LeaseToken=8
			row twin AggregateID=replayed Version=1 Seq=19 Type=order.created Data={} CreatedAt=-5h1m
				LeaseToken=8
			row twin AggregateID=replayed Version=2 Seq=25 Type=order.created Data={} CreatedAt=-9h1m
				LeaseToken=8
			changes outbox_events/expired/1: lease_token=8 leased_until=now+1m
			changes outbox_events/follows/2: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/1: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/2: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/3: lease_token=8 leased_until=now+1m
			changes outbox_events/replayed/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/done/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/follows/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/leased/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/leased/2: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/ready/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/ready/2: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/ready/3: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/replayed/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/replayed/2: lease_token=8 leased_until=now+1m`},
		{rule: "LeasesTheOldest", query: q.OutboxLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax = 2, 2 }), any: true, want: `
			row AggregateID=follows Version=2 Seq=10 Type=order.created Data={} CreatedAt=-9h LeaseToken=8
			row AggregateID=ready Version=1 Seq=9 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			row AggregateID=ready Version=2 Seq=12 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			changes outbox_events/follows/2: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/1: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/2: lease_token=8 leased_until=now+1m`},
		{rule: "BeginsAfterAPlaceInTheQueue", query: q.OutboxLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax, p.AfterSeq = 2, 1, 12 }), any: true, want: `
			row twin AggregateID=ready Version=1 Seq=17 Type=order.created Data={} CreatedAt=-9h1m LeaseToken=8
			row twin AggregateID=replayed Version=1 Seq=19 Type=order.created Data={} CreatedAt=-5h1m
				LeaseToken=8
			changes outbox_events/twin/ready/1: lease_token=8 leased_until=now+1m
			changes outbox_events/twin/replayed/1: lease_token=8 leased_until=now+1m`},
		{rule: "SkipsAFirstEventThatIsLocked", query: q.OutboxLease, locked: "outbox_events/ready/1",
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax, p.AfterSeq = 1, 9, 8 }), any: true, want: `
			row AggregateID=follows Version=2 Seq=10 Type=order.created Data={} CreatedAt=-9h LeaseToken=8
			changes outbox_events/follows/2: lease_token=8 leased_until=now+1m`},
		{rule: "SkipsAFollowerThatIsLocked", query: q.OutboxLease, locked: "outbox_events/ready/2",
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax, p.AfterSeq = 1, 9, 8 }), any: true, want: `
			row AggregateID=ready Version=1 Seq=9 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			row AggregateID=ready Version=3 Seq=18 Type=order.created Data={} CreatedAt=-5h LeaseToken=8
			changes outbox_events/ready/1: lease_token=8 leased_until=now+1m
			changes outbox_events/ready/3: lease_token=8 leased_until=now+1m`},

		{rule: "PlacesAllEarlierEventsInTheFeed", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"leased"}, Versions: []int64{1}, LeaseTokens: []int64{7},
		}, any: true, want: `
			row -9h
			changes event_feeds/tenant: last_position=12
			changes outbox_events/blocked/1: position=8
			changes outbox_events/follows/2: position=10
			changes outbox_events/leased/1: last_error=null position=12 published_at=now
			changes outbox_events/ready/1: position=9
			changes outbox_events/ready/2: position=11`},
		{rule: "NeedsTheLease", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant, tenant}, AggregateIds: []string{"leased", "done"}, Versions: []int64{1, 2},
			LeaseTokens: []int64{6, 7},
		}, want: `
			no row`},
		{rule: "KeepsAPosition", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"replayed"}, Versions: []int64{1}, LeaseTokens: []int64{7},
		}, want: `
			row -9h
			changes outbox_events/replayed/1: published_at=now`},
		{rule: "MarksEventsOfSeveralTenants", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant, twin}, AggregateIds: []string{"follows", "ready"}, Versions: []int64{2, 1},
			LeaseTokens: []int64{7, 7},
		}, any: true, want: `
			row -9h
			row -9h1m
			changes event_feeds/tenant: last_position=10
			changes event_feeds/twin: last_position=56
			changes outbox_events/blocked/1: position=8
			changes outbox_events/follows/2: position=10 published_at=now
			changes outbox_events/ready/1: position=9
			changes outbox_events/twin/blocked/2: position=51
			changes outbox_events/twin/leased/1: position=53
			changes outbox_events/twin/leased/2: position=55
			changes outbox_events/twin/ready/1: position=56 published_at=now
			changes outbox_events/twin/ready/2: position=52
			changes outbox_events/twin/ready/3: position=54`},

		{rule: "NeedsTheLease", query: q.OutboxRelease, each: "leased done", with: func(aggregate string) any {
			return db.OutboxReleaseParams{
				TenantIds: []string{tenant, tenant}, AggregateIds: []string{aggregate, "ready"}, Versions: []int64{1, 1},
				LeaseTokens: []int64{7, 6}, Delays: []time.Duration{time.Minute, time.Minute},
				Failed: []bool{true, true}, Errors: []string{"refused", "refused"}, Park: []bool{true, true},
			}
		}, want: `
			leased: returns 1
			leased: changes outbox_events/leased/1: attempts=2 last_error=refused leased_until=now+1m
				parked_at=now
			done: returns 0`},
		{rule: "CountsOnlyFailures", query: q.OutboxRelease, with: db.OutboxReleaseParams{
			TenantIds: []string{tenant, tenant}, AggregateIds: []string{"leased", "ready"}, Versions: []int64{1, 1},
			LeaseTokens: []int64{7, 7}, Delays: []time.Duration{0, time.Minute}, Failed: []bool{false, true},
			Errors: []string{"", "timeout"}, Park: []bool{false, false},
		}, want: `
			returns 2
			changes outbox_events/leased/1: leased_until=now
			changes outbox_events/ready/1: attempts=1 last_error=timeout leased_until=now+1m`},
		{rule: "UnparksAnAggregate", query: q.OutboxUnpark, each: "blocked ready", with: func(aggregate string) any {
			return db.OutboxUnparkParams{TenantID: tenant, AggregateID: aggregate}
		}, want: `
			blocked: returns 1
			blocked: changes outbox_events/blocked/1: attempts=0 parked_at=null
			ready: returns 0`},

		{rule: "ReplaysWholeAggregates", query: q.OutboxReplay,
			with: db.OutboxReplayParams{Since: at("-7h30m"), Until: at("-5h"), AggregatesMax: 9}, want: `
			returns 7
			changes outbox_events/done/2: published_at=null
			changes outbox_events/done/3: leased_until=now+1s published_at=null
			changes outbox_events/follows/1: published_at=null
			changes outbox_events/follows/2: leased_until=now+1s
			changes outbox_events/twin/done/3: published_at=null
			changes outbox_events/twin/expired/1: leased_until=-infinity published_at=null
			changes outbox_events/twin/follows/2: published_at=null`},
		{rule: "EndsBeforeATime", query: q.OutboxReplay,
			with: db.OutboxReplayParams{Since: at("-9h"), Until: at("-7h30m"), AggregatesMax: 9}, want: `
			returns 5
			changes outbox_events/done/1: published_at=null
			changes outbox_events/done/2: leased_until=now+1s published_at=null
			changes outbox_events/done/3: leased_until=now+1s published_at=null
			changes outbox_events/twin/done/2: published_at=null
			changes outbox_events/twin/done/3: leased_until=now+1s published_at=null`},
		{rule: "BeginsWithTheOldest", query: q.OutboxReplay,
			with: db.OutboxReplayParams{Since: at("-6h30m"), Until: at("-5h"), AggregatesMax: 1}, want: `
			returns 1
			changes outbox_events/done/3: leased_until=-infinity published_at=null`},
		{rule: "SkipsWhatIsBeingSent", query: q.OutboxReplay,
			first: "UPDATE outbox_events SET leased_until = now() + interval '1 hour' WHERE aggregate_id = 'follows'",
			with:  db.OutboxReplayParams{Since: at("-6h30m"), Until: at("-5h"), AggregatesMax: 9}, want: `
			returns 2
			changes outbox_events/done/3: leased_until=-infinity published_at=null
			changes outbox_events/twin/expired/1: leased_until=-infinity published_at=null`},
		{rule: "SkipsWhatIsBeingSentOfItsTenant", query: q.OutboxReplay,
			with: db.OutboxReplayParams{Since: at("-31h"), Until: at("-29h"), AggregatesMax: 9}, want: `
			returns 5
			changes outbox_events/shared/1: published_at=null
			changes outbox_events/traced/1: published_at=null
			changes outbox_events/traced/2: leased_until=now+1s published_at=null
			changes outbox_events/traced/3: leased_until=now+1s published_at=null
			changes outbox_events/twin/traced/1: published_at=null`},
		{rule: "LooksAtTheWindow", query: q.OutboxReplayLeft, each: "-9h/-8h30m -9h/-7h30m -7h30m/-5h -5h/-1h",
			with: func(window string) any {
				since, until, _ := strings.Cut(window, "/")
				return db.OutboxReplayLeftParams{Since: at(since), Until: at(until)}
			}, want: `
			-9h/-8h30m: returns false
			-9h/-7h30m: returns true
			-7h30m/-5h: returns true
			-5h/-1h: returns false`},
		{rule: "ReadsTheClock", query: q.OutboxNow, want: `
			row now`},
		{rule: "CountsAndFindsTheOldest", query: q.OutboxStats, want: `
			row Waiting=19 OldestSeconds=-5h Parked=4`},
		{rule: "FindsTheFirstTrace", query: q.OutboxOrigin, each: "done traced missing",
			with: func(aggregate string) any {
				return db.OutboxOriginParams{TenantID: tenant, AggregateID: aggregate}
			}, want: `
			done: no row
			traced: returns 00-b
			missing: no row`},
		{rule: "SeesALeaseThatWasLostMeanwhile", query: q.OutboxMark,
			meanwhile: "UPDATE outbox_events SET lease_token = 8 WHERE aggregate_id = 'leased'",
			with: db.OutboxMarkParams{
				TenantIds: []string{tenant}, AggregateIds: []string{"leased"}, Versions: []int64{1}, LeaseTokens: []int64{7},
			}, want: `
			no row
			locks outbox_events/leased/1`},
	})
}
