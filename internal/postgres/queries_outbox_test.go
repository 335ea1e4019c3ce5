package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

const outboxRows = `
	outbox_events
	  aggregate_id  version  seq  published_at  position  parked_at  next_attempt_at  attempts  last_error  created_at
	  blocked       1        1    .             .         -2h        .                9         refused     -9h
	  blocked       2        22   .             .         .          .                .         .           -9h
	  done          1        2    -8h           1         .          .                .         .           -9h
	  done          2        4    -7h           2         .          .                .         .           -9h
	  done          3        6    -6h           3         .          +1h              .         .           -9h
	  expired       1        28   .             .         .          -1h              2         .           -2h
	  follows       1        8    -6h           4         .          .                .         .           -9h
	  follows       2        10   .             .         .          .                .         .           -9h
	  pauses        1        14   .             .         .          +1h              1         timeout     -9h
	  pauses        2        16   .             .         .          .                .         .           -9h
	  ready         1        9    .             .         .          .                .         .           -5h
	  ready         2        12   .             .         .          .                .         .           -5h
	  ready         3        18   .             .         .          .                .         .           -5h
	  replayed      1        24   .             6         .          .                .         .           -9h
	  replayed      2        26   .             7         -3h        .                9         refused     -9h
	  sending       1        30   -6h           5         .          .                .         .           -9h
	  sending       2        32   .             .         .          .                .         .           -9h
	  sending       3        34   .             .         .          .                .         .           -9h

	outbox_events
	  tenant_id  aggregate_id  version  seq  published_at  position  parked_at  next_attempt_at  traceparent
	  acme       traced        1        40   -30h          40        .          .                00-d
	  acme       shared        1        42   .             42        .          +1h              .
	  acme       parked        1        44   .             44        -3h        .                .
	  acme:eu    traced        1        41   -30h          40        .          .                .
	  acme:eu    traced        2        45   -30h          41        .          .                00-b
	  acme:eu    traced        3        47   -30h          43        .          .                00-c
	  acme:eu    shared        1        43   -30h          42        .          .                .

	outbox_leases
	  id   leased_until  heads
	  102  -1h           {44}
	  103  +1h           {10}
	  104  -1h           {28,29}
	  105  +1h           {32,42}
	  106  -1h           {9}

	event_feeds
	  tenant_id  last_position
	  acme       50
	  acme:eu    7
	  another    3
`

// nextLease makes 200 the id of the next lease.
const nextLease = "SELECT setval('outbox_leases_id_seq', 199)"

