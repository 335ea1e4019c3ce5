package postgres_test

import (
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

func TestQueriesOfConsumers(t *testing.T) {
	t.Parallel()
	claim := func(event string) any {
		subject, _, _ := strings.Cut(event, "-")
		return db.InboxClaimParams{Consumer: "ledger", EventID: event, Type: "t", TenantID: ptr(tenant),
			Subject: ptr(subject), Version: ptr(int64(event[len(event)-1] - '0')), Payload: []byte("p")}
	}
	store := db.InboxStoreParams{Consumer: "ledger", EventID: "a-4", Type: "t", TenantID: ptr(tenant),
		Subject: ptr("a"), Version: ptr[int64](4), Payload: []byte("p"), LastError: ptr("bug"), Delay: time.Minute}
	checkQueries(t, inboxRows, []queryCase{
		{rule: "IsBlockedByAnEarlierEvent", query: q.InboxClaim, each: "a-1 a-3 a-4 b-0 b-9 c-2 d-2", with: claim, want: `
			a-1: no row
			a-3: no row
			a-4: returns pending
			a-4: inserts inbox_events/ledger/a-4: leased_until=-infinity payload=p received_at=now
				status=pending subject=a tenant_id=acme:eu type=t version=4
			b-0: returns done
			b-0: inserts inbox_events/ledger/b-0: done_at=now leased_until=-infinity received_at=now status=done
				subject=b tenant_id=acme:eu type=t
			b-9: returns pending
			b-9: inserts inbox_events/ledger/b-9: leased_until=-infinity payload=p received_at=now
				status=pending subject=b tenant_id=acme:eu type=t version=9
			c-2: returns done
			c-2: inserts inbox_events/ledger/c-2: done_at=now leased_until=-infinity received_at=now status=done
				subject=c tenant_id=acme:eu type=t version=2
			d-2: returns done
			d-2: inserts inbox_events/ledger/d-2: done_at=now leased_until=-infinity received_at=now status=done
				subject=d tenant_id=acme:eu type=t version=2`},
		{rule: "IsNotBlockedByAnotherConsumersEvent", query: q.InboxClaim, with: db.InboxClaimParams{
			Consumer: "notifier", EventID: "a-4", Type: "t", Subject: ptr("a"), Version: ptr[int64](4), Payload: []byte("p"),
		}, want: `
			returns done
			inserts inbox_events/notifier/a-4: done_at=now leased_until=-infinity received_at=now status=done
				subject=a type=t version=4`},
		{rule: "StoresAnEventThatFailed", query: q.InboxStore, with: store, want: `
			returns 1
			inserts inbox_events/ledger/a-4: attempts=1 last_error=bug leased_until=now+1m payload=p
				received_at=now status=pending subject=a tenant_id=acme:eu type=t version=4`},
		{rule: "ParksAnEvent", query: q.InboxStore,
			with: but(store, func(p *db.InboxStoreParams) { p.Park = true }), want: `
			returns 1
			inserts inbox_events/ledger/a-4: attempts=1 last_error=bug leased_until=now+1m parked_at=now
				payload=p received_at=now status=parked subject=a tenant_id=acme:eu type=t version=4`},
		{rule: "StoresAnEventOnce", query: q.InboxStore,
			with: but(store, func(p *db.InboxStoreParams) { p.EventID = "a-3" }), want: `
			returns 0`},
	})
}
