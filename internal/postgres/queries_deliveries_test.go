package postgres_test

import (
	"bytes"
	"testing"
	"time"

	"example.com/payonce/db"
)

func init() {
	defaults["webhook_endpoints"] = func(row map[string]string) map[string]string {
		return map[string]string{"url": "https://" + row["tenant_id"] + ".example", "secret": "secret_secret_secret_sec"}
	}
	defaults["webhook_deliveries"] = func(row map[string]string) map[string]string {
		d := map[string]string{"body": "b", "created_at": "-9h", "lease_token": "7"}
		if s := row["status"]; s == "failed" || s == "delivered" {
			d["ended_at"] = "-1h"
		}
		return d
	}
}

// The lease token of every delivery is 7.
const deliveryRows = `
	webhook_endpoints
	  tenant_id  disabled_at
	  acme       .
	  acme:eu    .
	  busy       .
	  disabled   -1h
	  ended      .
	  later      .

	webhook_deliveries
	  tenant_id  event_id  status     leased_until  attempts  ended_at  created_at  http_status  last_error
	  acme       pending   pending    -2h           1         .         -5h         .            .
	  acme       due       pending    -4h           1         .         -5h         .            .
	  acme       failed    failed     .             9         -1h       -5h         500          timeout
	  acme       leased    failed     .             9         -2h       -6h         503          .
	  acme:eu    pending   pending    -5h           1         .         -5h         .            .
	  acme:eu    due       pending    -6h           1         .         -5h         .            .
	  acme:eu    due_2     pending    -2h           1         .         -5h         .            .
	  acme:eu    failed    failed     .             9         -4h       -9h         404          refused
	  acme:eu    failed_2  failed     .             9         -6h       -8h         .            refused
	  acme:eu    done      delivered  .             2         -5h       -9h         200          .
	  acme:eu    done_2    delivered  .             2         -1h       -9h         200          .
	  acme:eu    leased    pending    +1h           1         .         -5h         .            .
	  busy       due       pending    -8h           1         .         -5h         .            .
	  disabled   due       pending    -9h           1         .         -6h         .            .
	  ended      due       failed     .             9         -2h       -9h         .            .
	  later      due       pending    +1h           1         .         -5h         .            .
`

