package postgres_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"example.com/payonce/db"
)

// The lease token of every event is 7. Events of a subject are applied in the order of their versions.
const inboxRows = `
	inbox_events
	  event_id  consumer  status   subject  version  leased_until  lease_token  attempts  received_at  done_at  last_error
	  parked    stripe    parked   .        .        .             7            9         -10h         .        bug
	  leased    stripe    pending  .        .        +1h           7            1         -9h          .        .
	  new       stripe    pending  .        .        .             7            .         -1h          .        .
	  new_2     other     pending  .        .        .             7            .         -2h          .        .
	  failed    stripe    pending  .        .        -2h           7            3         -4h          .        timeout
	  failed_2  stripe    pending  .        .        -3h           7            3         -5h          .        timeout
	  leased    other     pending  .        .        +1h           7            1         -9h          .        .
	  failed    other     pending  .        .        +1h           7            1         -9h          .        .
	  parked    other     parked   .        .        .             7            9         -9h          .        bug
	  older     other     done     .        .        .             7            1         -9h          -1h      .
	  old       stripe    done     .        .        .             7            1         -9h          -8h      .
	  older     stripe    done     .        .        .             7            1         -9h          -9h      .
	  recent    stripe    done     .        .        .             7            1         -9h          -1h      .
	  a-1       ledger    done     a        1        .             7            1         -9h          -2h      .
	  a-2       ledger    pending  a        2        -4h           7            2         -9h          .        .
	  a-3       ledger    pending  a        3        -5h           7            .         -9h          .        .
	  b-1       ledger    parked   b        1        .             7            9         -9h          .        .
	  b-2       ledger    pending  b        2        -6h           7            .         -9h          .        .
	  d-1       ledger    done     d        1        .             7            1         -9h          -2h      .
	  e         idle      done     .        .        .             7            1         -9h          -2h      .
	  b-2       audit     pending  b        2        -7h           7            .         -9h          .        .
`

func digest(payload string) []byte {
	sum := sha256.Sum256([]byte(payload))
	return sum[:]
}

