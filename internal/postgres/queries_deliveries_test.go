package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

func init() {
	defaults["webhook_endpoints"] = func(row map[string]string) map[string]string {
		return map[string]string{"url": "https://" + row["id"] + ".example", "created_at": "-9h"}
	}
	defaults["webhook_secrets"] = func(map[string]string) map[string]string {
		return map[string]string{"secret": "secret_secret_secret_sec"}
	}
	defaults["webhook_deliveries"] = func(row map[string]string) map[string]string {
		d := map[string]string{"id": row["event_id"], "endpoint_id": "well", "event_id": row["id"], "event_type": "t", "body": "b",
			"created_at": "-9h", "lease_token": "7"}
		if s := row["status"]; s == "failed" || s == "delivered" || s == "skipped" {
			d["ended_at"] = "-1h"
		}
		return d
	}
}

// The lease token of every delivery is 7.
const deliveryRows = `
	webhook_endpoints
	  id        number  version  event_types  disabled_at  failing_since
	  busy      1       .        .            .            .
	  disabled  2       3        {*}          -1h          .
	  ended     3       .        {a,t}        .            .
	  fails     4       2        {a}          .            -2h
	  later     5       .        {*}          .            .
	  well      6       .        .            .            .

	webhook_secrets
	  endpoint_id  version  expires_at
	  busy         1        .
	  disabled     1        .
	  ended        1        -1h
	  ended        2        .
	  fails        3        +1h
	  fails        4        .
	  later        1        .
	  well         1        .

	webhook_deliveries
	  id          endpoint_id  status     leased_until  attempts  ended_at  created_at  http_status  last_error  last_attempt_at
	  a_due       well         pending    -6h           1         .         -5h         500          .           -7h
	  a_due_2     well         pending    -2h           1         .         -5h         .            .           .
	  a_leased    well         pending    +1h           1         .         -5h         .            .           .
	  a_fails     fails        pending    -5h           1         .         -5h         .            .           .
	  b_failed    well         failed     .             9         -4h       -9h         410          refused     .
	  b_failed_2  ended        failed     .             9         -6h       -8h         .            refused     .
	  c_done      well         delivered  .             2         -5h       -9h         200          .           -5h
	  c_done_2    well         delivered  .             2         -1h       -9h         200          .           .
	  d_busy      busy         pending    -8h           1         .         -5h         .            .           .
	  d_disabled  disabled     pending    -9h           1         .         -6h         .            .           .
	  d_later     later        pending    +1h           1         .         -5h         .            .           .
	  d_skipped   disabled     skipped    .             .         -2h       -9h         .            .           .
`

