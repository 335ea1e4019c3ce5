package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

// All keys have the lease token 3.
const keyRows = `
	idempotency_keys
	  key        lease_token  leased_until  next_attempt_at  attempts  parked_at  finished_at  answer_dropped_at
	  expedited  3            +2h           +1h              2         .          .            .
	  expired    3            -1h           -3h              1         .          .            .
	  finished   3            +1h           -6h              1         .          -5h          .
	  held       3            +1h           +1h              2         .          .            .
	  held_due   3            +1h           -9h              2         .          .            .
	  held_once  3            +1h           +1h              1         .          .            .
	  parked     3            -infinity     -5h              7         -1h        .            .
	  released   3            -infinity     -2h              2         .          .            .
	  tombstone  3            -1h           -8h              1         .          -7h          -6h
	  waits      3            -infinity     +1h              2         .          .            .

	idempotency_keys
	  key      lease_token  lease_expirations  last_error
	  long     3            2                  broken
	  another  3            0                  .
`

var noTenants = []string{}

const eachKey = "expedited expired finished held parked tombstone waits"

func TestQueriesOfKeys(t *testing.T) {
	t.Parallel()
	const firstHolder = `ALTER TABLE idempotency_keys DISABLE TRIGGER USER; UPDATE idempotency_keys SET lease_token = 1,
		next_attempt_at = '2026-01-01' WHERE key = 'expired' AND tenant_id = 'acme:eu'`
	checkQueries(t, keyRows, []queryCase{
		{rule: "BeginsAHistory", query: q.KeyTakeOver, first: firstHolder, with: db.KeyTakeOverParams{
			TenantID: tenant, Key: "expired", SeenToken: 1, ClaimToken: somebody, Lease: time.Minute,
		}, show: "Key", want: `
			row Key=expired AgeSeconds=-9h
			changes idempotency_keys/expired: attempts=2 claim_token=somebody history={1 started now, 2
				taken_over now} lease_expirations=1 lease_token=2 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "BeginsAHistory", query: q.KeyTakeOverDue, first: firstHolder, with: db.KeyTakeOverDueParams{
			ClaimToken: somebody, Lease: time.Minute, BatchMax: 1, Besides: noTenants,
		}, show: "Key", want: `
			row Key=expired AgeSeconds=-9h
			changes idempotency_keys/expired: attempts=2 claim_token=somebody history={1 started now, 2
				taken_over now} lease_expirations=1 lease_token=2 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "WritesNoHistoryOfTheFirstHolder", query: q.KeyAdvance, first: firstHolder, with: db.KeyAdvanceParams{
			TenantID: tenant, Key: "expired", LeaseToken: 1, RecoveryPoint: "next",
		}, want: `
			returns 1
			changes idempotency_keys/expired: recovery_point=next`},
		{rule: "WritesNoHistoryOfTheFirstHolder", query: q.KeyFinish, first: firstHolder, with: db.KeyFinishParams{
			TenantID: tenant, Key: "expired", LeaseToken: 1, AnswerVersion: 1, AnswerStatus: 201,
			AnswerHeaders: []byte("h"), AnswerBody: []byte("b"),
		}, want: `
			returns 1
			changes idempotency_keys/expired: answer_body=b answer_headers=h answer_status=201 answer_version=1
				finished_at=now recovery_point=finished`},
		{rule: "ReadsAKey", query: q.KeyLookup, each: eachKey, with: func(key string) any {
			return db.KeyLookupParams{TenantIds: []string{tenant}, Keys: []string{key}}
		}, show: "Operation Fingerprint ResourceID LeaseToken AnswerVersion AnswerStatus AnswerHeaders AnswerBody", want: `
			expedited: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_expedited LeaseToken=3
				HeldSeconds=+2h
			expired: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_expired LeaseToken=3
			finished: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_finished LeaseToken=3
				Finished=true AnswerVersion=1 AnswerStatus=201 AnswerHeaders=h AnswerBody={}
			held: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_held LeaseToken=3
				HeldSeconds=+1h
			parked: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_parked LeaseToken=3
			tombstone: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_tombstone LeaseToken=3
				Finished=true AnswerDropped=true
			waits: row Ordinal=1 Operation=create_payment Fingerprint=32 bytes ResourceID=pay_waits LeaseToken=3`},
		{rule: "HasNoRowOfAnotherKey", query: q.KeyLookup,
			with: db.KeyLookupParams{TenantIds: []string{tenant}, Keys: []string{"new"}}, want: `
			no row`},
		{rule: "ReadsAKey", query: q.KeyRead,
			with: db.KeyReadParams{TenantIds: []string{tenant}, Keys: []string{"held"}}, show: "LeaseToken Attempts", want: `
			row Ordinal=1 Key=held LeaseToken=3 Attempts=2`},
		{rule: "InsertsANewKey", query: q.KeyClaim, with: db.KeyClaimParams{
			TenantID: tenant, Key: "new", Operation: "create_payment", Fingerprint: make([]byte, 32), RequestID: "req",
			FingerprintVersion: 1, ResourceID: "pay", RecoveryPoint: "started", ClaimToken: somebody, Lease: time.Minute,
		}, want: `
			returns 1
			inserts idempotency_keys/new: attempts=1 claim_token=somebody created_at=now fingerprint=32 bytes
				fingerprint_version=1 lease_token=1 leased_until=now+1m next_attempt_at=now+1m
				operation=create_payment recovery_point=started request_id=req resource_id=pay`},
		{rule: "LeavesAKeyAlone", query: q.KeyClaim, with: db.KeyClaimParams{
			TenantID: tenant, Key: "tombstone", Operation: "create_payment", Fingerprint: make([]byte, 32),
		}, want: `
			no row`},
		{rule: "TakesWhatIsReleasedOrExpired", query: q.KeyTakeOver, each: eachKey, with: func(key string) any {
			return db.KeyTakeOverParams{TenantID: tenant, Key: key, SeenToken: 3, ClaimToken: somebody, Lease: time.Minute}
		}, want: `
			expedited: no row
			expired: row Key=expired AgeSeconds=-9h
			expired: changes idempotency_keys/expired: attempts=2 claim_token=somebody history={4 taken_over
				now} lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			finished: no row
			held: no row
			parked: row Key=parked AgeSeconds=-9h
			parked: changes idempotency_keys/parked: attempts=8 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m parked_at=null
			tombstone: no row
			waits: row Key=waits AgeSeconds=-9h
			waits: changes idempotency_keys/waits: attempts=3 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "ComparesTheToken", query: q.KeyTakeOver, with: db.KeyTakeOverParams{
			TenantID: tenant, Key: "released", SeenToken: 2, ClaimToken: somebody, Lease: time.Minute,
		}, want: `
			no row`},
		{rule: "KeepsAShortHistory", query: q.KeyTakeOver,
			first: "UPDATE idempotency_keys SET history = ARRAY(SELECT n::text FROM generate_series(1, 26) n) " +
				"WHERE key = 'long'",
			with: db.KeyTakeOverParams{
				TenantID: tenant, Key: "long", SeenToken: 3, ClaimToken: somebody, Lease: time.Minute,
			}, want: `
			row Key=long AgeSeconds=-9h
			changes idempotency_keys/long: attempts=2 claim_token=somebody history={1, 2, 3, 4, 5, 6, 7, 8, 9,
				10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 4 resumed now} lease_token=4
				leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "TakesWhatIsDue", query: q.KeyTakeOverDue,
			with: db.KeyTakeOverDueParams{ClaimToken: somebody, Lease: time.Minute, BatchMax: 99, Besides: noTenants}, any: true, want: `
			row Key=another AgeSeconds=-9h
			row Key=expired AgeSeconds=-9h
			row Key=long AgeSeconds=-9h
			row Key=released AgeSeconds=-9h
			row twin Key=another AgeSeconds=-9h1m
			row twin Key=finished AgeSeconds=-9h1m
			row twin Key=long AgeSeconds=-9h1m
			row twin Key=tombstone AgeSeconds=-9h1m
			changes idempotency_keys/another: attempts=2 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/expired: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/long: attempts=2 claim_token=somebody history={4 resumed now} lease_token=4
				leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/released: attempts=3 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/another: attempts=2 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/finished: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/long: attempts=2 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/tombstone: attempts=3 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "TakesWhatIsDueLongest", query: q.KeyTakeOverDue,
			with: db.KeyTakeOverDueParams{ClaimToken: somebody, Lease: time.Minute, BatchMax: 2, Besides: noTenants}, any: true, want: `
			row Key=expired AgeSeconds=-9h
			row twin Key=finished AgeSeconds=-9h1m
			changes idempotency_keys/expired: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/finished: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "TakesNothingOfSomeTenants", query: q.KeyTakeOverDue, with: db.KeyTakeOverDueParams{
			ClaimToken: somebody, Lease: time.Minute, BatchMax: 99, Besides: []string{tenant, "another"},
		}, any: true, want: `
			row twin Key=another AgeSeconds=-9h1m
			row twin Key=finished AgeSeconds=-9h1m
			row twin Key=long AgeSeconds=-9h1m
			row twin Key=tombstone AgeSeconds=-9h1m
			changes idempotency_keys/twin/another: attempts=2 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/finished: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/long: attempts=2 claim_token=somebody history={4 resumed now} lease_token=4
				leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/tombstone: attempts=3 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "SkipsWhatAnotherProcessTakes", query: q.KeyTakeOverDue, locked: "idempotency_keys/expired",
			with: db.KeyTakeOverDueParams{ClaimToken: somebody, Lease: time.Minute, BatchMax: 2, Besides: noTenants}, any: true, want: `
			row twin Key=finished AgeSeconds=-9h1m
			row twin Key=tombstone AgeSeconds=-9h1m
			changes idempotency_keys/twin/finished: attempts=2 claim_token=somebody history={4 taken_over now}
				lease_expirations=1 lease_token=4 leased_until=now+1m next_attempt_at=now+1m
			changes idempotency_keys/twin/tombstone: attempts=3 claim_token=somebody history={4 resumed now}
				lease_token=4 leased_until=now+1m next_attempt_at=now+1m`},
		{rule: "LocksTheUnfinished", query: q.KeyLockFenced, each: eachKey, with: func(key string) any {
			return db.KeyLockFencedParams{TenantID: tenant, Key: key, LeaseToken: 3}
		}, want: `
			expedited: returns started
			expedited: locks idempotency_keys/expedited
			expired: returns started
			expired: locks idempotency_keys/expired
			finished: no row
			held: returns started
			held: locks idempotency_keys/held
			parked: returns started
			parked: locks idempotency_keys/parked
			tombstone: no row
			waits: returns started
			waits: locks idempotency_keys/waits`},
		{rule: "ComparesTheToken", query: q.KeyLockFenced,
			with: db.KeyLockFencedParams{TenantID: tenant, Key: "held", LeaseToken: 2}, want: `
			no row`},
		{rule: "SetsTheRecoveryPoint", query: q.KeyAdvance, each: eachKey, with: func(key string) any {
			return db.KeyAdvanceParams{TenantID: tenant, Key: key, LeaseToken: 3, RecoveryPoint: "next"}
		}, want: `
			expedited: returns 1
			expedited: changes idempotency_keys/expedited: history={3 next now} recovery_point=next
			expired: returns 1
			expired: changes idempotency_keys/expired: history={3 next now} recovery_point=next
			finished: returns 0
			held: returns 1
			held: changes idempotency_keys/held: history={3 next now} recovery_point=next
			parked: returns 1
			parked: changes idempotency_keys/parked: history={3 next now} recovery_point=next
			tombstone: returns 0
			waits: returns 1
			waits: changes idempotency_keys/waits: history={3 next now} recovery_point=next`},
		{rule: "ComparesTheToken", query: q.KeyAdvance,
			with: db.KeyAdvanceParams{TenantID: tenant, Key: "held", LeaseToken: 2, RecoveryPoint: "next"}, want: `
			returns 0`},
		{rule: "StoresTheResponse", query: q.KeyFinish, each: "held finished tombstone", with: func(key string) any {
			return db.KeyFinishParams{TenantID: tenant, Key: key, LeaseToken: 3, AnswerVersion: 1, AnswerStatus: 200,
				AnswerHeaders: []byte("h"), AnswerBody: []byte("b")}
		}, want: `
			held: returns 1
			held: changes idempotency_keys/held: answer_body=b answer_headers=h answer_status=200
				answer_version=1 finished_at=now history={3 finished now} recovery_point=finished
			finished: returns 0
			tombstone: returns 0`},
		{rule: "ComparesTheToken", query: q.KeyFinish, with: db.KeyFinishParams{
			TenantID: tenant, Key: "held", LeaseToken: 2, AnswerVersion: 1, AnswerStatus: 200, AnswerHeaders: []byte("h"),
			AnswerBody: []byte("b"),
		}, want: `
			returns 0`},
		{rule: "ReleasesTheClaim", query: q.KeyYield, each: "expedited held finished", with: func(key string) any {
			return db.KeyYieldParams{TenantID: tenant, Key: key, LeaseToken: 3, LastError: ptr("unknown"), Pause: time.Hour}
		}, want: `
			expedited: returns 1
			expedited: changes idempotency_keys/expedited: last_error=unknown leased_until=-infinity
				next_attempt_at=now
			held: returns 1
			held: changes idempotency_keys/held: last_error=unknown leased_until=-infinity
				next_attempt_at=now+1h
			finished: returns 0`},
		{rule: "ParksTheKey", query: q.KeyYield, each: "expedited held", with: func(key string) any {
			return db.KeyYieldParams{TenantID: tenant, Key: key, LeaseToken: 3, LastError: ptr("bug"), Pause: time.Hour,
				Park: true}
		}, want: `
			expedited: returns 1
			expedited: changes idempotency_keys/expedited: last_error=bug leased_until=-infinity
				next_attempt_at=now
			held: returns 1
			held: changes idempotency_keys/held: last_error=bug leased_until=-infinity next_attempt_at=now+1h
				parked_at=now`},
		{rule: "ComparesTheToken", query: q.KeyYield,
			with: db.KeyYieldParams{TenantID: tenant, Key: "held", LeaseToken: 2}, want: `
			returns 0`},
		{rule: "LeavesHeldKeysAlone", query: q.KeyExpedite, each: "held held_once parked waits finished tombstone",
			with: func(key string) any { return db.KeyExpediteParams{TenantID: tenant, Key: key} }, want: `
			held: returns 0
			held_once: returns 0
			parked: returns 1
			parked: changes idempotency_keys/parked: next_attempt_at=now parked_at=null
			waits: returns 1
			waits: changes idempotency_keys/waits: next_attempt_at=now
			finished: returns 0
			tombstone: returns 0`},
		{rule: "LeavesTheFirstHolderAlone", query: q.KeyExpedite, each: "held held_once parked waits finished tombstone",
			with: func(key string) any { return db.KeyExpediteParams{TenantID: tenant, Key: key, EvenHeld: true} },
			want: `
			held: returns 1
			held: changes idempotency_keys/held: next_attempt_at=now
			held_once: returns 0
			parked: returns 1
			parked: changes idempotency_keys/parked: next_attempt_at=now parked_at=null
			waits: returns 1
			waits: changes idempotency_keys/waits: next_attempt_at=now
			finished: returns 0
			tombstone: returns 0`},
		{rule: "LeavesHeldKeysAlone", query: q.KeyRetryNow, each: "held long parked finished tombstone",
			with: func(key string) any { return db.KeyRetryNowParams{TenantID: tenant, Key: key} }, want: `
			held: returns 0
			long: returns 1
			long: changes idempotency_keys/long: lease_expirations=0 next_attempt_at=now
			parked: returns 1
			parked: changes idempotency_keys/parked: next_attempt_at=now parked_at=null
			finished: returns 0
			tombstone: returns 0`},
		{rule: "InsertsANewKey", query: q.KeyEnqueue, with: db.KeyEnqueueParams{
			TenantID: tenant, Key: "sweep new", Operation: "sweep", Fingerprint: make([]byte, 32), RequestID: "req",
			FingerprintVersion: 1, ResourceID: "ord", RecoveryPoint: "begun", ClaimToken: somebody,
		}, want: `
			returns 1
			inserts idempotency_keys/sweep new: claim_token=somebody created_at=now fingerprint=32 bytes
				fingerprint_version=1 lease_token=1 leased_until=-infinity next_attempt_at=now operation=sweep
				recovery_point=begun request_id=req resource_id=ord`},
		{rule: "LeavesAKeyAlone", query: q.KeyEnqueue, with: db.KeyEnqueueParams{
			TenantID: tenant, Key: "tombstone", Operation: "sweep", Fingerprint: make([]byte, 32),
		}, want: `
			returns 0`},
	})
}