func TestQueriesOfDeliveries(t *testing.T) {
	t.Parallel()
	lease := func(limit int32, busy ...string) any {
		return db.DeliveryLeaseParams{Lease: time.Minute, Busy: append([]string{}, busy...), Among: []string{},
			PerTenant: 8, LimitRows: limit}
	}
	checkQueries(t, deliveryRows, []queryCase{
		{rule: "ChangesWhatWasRead", query: q.EndpointReseal, each: "secret_secret_secret_sec other", with: func(was string) any {
			return db.EndpointResealParams{TenantID: "later", Was: []byte(was), Sealed: []byte("nnnnnnnnnnnnnnnnnnnnnnnn")}
		}, want: `
			secret_secret_secret_sec: returns 1
			secret_secret_secret_sec: changes webhook_endpoints/later: secret=nnnnnnnnnnnnnnnnnnnnnnnn
			other: returns 0`},
		{rule: "CountsThoseOfEndpoints", query: q.SecretsSealedBy, first: `
			UPDATE webhook_endpoints SET secret = ` + sealedWith("a", 24) + ` WHERE tenant_id = 'later'`, want: `
			row Secrets=7
			row KeyID=61616161 Secrets=1`},
		{rule: "FindsWhatIsSealedOtherwise", query: q.SealedOtherwise, first: `
			UPDATE webhook_endpoints SET secret = ` + sealedWith("a", 24) + ` WHERE tenant_id NOT IN ('busy', 'ended', 'later')`,
			with: db.SealedOtherwiseParams{KeyID: []byte("aaaa"), AfterPlace: "webhook_endpoints", AfterOwner: "busy", LimitRows: 1},
			want: `
			row Place=webhook_endpoints Owner=ended Stored=secret_secret_secret_sec`},
		{rule: "EnablesAnEndpoint", query: q.EndpointSet, each: "disabled new", with: func(of string) any {
			return db.EndpointSetParams{TenantID: of, Url: "https://new.example", Secret: bytes.Repeat([]byte("n"), 24)}
		}, want: `
			disabled: changes webhook_endpoints/disabled: disabled_at=null secret=nnnnnnnnnnnnnnnnnnnnnnnn
				url=https://new.example
			new: inserts webhook_endpoints/new: created_at=now secret=nnnnnnnnnnnnnnnnnnnnnnnn
				url=https://new.example`},
		{rule: "DisablesAnEndpoint", query: q.EndpointDisable, each: "acme:eu disabled missing",
			with: func(of string) any { return of }, want: `
			acme:eu: returns 1
			acme:eu: changes webhook_endpoints/tenant: disabled_at=now
			disabled: returns 0
			missing: returns 0`},
		{rule: "NeedsAnEnabledEndpoint", query: q.DeliveryCreate, each: "acme:eu disabled missing",
			with: func(of string) any {
				return db.DeliveryCreateParams{TenantID: of, EventID: "new", Body: []byte("b")}
			}, want: `
			acme:eu: returns 1
			acme:eu: inserts webhook_deliveries/new: body=b created_at=now leased_until=-infinity status=pending
			disabled: returns 0
			missing: returns 0`},
		{rule: "TakesWhatIsDue", query: q.DeliveryLease, with: lease(9, "busy"), any: true, want: `
			row EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row EventID=due_2 Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row EventID=pending Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row twin EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			row twin EventID=pending Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/due_2: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/pending: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/pending: attempts=2 lease_token=8 leased_until=now+1m`},
		{rule: "TakesWhatIsDueLongest", query: q.DeliveryLease, with: lease(2), any: true, want: `
			row EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row TenantID=busy EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://busy.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/busy/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/due: attempts=2 lease_token=8 leased_until=now+1m
			locks webhook_deliveries/pending`},
		{rule: "TakesTheTenantsThatWaitLongest", query: q.DeliveryLease, with: lease(1, "busy"), any: true, want: `
			row EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/due: attempts=2 lease_token=8 leased_until=now+1m`},
		{rule: "TakesSoManyOfATenant", query: q.DeliveryLease, with: db.DeliveryLeaseParams{Lease: time.Minute,
			Busy: []string{"busy"}, Among: []string{}, PerTenant: 1, LimitRows: 9}, any: true, want: `
			row EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row twin EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/due: attempts=2 lease_token=8 leased_until=now+1m`},
		{rule: "TakesOneOfEachTenantFirst", query: q.DeliveryLease, with: lease(2, "busy"), any: true, want: `
			row EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			row twin EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/due: attempts=2 lease_token=8 leased_until=now+1m
			locks webhook_deliveries/pending
			locks webhook_deliveries/twin/pending`},
		{rule: "TakesThoseOfSomeTenants", query: q.DeliveryLease, with: db.DeliveryLeaseParams{Lease: time.Minute,
			Busy: []string{"busy"}, Among: []string{"busy", "acme"}, PerTenant: 8, LimitRows: 9}, any: true, want: `
			row twin EventID=due Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			row twin EventID=pending Body=b LeaseToken=8 Attempts=2 Url=https://acme.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/twin/due: attempts=2 lease_token=8 leased_until=now+1m
			changes webhook_deliveries/twin/pending: attempts=2 lease_token=8 leased_until=now+1m`},
		{rule: "SkipsALockedDelivery", query: q.DeliveryLease, locked: "webhook_deliveries/due",
			with: lease(1, "busy"), any: true, want: `
			row EventID=pending Body=b LeaseToken=8 Attempts=2 Url=https://acme:eu.example
				Secret=secret_secret_secret_sec
			changes webhook_deliveries/pending: attempts=2 lease_token=8 leased_until=now+1m`},
		{rule: "NeedsTheLease", query: q.DeliveryEnd, each: "pending/7 pending/6 failed/7 done/7", with: func(of string) any {
			event, token := split(of)
			return db.DeliveryEndParams{TenantID: tenant, EventID: event, LeaseToken: token, Status: "failed",
				HttpStatus: ptr[int32](500), LastError: ptr("no")}
		}, want: `
			pending/7: returns 1
			pending/7: changes webhook_deliveries/pending: ended_at=now http_status=500 last_error=no
				status=failed
			pending/6: returns 0
			failed/7: returns 0
			done/7: returns 0`},
		{rule: "NeedsTheLease", query: q.DeliveryRetry, each: "pending/7 pending/6 failed/7 done/7",
			with: func(of string) any {
				event, token := split(of)
				return db.DeliveryRetryParams{TenantID: tenant, EventID: event, LeaseToken: token, Delay: time.Hour,
					HttpStatus: ptr[int32](500), LastError: "no"}
			}, want: `
			pending/7: returns 1
			pending/7: changes webhook_deliveries/pending: http_status=500 last_error=no leased_until=now+1h
			pending/6: returns 0
			failed/7: returns 0
			done/7: returns 0`},
		{rule: "NeedsTheLease", query: q.DeliveryPostpone, each: "pending/7 pending/6 failed/7 done/7",
			with: func(of string) any {
				event, token := split(of)
				return db.DeliveryPostponeParams{TenantID: tenant, EventID: event, LeaseToken: token, Delay: time.Hour,
					LastError: "no"}
			}, want: `
			pending/7: returns 1
			pending/7: changes webhook_deliveries/pending: attempts=0 last_error=no leased_until=now+1h
			pending/6: returns 0
			failed/7: returns 0
			done/7: returns 0`},
		{rule: "SendsAFailedOneAgain", query: q.DeliveryRequeue, each: "failed pending done", with: func(of string) any {
			return db.DeliveryRequeueParams{TenantID: tenant, EventID: of}
		}, want: `
			failed: returns 1
			failed: changes webhook_deliveries/failed: attempts=0 ended_at=null status=pending
			pending: returns 0
			done: returns 0`},
		{rule: "SendsFailedOnesAgain", query: q.DeliveriesRequeue,
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 9}, want: `
			returns 2
			changes webhook_deliveries/failed: attempts=0 ended_at=null status=pending
			changes webhook_deliveries/failed_2: attempts=0 ended_at=null status=pending`},
		{rule: "BeginsWithTheOldest", query: q.DeliveriesRequeue,
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 1}, want: `
			returns 1
			changes webhook_deliveries/failed_2: attempts=0 ended_at=null status=pending`},
		{rule: "SkipsALockedDelivery", query: q.DeliveriesRequeue, locked: "webhook_deliveries/failed_2",
			with: db.DeliveriesRequeueParams{TenantID: tenant, LimitRows: 1}, want: `
			returns 1
			changes webhook_deliveries/failed: attempts=0 ended_at=null status=pending`},
		{rule: "DeletesWhatHasEnded", query: q.DeliveryReap,
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 9}, want: `
			returns 3
			deletes webhook_deliveries/done
			deletes webhook_deliveries/failed
			deletes webhook_deliveries/failed_2`},
		{rule: "BeginsWithTheOldest", query: q.DeliveryReap,
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes webhook_deliveries/failed_2`},
		{rule: "SkipsALockedDelivery", query: q.DeliveryReap, locked: "webhook_deliveries/failed_2",
			with: db.DeliveryReapParams{Retention: 3 * time.Hour, LimitRows: 1}, want: `
			returns 1
			deletes webhook_deliveries/done`},
		{rule: "Counts", query: q.DeliveryStats, want: `
			row Pending=9 Failed=5 OldestSeconds=-6h`},
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