func TestQueriesOfDeliveries(t *testing.T) {
	t.Parallel()
	lease := func(limit int32, busy ...string) any {
		return db.DeliveryLeaseParams{Lease: time.Minute, Busy: append([]string{}, busy...), Among: []string{},
			PerEndpoint: 8, LimitRows: limit}
	}
	of := func(fn func(id string, token int64) any) func(string) any {
		return func(of string) any { return fn(split(of)) }
	}
	const ended = "a_due/7 a_due/6 b_failed/7 c_done/7 d_skipped/7"
	checkQueries(t, deliveryRows, []queryCase{
		{rule: "ForThoseThatWantTheType", query: q.DeliveriesCreate, each: "t a", with: func(kind string) any {
			return db.DeliveriesCreateParams{TenantID: tenant, EventID: "new", EventType: kind, Body: []byte("b"),
				Ids: []string{"n1", "n2", "n3", "n4", "n5", "n6"}}
		}, want: `
			t: returns 5
			t: inserts webhook_deliveries/n1: body=b created_at=now endpoint_id=busy event_id=new event_type=t
				leased_until=-infinity status=pending
			t: inserts webhook_deliveries/n2: body=b created_at=now ended_at=now endpoint_id=disabled
				event_id=new event_type=t leased_until=-infinity status=skipped
			t: inserts webhook_deliveries/n3: body=b created_at=now endpoint_id=ended event_id=new event_type=t
				leased_until=-infinity status=pending
			t: inserts webhook_deliveries/n4: body=b created_at=now endpoint_id=later event_id=new event_type=t
				leased_until=-infinity status=pending
			t: inserts webhook_deliveries/n5: body=b created_at=now endpoint_id=well event_id=new event_type=t
				leased_until=-infinity status=pending
			a: returns 6
			a: inserts webhook_deliveries/n1: body=b created_at=now endpoint_id=busy event_id=new event_type=a
				leased_until=-infinity status=pending
			a: inserts webhook_deliveries/n2: body=b created_at=now ended_at=now endpoint_id=disabled
				event_id=new event_type=a leased_until=-infinity status=skipped
			a: inserts webhook_deliveries/n3: body=b created_at=now endpoint_id=ended event_id=new event_type=a
				leased_until=-infinity status=pending
			a: inserts webhook_deliveries/n4: body=b created_at=now endpoint_id=fails event_id=new event_type=a
				leased_until=-infinity status=pending
			a: inserts webhook_deliveries/n5: body=b created_at=now endpoint_id=later event_id=new event_type=a
				leased_until=-infinity status=pending
			a: inserts webhook_deliveries/n6: body=b created_at=now endpoint_id=well event_id=new event_type=a
				leased_until=-infinity status=pending`},
		{rule: "ForOneEndpoint", query: q.DeliveryInsert, with: db.DeliveryInsertParams{TenantID: tenant, ID: "new",
			EndpointID: "fails", EventID: "new", EventType: "ping", Body: []byte("b")}, want: `
			inserts webhook_deliveries/new: body=b created_at=now endpoint_id=fails event_id=new event_type=ping
				leased_until=-infinity status=pending`},
		{rule: "IsDueWhenItWasMade", query: q.DeliveryGet, each: "a_due d_later missing", with: func(of string) any {
			return db.DeliveryGetParams{TenantID: tenant, ID: of}
		}, want: `
			a_due: row ID=a_due EndpointID=well EventID=a_due EventType=t Status=pending Attempts=1
				HttpStatus=500 LastAttemptAt=-7h NextAttemptAt=-5h CreatedAt=-5h
			d_later: row ID=d_later EndpointID=later EventID=d_later EventType=t Status=pending Attempts=1
				NextAttemptAt=+1h CreatedAt=-5h
			missing: no row`},
		{rule: "IsTriedWhenAnAttemptHasEnded", query: q.DeliveryGet, each: "began failed postponed b_failed c_done",
			given: `
			webhook_deliveries
			  id         endpoint_id  status   leased_until  attempts  last_error
			  began      well         pending  +1h           1         .
			  failed     well         pending  +1h           1         refused
			  postponed  well         pending  +1h           0         no key
			`, with: func(of string) any { return db.DeliveryGetParams{TenantID: tenant, ID: of} }, want: `
			began: row ID=began EndpointID=well EventID=began EventType=t Status=pending Attempts=1
				NextAttemptAt=+1h CreatedAt=-9h
			failed: row ID=failed EndpointID=well EventID=failed EventType=t Status=pending Attempts=1
				NextAttemptAt=+1h CreatedAt=-9h Tried=true
			postponed: row ID=postponed EndpointID=well EventID=postponed EventType=t Status=pending
				NextAttemptAt=+1h CreatedAt=-9h
			b_failed: row ID=b_failed EndpointID=well EventID=b_failed EventType=t Status=failed Attempts=9
				HttpStatus=410 NextAttemptAt=-9h CreatedAt=-9h Tried=true
			c_done: row ID=c_done EndpointID=well EventID=c_done EventType=t Status=delivered Attempts=2
				HttpStatus=200 LastAttemptAt=-5h NextAttemptAt=-9h CreatedAt=-9h Tried=true`},
		{rule: "HasAllStatuses", query: q.DeliveryList, with: db.DeliveryListParams{TenantID: tenant, EndpointID: "well",
			Statuses: []string{"pending", "delivered", "failed", "skipped"}, LimitRows: 9}, show: "ID", want: `
			row ID=c_done_2 EndpointID=well EventID=c_done_2 EventType=t Status=delivered Attempts=2
				HttpStatus=200 NextAttemptAt=-9h CreatedAt=-9h
			row ID=c_done EndpointID=well EventID=c_done EventType=t Status=delivered Attempts=2 HttpStatus=200
				LastAttemptAt=-5h NextAttemptAt=-9h CreatedAt=-9h
			row ID=b_failed EndpointID=well EventID=b_failed EventType=t Status=failed Attempts=9 HttpStatus=410
				NextAttemptAt=-9h CreatedAt=-9h
			row ID=a_leased EndpointID=well EventID=a_leased EventType=t Status=pending Attempts=1
				NextAttemptAt=+1h CreatedAt=-5h
			row ID=a_due_2 EndpointID=well EventID=a_due_2 EventType=t Status=pending Attempts=1
				NextAttemptAt=-2h CreatedAt=-5h
			row ID=a_due EndpointID=well EventID=a_due EventType=t Status=pending Attempts=1 HttpStatus=500
				LastAttemptAt=-7h NextAttemptAt=-5h CreatedAt=-5h`},
		{rule: "HasSomeStatuses", query: q.DeliveryList, with: db.DeliveryListParams{TenantID: tenant, EndpointID: "well",
			Statuses: []string{"delivered", "failed"}, LimitRows: 9}, show: "ID", want: `
			row ID=c_done_2 EndpointID=well EventID=c_done_2 EventType=t Status=delivered Attempts=2
				HttpStatus=200 NextAttemptAt=-9h CreatedAt=-9h
			row ID=c_done EndpointID=well EventID=c_done EventType=t Status=delivered Attempts=2 HttpStatus=200
				LastAttemptAt=-5h NextAttemptAt=-9h CreatedAt=-9h
			row ID=b_failed EndpointID=well EventID=b_failed EventType=t Status=failed Attempts=9 HttpStatus=410
				NextAttemptAt=-9h CreatedAt=-9h`},
		{rule: "FollowsAnother", query: q.DeliveryList, with: db.DeliveryListParams{TenantID: tenant, EndpointID: "well",
			Statuses: []string{"pending", "delivered"}, After: "c_done", LimitRows: 2}, show: "ID", want: `
			row ID=a_leased EndpointID=well EventID=a_leased EventType=t Status=pending Attempts=1
				NextAttemptAt=+1h CreatedAt=-5h
			row ID=a_due_2 EndpointID=well EventID=a_due_2 EventType=t Status=pending Attempts=1
				NextAttemptAt=-2h CreatedAt=-5h`},
		{rule: "TakesWhatIsDue", query: q.DeliveryLease, with: lease(20, "busy"), any: true, want: `
			row ID=a_due EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2 Url=https://well.example
				Versions=[1] Secrets=secret_secret_secret_sec
			row ID=a_due_2 EndpointID=well EventID=a_due_2 Body=b LeaseToken=8 Attempts=2
				Url=https://well.example Versions=[1] Secrets=secret_secret_secret_sec
			row ID=a_fails EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://fails.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
				FailingSeconds=-2h Fails=true
			row twin ID=a_due_2 EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2
				Url=https://later.example Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=a_leased EndpointID=well EventID=a_due_2 Body=b LeaseToken=8 Attempts=2
				Url=https://later.example Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=b_failed EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://ended.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/a_due: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/a_due_2: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/a_fails: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/a_due_2: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/a_leased: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/b_failed: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "TakesWhatIsDueLongest", query: q.DeliveryLease, with: lease(2), any: true, want: `
			row ID=d_busy EndpointID=busy EventID=d_busy Body=b LeaseToken=8 Attempts=2 Url=https://busy.example
				Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/d_busy: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "TakesTheEndpointsThatWaitLongest", query: q.DeliveryLease, with: lease(1, "busy"), any: true, want: `
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "TakesSoManyOfAnEndpoint", query: q.DeliveryLease, with: db.DeliveryLeaseParams{Lease: time.Minute,
			Busy: []string{"busy"}, Among: []string{}, PerEndpoint: 1, LimitRows: 20}, any: true, want: `
			row ID=a_due EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2 Url=https://well.example
				Versions=[1] Secrets=secret_secret_secret_sec
			row ID=a_fails EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://fails.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
				FailingSeconds=-2h Fails=true
			row twin ID=a_due_2 EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2
				Url=https://later.example Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=b_failed EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://ended.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/a_due: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/a_fails: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/a_due_2: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/b_failed: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "TakesOneOfEachTenantFirst", query: q.DeliveryLease, with: lease(2, "busy"), any: true, want: `
			row ID=a_due EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2 Url=https://well.example
				Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/a_due: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			locks webhook_deliveries/a_due_2`},
		{rule: "TakesThoseOfSomeEndpoints", query: q.DeliveryLease, with: db.DeliveryLeaseParams{Lease: time.Minute,
			Busy: []string{"busy"}, Among: []string{"busy", "fails", "disabled"}, PerEndpoint: 8, LimitRows: 9}, any: true, want: `
			row ID=a_fails EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://fails.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
				FailingSeconds=-2h Fails=true
			row twin ID=b_failed EndpointID=fails EventID=a_fails Body=b LeaseToken=8 Attempts=2
				Url=https://ended.example Versions=[4 3] Secrets=secret_secret_secret_sec,secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/a_fails: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/b_failed: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "PassesOverAnEndpointOfWhichAllHaveEnded", query: q.DeliveryLease, first: `
			UPDATE webhook_deliveries SET status = 'delivered', ended_at = now(), leased_until = now() - interval '20h'
			WHERE (tenant_id, endpoint_id) = (SELECT tenant_id, endpoint_id FROM webhook_deliveries ORDER BY 1, 2 LIMIT 1)`,
			with: lease(1), any: true, want: `
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m`},
		{rule: "SkipsALockedDelivery", query: q.DeliveryLease, locked: "webhook_deliveries/a_due",
			with: lease(3, "busy"), any: true, want: `
			row ID=a_due_2 EndpointID=well EventID=a_due_2 Body=b LeaseToken=8 Attempts=2
				Url=https://well.example Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=a_due_2 EndpointID=well EventID=a_due Body=b LeaseToken=8 Attempts=2
				Url=https://later.example Versions=[1] Secrets=secret_secret_secret_sec
			row twin ID=d_later EndpointID=disabled EventID=d_disabled Body=b LeaseToken=8 Attempts=2
				Url=https://busy.example Versions=[1] Secrets=secret_secret_secret_sec
			changes webhook_deliveries/a_due_2: attempts=2 last_attempt_at=now lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/a_due_2: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			changes webhook_deliveries/twin/d_later: attempts=2 last_attempt_at=now lease_token=8
				leased_until=now+1m
			locks webhook_deliveries/twin/a_leased`},
		{rule: "SkipsThoseOfDisabledEndpoints", query: q.DeliveriesSkip, with: int32(9), want: `
			returns 1
			changes webhook_deliveries/d_disabled: ended_at=now status=skipped`},
		{rule: "SkipsAFew", query: q.DeliveriesSkip, with: int32(1), given: `
			webhook_deliveries
			  id        endpoint_id  status   leased_until
			  d_dis_2   disabled     pending  -8h
			`, want: `
			returns 1
			changes webhook_deliveries/d_disabled: ended_at=now status=skipped`},
		{rule: "SkipsALockedDelivery", query: q.DeliveriesSkip, locked: "webhook_deliveries/d_disabled", with: int32(9),
			want: `
			returns 0`},
		{rule: "NeedsTheLease", query: q.DeliveryEnd, each: ended, with: of(func(id string, token int64) any {
			return db.DeliveryEndParams{TenantID: tenant, ID: id, LeaseToken: token, Status: "failed",
				HttpStatus: ptr[int32](500), LastError: ptr("no")}
		}), want: `
			a_due/7: returns 1
			a_due/7: changes webhook_deliveries/a_due: ended_at=now last_error=no status=failed
			a_due/6: returns 0
			b_failed/7: returns 0
			c_done/7: returns 0
			d_skipped/7: returns 0`},
		{rule: "MayArriveAfterItWasSkipped", query: q.DeliveryEnd, each: "d_skipped/7 d_skipped/6 b_failed/7",
			with: of(func(id string, token int64) any {
				return db.DeliveryEndParams{TenantID: tenant, ID: id, LeaseToken: token, Status: "delivered",
					HttpStatus: ptr[int32](200)}
			}), want: `
			d_skipped/7: returns 1
			d_skipped/7: changes webhook_deliveries/d_skipped: ended_at=now http_status=200 status=delivered
			d_skipped/6: returns 0
			b_failed/7: returns 0`},
		{rule: "NeedsTheLease", query: q.DeliveryRetry, each: ended, with: of(func(id string, token int64) any {
			return db.DeliveryRetryParams{TenantID: tenant, ID: id, LeaseToken: token, Delay: time.Hour,
				HttpStatus: ptr[int32](500), LastError: "no"}
		}), want: `
			a_due/7: returns 1
			a_due/7: changes webhook_deliveries/a_due: last_error=no leased_until=now+1h
			a_due/6: returns 0
			b_failed/7: returns 0
			c_done/7: returns 0
			d_skipped/7: returns 0`},
		{rule: "NeedsTheLease", query: q.DeliveryPostpone, each: ended, with: of(func(id string, token int64) any {
			return db.DeliveryPostponeParams{TenantID: tenant, ID: id, LeaseToken: token, Delay: time.Hour, LastError: "no"}
		}), want: `
			a_due/7: returns 1
			a_due/7: changes webhook_deliveries/a_due: attempts=0 last_error=no leased_until=now+1h
			a_due/6: returns 0
			b_failed/7: returns 0
			c_done/7: returns 0
			d_skipped/7: returns 0`},
		{rule: "SendsAgainWhatHasEnded", query: q.DeliveryRequeue, each: "b_failed c_done a_due a_leased d_skipped missing",
			with: func(of string) any { return db.DeliveryRequeueParams{TenantID: tenant, ID: of} }, want: `
			b_failed: returns 1
			b_failed: changes webhook_deliveries/b_failed: attempts=0 ended_at=null last_error=null
				lease_token=8 status=pending
			c_done: returns 1
			c_done: changes webhook_deliveries/c_done: attempts=0 ended_at=null lease_token=8 status=pending
			a_due: returns 1
			a_due: changes webhook_deliveries/a_due: attempts=0 lease_token=8 leased_until=-infinity
			a_leased: returns 1
			a_leased: changes webhook_deliveries/a_leased: attempts=0 lease_token=8 leased_until=-infinity
			d_skipped: returns 0
			missing: returns 0`},
		{rule: "SendsFailedOnesAgain", query: q.DeliveriesRequeue,
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 9}, want: `
			returns 2
			changes webhook_deliveries/b_failed: attempts=0 ended_at=null status=pending
			changes webhook_deliveries/b_failed_2: attempts=0 ended_at=null status=pending`},
		{rule: "LeavesThoseOfDisabledEndpoints", query: q.DeliveriesRequeue, given: `
			webhook_deliveries
			  id       endpoint_id  status  ended_at
			  b_dis    disabled     failed  -8h
			`, with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 1}, want: `
			returns 1
			changes webhook_deliveries/b_failed_2: attempts=0 ended_at=null status=pending`},
		{rule: "BeginsWithTheOldest", query: q.DeliveriesRequeue,
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 1}, want: `
			returns 1
			changes webhook_deliveries/b_failed_2: attempts=0 ended_at=null status=pending`},
		{rule: "SkipsALockedDelivery", query: q.DeliveriesRequeue, locked: "webhook_deliveries/b_failed_2",
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 1}, want: `
			returns 1
			changes webhook_deliveries/b_failed: attempts=0 ended_at=null status=pending`},
		{rule: "DeletesWhatHasEnded", query: q.DeliveryReap,
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 9}, want: `
			returns 6
			deletes webhook_deliveries/b_failed
			deletes webhook_deliveries/b_failed_2
			deletes webhook_deliveries/c_done
			deletes webhook_deliveries/twin/b_failed_2
			deletes webhook_deliveries/twin/c_done
			deletes webhook_deliveries/twin/c_done_2`},
		{rule: "BeginsWithTheOldest", query: q.DeliveryReap,
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes webhook_deliveries/twin/c_done`},
		{rule: "SkipsALockedDelivery", query: q.DeliveryReap, locked: "webhook_deliveries/twin/c_done",
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes webhook_deliveries/b_failed_2`},
		{rule: "Counts", query: q.DeliveryStats, want: `
			row Pending=14 Failed=4 FailedLately=2 OldestSeconds=-6h1m`},
	})
}

func TestQueriesOfWebhookEndpoints(t *testing.T) {
	t.Parallel()
	endpoint := func(name string) any { return db.EndpointGetParams{TenantID: tenant, ID: name} }
	checkQueries(t, deliveryRows, []queryCase{
		{rule: "CountsThoseOfTheTenant", query: q.EndpointCount, with: tenant, want: `
			returns 6`},
		{rule: "HasANumberOfItsOwn", query: q.EndpointInsert, each: "7 6", with: func(n string) any {
			_, number := split("new/" + n)
			return db.EndpointInsertParams{TenantID: tenant, ID: "new", Number: int16(number), Url: "https://new.example",
				EventTypes: []string{"a"}, Description: ptr("d"), CreatedAt: at("-1h")}
		}, want: `
			7: returns 1
			7: inserts webhook_endpoints/new: created_at=-1h description=d event_types={a} number=7
				url=https://new.example
			6: returns 0`},
		{rule: "EnablesAnEndpoint", query: q.EndpointSet, each: "disabled fails new", with: func(of string) any {
			return db.EndpointSetParams{TenantID: tenant, ID: of, Url: "https://new.example"}
		}, want: `
			disabled: changes webhook_endpoints/disabled: disabled_at=null url=https://new.example
			fails: changes webhook_endpoints/fails: failing_since=null url=https://new.example
			new: inserts webhook_endpoints/new: created_at=now event_types={*} number=7 url=https://new.example`},
		{rule: "IsTheTenants", query: q.EndpointGet, each: "fails missing", with: endpoint, want: `
			fails: row ID=fails Number=4 Version=2 Url=https://fails.example EventTypes=[a] CreatedAt=-9h
				FailingSince=-2h
			missing: no row`},
		{rule: "Locks", query: q.EndpointLock, each: "fails missing", with: func(name string) any {
			return db.EndpointLockParams{TenantID: tenant, ID: name}
		}, want: `
			fails: row ID=fails Number=4 Version=2 Url=https://fails.example EventTypes=[a] CreatedAt=-9h
				FailingSince=-2h
			fails: locks webhook_endpoints/fails
			missing: no row`},
		{rule: "NewestFirst", query: q.EndpointList, with: db.EndpointListParams{TenantID: tenant, LimitRows: 2}, show: "ID", want: `
			row ID=well Number=6 Url=https://well.example EventTypes=[*] CreatedAt=-9h
			row ID=later Number=5 Url=https://later.example EventTypes=[*] CreatedAt=-9h`},
		{rule: "FollowsAnother", query: q.EndpointList, with: db.EndpointListParams{TenantID: tenant, After: "ended",
			LimitRows: 9}, show: "ID", want: `
			row ID=disabled Number=2 Version=3 Url=https://disabled.example EventTypes=[*] CreatedAt=-9h
				DisabledAt=-1h
			row ID=busy Number=1 Url=https://busy.example EventTypes=[*] CreatedAt=-9h`},
		{rule: "DisablesAnEndpoint", query: q.EndpointDisable, each: "fails well disabled missing", with: func(of string) any {
			return db.EndpointDisableParams{TenantID: tenant, ID: of, Events: 1}
		}, want: `
			fails: row ID=fails Number=4 Version=3 Url=https://fails.example EventTypes=[a] CreatedAt=-9h
				DisabledAt=now
			fails: changes webhook_endpoints/fails: disabled_at=now failing_since=null version=3
			well: row ID=well Number=6 Version=1 Url=https://well.example EventTypes=[*] CreatedAt=-9h
				DisabledAt=now
			well: changes webhook_endpoints/well: disabled_at=now version=1
			disabled: no row
			missing: no row`},
		{rule: "DisablesOneThatHasFailedForSoLong", query: q.EndpointDisable, each: "fails shortly well", given: `
			webhook_endpoints
			  id       number  failing_since
			  shortly  8       -1h
			`, with: func(of string) any {
			return db.EndpointDisableParams{TenantID: tenant, ID: of, FailingFor: 90 * time.Minute}
		}, want: `
			fails: row ID=fails Number=4 Version=2 Url=https://fails.example EventTypes=[a] CreatedAt=-9h
				DisabledAt=now
			fails: changes webhook_endpoints/fails: disabled_at=now failing_since=null
			shortly: no row
			well: no row`},
		{rule: "EnablesAnEndpoint", query: q.EndpointEnable, each: "disabled fails missing", with: func(of string) any {
			return db.EndpointEnableParams{TenantID: tenant, ID: of}
		}, want: `
			disabled: row ID=disabled Number=2 Version=3 Url=https://disabled.example EventTypes=[*]
				CreatedAt=-9h
			disabled: changes webhook_endpoints/disabled: disabled_at=null
			fails: row ID=fails Number=4 Version=2 Url=https://fails.example EventTypes=[a] CreatedAt=-9h
			fails: changes webhook_endpoints/fails: failing_since=null
			missing: no row`},
		{rule: "RecordsTheFirstFailure", query: q.EndpointFails, each: "well fails disabled", with: func(of string) any {
			return db.EndpointFailsParams{TenantID: tenant, ID: of}
		}, want: `
			well: changes webhook_endpoints/well: failing_since=now
			fails: nothing
			disabled: nothing`},
		{rule: "FindsThoseThatCameBack", query: q.LifeEndpointsEnabled, with: []string{"ended", "disabled", "gone"}, want: `
			row disabled
			row ended`},
		{rule: "RecordsThatItIsOver", query: q.EndpointRecovers, each: "well fails anothers", given: `
			webhook_endpoints
			  tenant_id  id        number  failing_since
			  acme       anothers  9       -1h
			`, with: func(of string) any {
			return db.EndpointRecoversParams{TenantID: tenant, ID: of}
		}, want: `
			well: returns 0
			fails: returns 1
			fails: changes webhook_endpoints/fails: failing_since=null
			anothers: returns 0`},
		{rule: "RemovesThoseThatEnd", query: q.SecretsRemoveOlder, each: "ended well fails", with: func(of string) any {
			return db.SecretsRemoveOlderParams{TenantID: tenant, EndpointID: of}
		}, want: `
			ended: deletes webhook_secrets/ended/1
			well: nothing
			fails: deletes webhook_secrets/fails/3`},
		{rule: "EndsTheNewest", query: q.SecretEnd, each: "ended well", with: func(of string) any {
			return db.SecretEndParams{TenantID: tenant, EndpointID: of, Grace: time.Hour}
		}, want: `
			ended: changes webhook_secrets/ended/2: expires_at=now+1h
			well: changes webhook_secrets/well/1: expires_at=now+1h`},
		{rule: "FollowsTheNewest", query: q.SecretNextVersion, each: "ended new", given: `
			webhook_secrets
			  tenant_id  endpoint_id  version  expires_at
			  acme       new          4        .
			`, with: func(of string) any {
			return db.SecretNextVersionParams{TenantID: tenant, EndpointID: of}
		}, want: `
			ended: returns 3
			new: returns 1`},
		{rule: "Inserts", query: q.SecretInsert, with: db.SecretInsertParams{TenantID: tenant, EndpointID: "new", Version: 1,
			Secret: []byte("nnnnnnnnnnnnnnnnnnnnnnnn")}, want: `
			inserts webhook_secrets/new/1: secret=nnnnnnnnnnnnnnnnnnnnnnnn`},
		{rule: "ChangesWhatWasRead", query: q.SecretReseal, first: "ALTER TABLE webhook_secrets DISABLE TRIGGER USER", each: "secret_secret_secret_sec other", with: func(was string) any {
			return db.SecretResealParams{TenantID: tenant, ID: "ended 2", Was: []byte(was),
				Sealed: []byte("nnnnnnnnnnnnnnnnnnnnnnnn")}
		}, want: `
			secret_secret_secret_sec: returns 1
			secret_secret_secret_sec: changes webhook_secrets/ended/2: secret=nnnnnnnnnnnnnnnnnnnnnnnn
			other: returns 0`},
		{rule: "CountsThoseOfEndpoints", query: q.SecretsSealedBy, first: `
			UPDATE webhook_secrets SET secret = ` + sealedWith("a", 24) + ` WHERE endpoint_id = 'later'`, want: `
			row Secrets=16
			row KeyID=61616161 Secrets=2`},
		{rule: "FindsWhatIsSealedOtherwise", query: q.SealedOtherwise, first: `
			UPDATE webhook_secrets SET secret = ` + sealedWith("a", 24) + ` WHERE endpoint_id <> 'ended'`,
			with: db.SealedOtherwiseParams{KeyID: []byte("aaaa"), AfterPlace: "webhook_secrets", AfterOwner: tenant,
				AfterID: "ended 1", LimitRows: 9}, want: `
			row Place=webhook_secrets Owner=acme:eu ID=ended 2 Stored=secret_secret_secret_sec`},
	})
}

// TestQueriesOfErasuresOfDeliveries: what tenants are sent is erased with the order, also before it is sent; an event
// that the notifier may be about to make a delivery of is waited for.
func TestQueriesOfErasuresOfDeliveries(t *testing.T) {
	t.Parallel()
	const scope = `SET LOCAL payonce.tenants = 'acme:eu'`
	const body = `{"id":"e","data":{"customer_reference":"ada","metadata":{"a":"b"},"amount":5}}`
	ada := []string{"a_open", "a_paid"}
	checkQueries(t, erasureRows, []queryCase{
		{rule: "WaitsForTheNotifier", query: q.ErasureUnfinished, any: true,
			with: db.ErasureUnfinishedParams{TenantID: tenant, Ids: ada}, given: `
			outbox_events
			  aggregate_id  version  position  published_at
			  a_open        2        4         -6h
			  a_open        3        5         -5h
			  bob           2        6         -5h

			inbox_events
			  consumer  event_id  status  tenant_id  subject  version
			  notifier  a_open-2  done    acme:eu    a_open   2
			  another   a_open-3  done    acme:eu    a_open   3
			`, want: `
			row unread a_open-3`},
		{rule: "ErasesDeliveries", query: q.ErasureMake, first: scope, with: db.ErasureMakeParams{
			TenantID: tenant, Reference: "ada", Mac: []byte("mac_mac_mac_mac_mac_mac_mac_mac_"), OrderIds: ada, Since: at("0"),
		}, given: `
			webhook_deliveries
			  event_id    status     body
			  a_open-1    failed     ` + body + `
			  a_paid-1    delivered  ` + body + `
			  a_paid-12   pending    ` + body + `
			  a_paid.1    pending    ` + body + `
			  a_paid2-1   pending    ` + body + `
			  a_paid-2    pending    {"id": "e", "data": {"metadata": {}, "customer_reference": null}}
			  bob-1       pending    ` + body + `
			`, want: `
			returns {"keys": 0, "events": 2, "orders": 2, "deliveries": 3}
			changes orders/a_open: customer_reference=null metadata={}
			changes orders/a_paid: customer_reference=null metadata={}
			changes outbox_events/a_paid/2: data=60 bytes
			changes webhook_deliveries/a_open-1: body=78 bytes
			changes webhook_deliveries/a_paid-12: body=78 bytes
			changes webhook_deliveries/a_paid-1: body=78 bytes
			inserts erasures/\x6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f6d61635f/now: actor=
				db_role=postgres deliveries=3 events=2 orders=2`},
	})
}