func TestQueriesOfTheOutbox(t *testing.T) {
	t.Parallel()
	lease := func(change func(p *db.OutboxLeaseParams)) any {
		return but(db.OutboxLeaseParams{FromLease: 104, Lease: time.Minute, HeadsMax: 99, RunMax: 9}, change)
	}
	replayed := func(since, until, firsts string) db.OutboxReplayParams {
		p := db.OutboxReplayParams{Since: at(since), Until: at(until)}
		for first := range strings.FieldsSeq(firsts) {
			part := strings.Split(first, "/")
			version, err := strconv.ParseInt(part[2], 10, 64)
			require.NoError(t, err)
			p.TenantIds, p.AggregateIds = append(p.TenantIds, part[0]), append(p.AggregateIds, part[1])
			p.Versions = append(p.Versions, version)
		}
		return p
	}
	checkQueries(t, outboxRows, []queryCase{
		{rule: "InsertsEvents", query: q.OutboxAppend, with: db.OutboxAppendParams{
			TenantIds: []string{tenant, tenant}, AggregateIds: []string{"pay", "ord"}, Versions: []int64{2, 3},
			Types: []string{"payment.succeeded", "order.paid"}, Data: [][]byte{[]byte("p"), []byte("o")},
			Traceparent: ptr("00-a"),
		}, want: `
			inserts outbox_events/pay/2: created_at=now data=p next_attempt_at=-infinity traceparent=00-a
				type=payment.succeeded
			inserts outbox_events/ord/3: created_at=now data=o next_attempt_at=-infinity traceparent=00-a
				type=order.paid`},
		{rule: "NeverReplacesAnEvent", query: q.OutboxAppend, with: db.OutboxAppendParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"done"}, Versions: []int64{2},
			Types: []string{"order.paid"}, Data: [][]byte{[]byte("o")},
		}, want: `
			error 23505 outbox_events_pkey`},

		{rule: "LeasesFirstEventsAndTheirFollowers", query: q.OutboxLease, first: nextLease,
			with: lease(func(*db.OutboxLeaseParams) {}), any: true, show: "Version", want: `
			row LeaseID=200 OldestLease=105 AggregateID=expired Version=1 Seq=28 Type=order.created Data={}
				CreatedAt=-2h Attempts=2
			row LeaseID=200 OldestLease=105 AggregateID=follows Version=2 Seq=10 Type=order.created Data={}
				CreatedAt=-9h
			row LeaseID=200 OldestLease=105 AggregateID=ready Version=1 Seq=9 Type=order.created Data={}
				CreatedAt=-5h
			row LeaseID=200 OldestLease=105 AggregateID=ready Version=2 Seq=12 Type=order.created Data={}
				CreatedAt=-5h
			row LeaseID=200 OldestLease=105 AggregateID=ready Version=3 Seq=18 Type=order.created Data={}
				CreatedAt=-5h
			row LeaseID=200 OldestLease=105 AggregateID=replayed Version=1 Seq=24 Type=order.created Data={}
				CreatedAt=-9h
			row LeaseID=200 OldestLease=105 twin AggregateID=blocked Version=1 Seq=35 Type=order.created Data={}
				CreatedAt=-9h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=done Version=1 Seq=23 Type=order.created Data={}
				CreatedAt=-9h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=follows Version=1 Seq=29 Type=order.created Data={}
				CreatedAt=-2h1m Attempts=2
			row LeaseID=200 OldestLease=105 twin AggregateID=pauses Version=1 Seq=11 Type=order.created Data={}
				CreatedAt=-9h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=pauses Version=2 Seq=15 Type=order.created Data={}
				CreatedAt=-9h1m Attempts=1
			row LeaseID=200 OldestLease=105 twin AggregateID=ready Version=1 Seq=17 Type=order.created Data={}
				CreatedAt=-9h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=ready Version=2 Seq=10 Type=order.created Data={}
				CreatedAt=-5h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=ready Version=3 Seq=13 Type=order.created Data={}
				CreatedAt=-5h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=replayed Version=1 Seq=19 Type=order.created
				Data={} CreatedAt=-5h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=replayed Version=2 Seq=25 Type=order.created
				Data={} CreatedAt=-9h1m
			deletes outbox_leases/104
			deletes outbox_leases/106
			inserts outbox_leases/200: heads={9, 10, 11, 17, 19, 23, 24, 28, 29, 35} leased_until=now+1m`},
		{rule: "ReadsLeasesFromOneOn", query: q.OutboxLease, first: nextLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.FromLease, p.HeadsMax, p.RunMax = 1, 2, 1 }), any: true, want: `
			row LeaseID=200 OldestLease=103 AggregateID=ready Version=1 Seq=9 Type=order.created Data={}
				CreatedAt=-5h
			row LeaseID=200 OldestLease=103 twin AggregateID=pauses Version=1 Seq=11 Type=order.created Data={}
				CreatedAt=-9h1m
			deletes outbox_leases/102
			deletes outbox_leases/104
			deletes outbox_leases/106
			inserts outbox_leases/200: heads={9, 11} leased_until=now+1m`},
		{rule: "LeavesAnExpiredLeaseThatIsBeingEnded", query: q.OutboxLease, first: nextLease, locked: "outbox_leases/106",
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax = 1, 1 }), any: true, want: `
			row LeaseID=200 OldestLease=105 AggregateID=follows Version=2 Seq=10 Type=order.created Data={}
				CreatedAt=-9h
			deletes outbox_leases/104
			inserts outbox_leases/200: heads={10} leased_until=now+1m`},
		{rule: "LeasesNothing", query: q.OutboxLease, first: nextLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.AfterSeq = 99 }), want: `
			no row
			deletes outbox_leases/104
			deletes outbox_leases/106`},
		{rule: "EndsALease", query: q.OutboxLeaseEnd, each: "103 104 107",
			with: func(id string) any { n, _ := strconv.ParseInt(id, 10, 64); return n }, want: `
			103: returns 1
			103: deletes outbox_leases/103
			104: returns 1
			104: deletes outbox_leases/104
			107: returns 0`},
		{rule: "SeesWhatMayBeDue", query: q.OutboxDue, each: "0 30 41",
			with: func(seq string) any { n, _ := strconv.ParseInt(seq, 10, 64); return n }, want: `
			0: returns true
			30: returns true
			41: returns false`},
		{rule: "LeasesTheOldest", query: q.OutboxLease, first: nextLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax = 2, 2 }), any: true, want: `
			row LeaseID=200 OldestLease=105 AggregateID=follows Version=2 Seq=10 Type=order.created Data={}
				CreatedAt=-9h
			row LeaseID=200 OldestLease=105 AggregateID=ready Version=1 Seq=9 Type=order.created Data={}
				CreatedAt=-5h
			row LeaseID=200 OldestLease=105 AggregateID=ready Version=2 Seq=12 Type=order.created Data={}
				CreatedAt=-5h
			deletes outbox_leases/104
			deletes outbox_leases/106
			inserts outbox_leases/200: heads={9, 10} leased_until=now+1m`},
		{rule: "BeginsAfterAPlaceInTheQueue", query: q.OutboxLease, first: nextLease,
			with: lease(func(p *db.OutboxLeaseParams) { p.HeadsMax, p.RunMax, p.AfterSeq = 2, 1, 12 }), any: true, want: `
			row LeaseID=200 OldestLease=105 twin AggregateID=ready Version=1 Seq=17 Type=order.created Data={}
				CreatedAt=-9h1m
			row LeaseID=200 OldestLease=105 twin AggregateID=replayed Version=1 Seq=19 Type=order.created
				Data={} CreatedAt=-5h1m
			deletes outbox_leases/104
			deletes outbox_leases/106
			inserts outbox_leases/200: heads={17, 19} leased_until=now+1m`},

		{rule: "PlacesAllEarlierEventsInTheFeed", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"pauses"}, Versions: []int64{1},
			FeedTenantIds: []string{tenant}, UptoSeqs: []int64{14},
		}, any: true, want: `
			row -9h
			changes event_feeds/tenant: last_position=12
			changes outbox_events/blocked/1: position=8
			changes outbox_events/follows/2: position=10
			changes outbox_events/pauses/1: last_error=null position=12 published_at=now
			changes outbox_events/ready/1: position=9
			changes outbox_events/ready/2: position=11`},
		{rule: "KeepsAPosition", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant}, AggregateIds: []string{"replayed"}, Versions: []int64{1},
			FeedTenantIds: []string{tenant}, UptoSeqs: []int64{0},
		}, want: `
			row -9h
			changes outbox_events/replayed/1: published_at=now`},
		{rule: "MarksEventsOfSeveralTenants", query: q.OutboxMark, with: db.OutboxMarkParams{
			TenantIds: []string{tenant, twin}, AggregateIds: []string{"follows", "ready"}, Versions: []int64{2, 1},
			FeedTenantIds: []string{tenant, twin}, UptoSeqs: []int64{10, 17},
		}, any: true, want: `
			row -9h
			row -9h1m
			changes event_feeds/tenant: last_position=10
			changes event_feeds/twin: last_position=56
			changes outbox_events/blocked/1: position=8
			changes outbox_events/follows/2: position=10 published_at=now
			changes outbox_events/ready/1: position=9
			changes outbox_events/twin/blocked/2: position=51
			changes outbox_events/twin/pauses/1: position=53
			changes outbox_events/twin/pauses/2: position=55
			changes outbox_events/twin/ready/1: position=56 published_at=now
			changes outbox_events/twin/ready/2: position=52
			changes outbox_events/twin/ready/3: position=54`},

		{rule: "CountsOnlyFailures", query: q.OutboxFail, with: db.OutboxFailParams{
			TenantIds: []string{tenant, tenant, tenant}, AggregateIds: []string{"pauses", "ready", "expired"},
			Versions: []int64{1, 1, 1}, Delays: []time.Duration{0, time.Minute, time.Minute},
			Failed: []bool{false, true, true}, Errors: []string{"", "timeout", "refused"}, Park: []bool{false, false, true},
		}, want: `
			changes outbox_events/expired/1: attempts=3 last_error=refused next_attempt_at=now+1m parked_at=now
			changes outbox_events/pauses/1: next_attempt_at=now
			changes outbox_events/ready/1: attempts=1 last_error=timeout next_attempt_at=now+1m`},
		{rule: "UnparksAnAggregate", query: q.OutboxUnpark, each: "blocked ready", with: func(aggregate string) any {
			return db.OutboxUnparkParams{TenantID: tenant, AggregateID: aggregate}
		}, want: `
			blocked: returns 1
			blocked: changes outbox_events/blocked/1: attempts=0 parked_at=null
			ready: returns 0`},

		{rule: "FindsTheOldestFirst", query: q.OutboxReplayFind, each: "-7h30m/-5h -9h/-7h30m -31h/-29h", with: func(window string) any {
			since, until, _ := strings.Cut(window, "/")
			return db.OutboxReplayFindParams{TenantID: tenant, Since: at(since), Until: at(until), LimitRows: 9}
		}, want: `
			-7h30m/-5h: row Through=41 AggregateID=done Version=2
			-7h30m/-5h: row Through=41 AggregateID=follows Version=1
			-7h30m/-5h: row Through=41 AggregateID=sending Version=1
			-9h/-7h30m: row Through=41 AggregateID=done Version=1
			-31h/-29h: row Through=41 AggregateID=traced Version=1`},
		{rule: "ReadsAPage", query: q.OutboxReplayFind, each: "0 1 2 99", with: func(after string) any {
			_, n := split("after/" + after)
			return db.OutboxReplayFindParams{
				TenantID: tenant, AfterPosition: n, Since: at("-31h"), Until: at("-5h"), LimitRows: 2,
			}
		}, want: `
			0: row Through=2 AggregateID=done Version=1
			1: row Through=3 AggregateID=done Version=2
			2: row Through=4 AggregateID=done Version=3
			2: row Through=4 AggregateID=follows Version=1
			99: row`},
		{rule: "ListsTenantsWithEvents", query: q.OutboxReplayTenants,
			first: `UPDATE event_feeds SET last_position = 1 WHERE tenant_id = 'acme'`,
			with:  db.OutboxReplayTenantsParams{LimitRows: 9}, want: `
			row acme
			row acme:eu
			row another`},
		{rule: "GoesOnAfterATenant", query: q.OutboxReplayTenants,
			with: db.OutboxReplayTenantsParams{After: tenant, LimitRows: 9}, want: `
			row another`},
		{rule: "ReplaysWholeAggregates", query: q.OutboxReplay,
			with: replayed("-7h30m", "-5h", "acme:eu/done/2 acme/done/3 acme/expired/1 acme/follows/2 acme/sending/2"), want: `
			returns 7
			changes outbox_events/done/2: published_at=null
			changes outbox_events/done/3: next_attempt_at=-infinity published_at=null
			changes outbox_events/twin/done/3: published_at=null
			changes outbox_events/twin/expired/1: next_attempt_at=-infinity published_at=null
			changes outbox_events/twin/follows/2: published_at=null
			changes outbox_events/twin/sending/2: published_at=null
			changes outbox_events/twin/sending/3
			deletes outbox_leases/102
			deletes outbox_leases/104
			deletes outbox_leases/106`},
		{rule: "LooksAtTheWindow", query: q.OutboxReplay, each: "-9h/-8h -8h/-7h30m -7h30m/-5h", with: func(window string) any {
			since, until, _ := strings.Cut(window, "/")
			return replayed(since, until, "acme:eu/done/1 acme/done/1")
		}, want: `
			-9h/-8h: returns 0
			-9h/-8h: deletes outbox_leases/102
			-9h/-8h: deletes outbox_leases/104
			-9h/-8h: deletes outbox_leases/106
			-8h/-7h30m: returns 3
			-8h/-7h30m: changes outbox_events/done/1: published_at=null
			-8h/-7h30m: changes outbox_events/done/2: published_at=null
			-8h/-7h30m: changes outbox_events/done/3: next_attempt_at=-infinity published_at=null
			-8h/-7h30m: deletes outbox_leases/102
			-8h/-7h30m: deletes outbox_leases/104
			-8h/-7h30m: deletes outbox_leases/106
			-7h30m/-5h: returns 0
			-7h30m/-5h: deletes outbox_leases/102
			-7h30m/-5h: deletes outbox_leases/104
			-7h30m/-5h: deletes outbox_leases/106`},
		{rule: "SkipsWhatIsBeingSent", query: q.OutboxReplay,
			with: replayed("-31h", "-5h", "acme:eu/sending/1 acme/sending/2 acme/shared/1 acme:eu/shared/1"), want: `
			returns 3
			changes outbox_events/shared/1: published_at=null
			changes outbox_events/twin/sending/2: published_at=null
			changes outbox_events/twin/sending/3
			deletes outbox_leases/102
			deletes outbox_leases/104
			deletes outbox_leases/106`},
		{rule: "ReadsTheClock", query: q.OutboxNow, want: `
			row now`},
		{rule: "CountsAndFindsTheOldest", query: q.OutboxStats, want: `
			row Waiting=23 OldestSeconds=-5h Parked=5`},
		{rule: "FindsTheFirstTrace", query: q.OutboxOrigin, each: "done traced missing",
			with: func(aggregate string) any {
				return db.OutboxOriginParams{TenantID: tenant, AggregateID: aggregate}
			}, want: `
			done: no row
			traced: returns 00-b
			missing: no row`},
	})
}