func TestQueriesOfTheInbox(t *testing.T) {
	t.Parallel()
	fail := func(event string) db.InboxFailParams {
		return db.InboxFailParams{Consumer: "stripe", EventID: event, LeaseToken: 7, LastError: "refused",
			Delay: time.Hour, AwayMax: 90 * time.Minute}
	}
	all := []string{"stripe", "ledger", "audit"}
	checkQueries(t, inboxRows, []queryCase{
		{rule: "StoresAnEvent", query: q.InboxReceive, with: db.InboxReceiveParams{
			Consumers: []string{"stripe"}, EventIds: []string{"evt"}, Types: []string{"refund.updated"},
			ObjectIds: []string{"re"}, Payloads: [][]byte{[]byte("p")}, PayloadSha256s: [][]byte{digest("p")},
			Traceparents: []string{""},
		}, want: `
			row Consumer=stripe EventID=evt
			inserts inbox_events/stripe/evt: leased_until=-infinity object_id=re payload=p payload_sha256=32
				bytes received_at=now status=pending type=refund.updated`},
		{rule: "CountsKinds", query: q.StripeEventKinds, given: `
			inbox_events
			  event_id  consumer  status   type                         done_at
			  thin      stripe    done     v1.payment_intent.succeeded  -1h
			  waits     stripe    pending  v1.payment_intent.succeeded  .`, want: `
			row Snapshots=3 Thin=1`},
		{rule: "StoresEachEventOnce", query: q.InboxReceive, with: db.InboxReceiveParams{
			Consumers: []string{"stripe", "other", "stripe", "stripe", "other", "stripe"},
			EventIds:  []string{"evt_1", "evt_1", "old", "evt_2", "new", "evt_1"},
			Types:     []string{"t1", "t2", "t3", "t4", "t5", "t6"}, ObjectIds: []string{"re", "", "", "", "", ""},
			Payloads:       [][]byte{[]byte("1"), []byte("2"), []byte("3"), []byte("4"), []byte("5"), []byte("6")},
			PayloadSha256s: [][]byte{digest("1"), digest("2"), digest("3"), digest("4"), digest("5"), digest("6")},
			Traceparents:   []string{"00-a", "", "", "", "", ""},
		}, want: `
			row Consumer=stripe EventID=evt_1
			row Consumer=other EventID=evt_1
			row Consumer=stripe EventID=evt_2
			row Consumer=other EventID=new
			inserts inbox_events/stripe/evt_1: leased_until=-infinity object_id=re payload=1 payload_sha256=32
				bytes received_at=now status=pending traceparent=00-a type=t1
			inserts inbox_events/other/evt_1: leased_until=-infinity payload=2 payload_sha256=32 bytes
				received_at=now status=pending type=t2
			inserts inbox_events/stripe/evt_2: leased_until=-infinity payload=4 payload_sha256=32 bytes
				received_at=now status=pending type=t4
			inserts inbox_events/other/new: leased_until=-infinity payload=5 payload_sha256=32 bytes
				received_at=now status=pending type=t5`},
		{rule: "ReadsWhatIsDue", query: q.InboxDue, with: db.InboxDueParams{Consumers: all, PayloadMax: 99, LimitRows: 99},
			show: "Payload", want: `
			row Consumer=stripe EventID=new Type=payment_intent.succeeded ReceivedAt=-1h Payload={}
			row Consumer=audit EventID=b-2 Type=payment_intent.succeeded ReceivedAt=-9h
			row Consumer=ledger EventID=b-2 Type=payment_intent.succeeded ReceivedAt=-9h
			row Consumer=ledger EventID=a-3 Type=payment_intent.succeeded ReceivedAt=-9h
			row Consumer=ledger EventID=a-2 Type=payment_intent.succeeded ReceivedAt=-9h
			row Consumer=stripe EventID=failed_2 Type=payment_intent.succeeded ReceivedAt=-5h Payload={}
			row Consumer=stripe EventID=failed Type=payment_intent.succeeded ReceivedAt=-4h Payload={}`},
		{rule: "LeavesOutLargePayloads", query: q.InboxDue,
			with: db.InboxDueParams{Consumers: []string{"stripe"}, LimitRows: 1}, show: "Payload", want: `
			row Consumer=stripe EventID=new Type=payment_intent.succeeded ReceivedAt=-1h`},
		{rule: "RecordsWhatIsNotLeased", query: q.InboxSettle,
			with: db.InboxSettleParams{Consumer: "stripe", EventIds: []string{"failed", "leased", "parked", "old", "none"}},
			want: `
			row failed
			changes inbox_events/stripe/failed: done_at=now last_error=null payload=null status=done`},
		{rule: "SkipsALockedEvent", query: q.InboxSettle, locked: "inbox_events/stripe/failed",
			with: db.InboxSettleParams{Consumer: "stripe", EventIds: []string{"failed", "failed_2"}}, want: `
			row failed_2
			changes inbox_events/stripe/failed_2: done_at=now last_error=null payload=null status=done`},
		{rule: "LeasesTheFirstOfEachSubject", query: q.InboxLease,
			with: db.InboxLeaseParams{Lease: time.Minute, Consumers: all, LimitRows: 99}, any: true, want: `
			row Consumer=audit EventID=b-2
			row Consumer=ledger EventID=a-2
			row Consumer=stripe EventID=failed
			row Consumer=stripe EventID=failed_2
			row Consumer=stripe EventID=new
			changes inbox_events/audit/b-2: attempts=1 lease_token=8 leased_until=now+1m
			changes inbox_events/ledger/a-2: attempts=3 lease_token=8 leased_until=now+1m
			changes inbox_events/stripe/failed: attempts=4 lease_token=8 leased_until=now+1m
			changes inbox_events/stripe/failed_2: attempts=4 lease_token=8 leased_until=now+1m
			changes inbox_events/stripe/new: attempts=1 lease_token=8 leased_until=now+1m`},
		{rule: "LeasesWhatIsDueLongest", query: q.InboxLease,
			with: db.InboxLeaseParams{Lease: time.Minute, Consumers: []string{"stripe", "audit"}, LimitRows: 3}, any: true,
			want: `
			row Consumer=audit EventID=b-2
			row Consumer=stripe EventID=failed_2
			row Consumer=stripe EventID=new
			changes inbox_events/audit/b-2: attempts=1 lease_token=8 leased_until=now+1m
			changes inbox_events/stripe/failed_2: attempts=4 lease_token=8 leased_until=now+1m
			changes inbox_events/stripe/new: attempts=1 lease_token=8 leased_until=now+1m`},
		{rule: "SkipsALockedEvent", query: q.InboxLease, locked: "inbox_events/audit/b-2",
			with: db.InboxLeaseParams{Lease: time.Minute, Consumers: []string{"audit", "other"}, LimitRows: 9}, any: true,
			want: `
			row Consumer=other EventID=new_2
			changes inbox_events/other/new_2: attempts=1 lease_token=8 leased_until=now+1m`},
		{rule: "NeedsTheLease", query: q.InboxFinish, each: "leased/7 leased/6 parked/7 old/7", with: func(of string) any {
			event, token := split(of)
			return db.InboxFinishParams{Consumer: "stripe", EventID: event, LeaseToken: token}
		}, want: `
			leased/7: returns 1
			leased/7: changes inbox_events/stripe/leased: done_at=now payload=null status=done
			leased/6: returns 0
			parked/7: returns 0
			old/7: returns 0`},
		{rule: "NeedsTheLease", query: q.InboxFail, each: "leased/7 leased/6 parked/7 old/7", with: func(of string) any {
			event, token := split(of)
			return but(fail(event), func(p *db.InboxFailParams) { p.LeaseToken = token })
		}, want: `
			leased/7: returns 1
			leased/7: changes inbox_events/stripe/leased: last_error=refused leased_until=now+1h
			leased/6: returns 0
			parked/7: returns 0
			old/7: returns 0`},
		{rule: "ParksAnEvent", query: q.InboxFail,
			with: but(fail("failed"), func(p *db.InboxFailParams) { p.Park = true }), want: `
			returns 1
			changes inbox_events/stripe/failed: last_error=refused leased_until=now+1h parked_at=now
				status=parked`},
		{rule: "CountsNoAttemptWhileAnotherSystemIsAway", query: q.InboxFail,
			with: but(fail("failed"), func(p *db.InboxFailParams) { p.Away = true }), want: `
			returns 1
			changes inbox_events/stripe/failed: attempts=2 last_error=refused leased_until=now+1h30m`},
		{rule: "UnparksAnEvent", query: q.InboxUnpark, each: "parked leased old", with: func(event string) any {
			return db.InboxUnparkParams{Consumer: "stripe", EventID: event}
		}, want: `
			parked: returns 1
			parked: changes inbox_events/stripe/parked: attempts=0 parked_at=null status=pending
			leased: returns 0
			old: returns 0`},
		{rule: "DeletesTheOldestAppliedEvents", query: q.InboxReap,
			with: db.InboxReapParams{Retention: 5 * time.Hour, LimitRows: 9}, want: `
			returns 2
			deletes inbox_events/stripe/old
			deletes inbox_events/stripe/older`},
		{rule: "StopsAtTheLimit", query: q.InboxReap,
			with: db.InboxReapParams{Retention: 5 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes inbox_events/stripe/older`},
		{rule: "SkipsALockedEvent", query: q.InboxReap, locked: "inbox_events/stripe/older",
			with: db.InboxReapParams{Retention: 5 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes inbox_events/stripe/old`},
		{rule: "CountsPerConsumer", query: q.InboxStats, any: true, want: `
			row Consumer=audit Pending=1 OldestSeconds=-9h
			row Consumer=ledger Pending=3 Parked=1 OldestSeconds=-9h
			row Consumer=other Pending=3 Parked=1 OldestSeconds=-9h
			row Consumer=stripe Pending=4 Parked=1 OldestSeconds=-9h`},
	})
}
