package postgres_test

import (
	"strings"
	"testing"
	"time"

	"example.com/payonce/db"
)

// The ledger has come to position 3 of its first tenant, and has received a-1 and b-1.
const consumerRows = `
	outbox_events
	  aggregate_id  version  seq  published_at  position  created_at
	  a             1        6    -8h           3         -9h
	  a             2        8    .             4         -9h
	  b             1        10   .             5         -9h
	  a             3        12   .             6         -1h
	  c             1        24   .             .         -9h
	  d             1        26   .             .         -1h

	outbox_events
	  tenant_id  aggregate_id  version  seq  published_at  position  created_at
	  placed     e             1        2    .             1         -9h
	  reaped     f             3        4    .             3         -9h
	  young      g             1        14   .             1         -1h

	event_feeds
	  tenant_id  last_position  removed_through
	  acme:eu    6              0
	  behind     9              9
	  placed     1              0
	  reaped     3              2
	  young      1              0

	consumer_positions
	  consumer  tenant_id  position
	  audit     acme:eu    5
	  ledger    acme:eu    3
	  ledger    reaped     1
	  notifier  placed     1

	inbox_events
	  event_id  consumer  status   subject  version
	  a-1       ledger    done     a        1
	  b-1       ledger    pending  b        1
	  a-2       notifier  done     a        2
`

func TestQueriesOfSubscribers(t *testing.T) {
	t.Parallel()
	unreceived := func(version int64, types ...string) db.EventsUnreceivedParams {
		return db.EventsUnreceivedParams{TenantID: tenant, AggregateID: "a", Version: version, Consumer: "ledger",
			Types: append([]string{}, types...)}
	}
	after := db.EventsAfterConsumerParams{Consumer: "ledger", Types: []string{}, Delay: 5 * time.Hour, TenantsMax: 9,
		EventsMax: 9}
	checkQueries(t, consumerRows, []queryCase{
		{rule: "TellsWhatWasReceived", query: q.InboxHas, each: "a-1 b-1 a-2", with: func(event string) any {
			return db.InboxHasParams{Consumer: "ledger", EventID: event}
		}, want: `
			a-1: returns true
			b-1: returns true
			a-2: returns false`},
		{rule: "ReadsTheEventAndThoseBefore", query: q.EventsUnreceived, with: unreceived(3), want: `
			row AggregateID=a Version=2 Type=order.created Data={} CreatedAt=-9h
			row AggregateID=a Version=3 Type=order.created Data={} CreatedAt=-1h`},
		{rule: "ReadsTheEventAlsoIfItWasReceived", query: q.EventsUnreceived, with: unreceived(1), want: `
			row AggregateID=a Version=1 Type=order.created Data={} CreatedAt=-9h`},
		{rule: "ReadsOnlyThoseBeforeThatAreWanted", query: q.EventsUnreceived, with: unreceived(3, "order.paid"), want: `
			row AggregateID=a Version=3 Type=order.created Data={} CreatedAt=-1h`},
		{rule: "ReadsThoseBeforeThatAreWanted", query: q.EventsUnreceived, with: unreceived(3, "order.created"), want: `
			row AggregateID=a Version=2 Type=order.created Data={} CreatedAt=-9h
			row AggregateID=a Version=3 Type=order.created Data={} CreatedAt=-1h`},
		{rule: "ReadsNoEventToCome", query: q.EventsUnreceived, with: unreceived(4, "order.paid"), want: `
			no row`},
		{rule: "ReadsNoneOfAnotherTenant", query: q.EventsUnreceived,
			with: but(unreceived(3), func(p *db.EventsUnreceivedParams) { p.TenantID = "placed" }), want: `
			no row`},
		{rule: "FindsOldEventsWithoutAPosition", query: q.FeedsToPlace,
			with: db.FeedsToPlaceParams{Delay: 5 * time.Hour, LimitRows: 9}, want: `
			row acme
			row acme:eu`},
		{rule: "WaitsForTheRelay", query: q.FeedsToPlace,
			with: db.FeedsToPlaceParams{Delay: 10 * time.Hour, LimitRows: 9}, want: `
			no row`},
		{rule: "FollowsThePosition", query: q.EventsAfterConsumer, with: after, want: `
			row AggregateID=a Version=2 Position=4 Old=true Missed=true
			row AggregateID=b Version=1 Position=5 Old=true
			row AggregateID=a Version=3 Position=6 Missed=true
			row TenantID=placed AggregateID=e Version=1 Position=1 Old=true Missed=true
			row TenantID=reaped AggregateID=f Version=3 Position=3 Old=true Missed=true`},
		{rule: "WaitsUntilTheNextEventIsOld", query: q.EventsAfterConsumer,
			with: but(after, func(p *db.EventsAfterConsumerParams) { p.Consumer, p.TenantsMax = "audit", 1 }), want: `
			row TenantID=placed AggregateID=e Version=1 Position=1 Old=true Missed=true`},
		{rule: "GoesOnAfterATenant", query: q.EventsAfterConsumer,
			with: but(after, func(p *db.EventsAfterConsumerParams) { p.AfterTenant = "placed" }), want: `
			row TenantID=reaped AggregateID=f Version=3 Position=3 Old=true Missed=true`},
		{rule: "ReadsAFewOfAFewTenants", query: q.EventsAfterConsumer,
			with: but(after, func(p *db.EventsAfterConsumerParams) { p.TenantsMax, p.EventsMax = 1, 2 }), want: `
			row AggregateID=a Version=2 Position=4 Old=true Missed=true
			row AggregateID=b Version=1 Position=5 Old=true`},
		{rule: "MissesOnlyWhatIsWanted", query: q.EventsAfterConsumer, with: but(after,
			func(p *db.EventsAfterConsumerParams) { p.Types, p.TenantsMax = []string{"order.paid"}, 1 }), want: `
			row AggregateID=a Version=2 Position=4 Old=true
			row AggregateID=b Version=1 Position=5 Old=true
			row AggregateID=a Version=3 Position=6`},
		{rule: "GoesForwardOnly", query: q.ConsumerAdvance, with: db.ConsumerAdvanceParams{Consumer: "ledger",
			TenantIds: []string{tenant, "placed", "reaped"}, Positions: []int64{5, 1, 1}}, want: `
			changes consumer_positions/ledger: position=5
			inserts consumer_positions/ledger/placed: position=1
			locks consumer_positions/ledger/reaped`},
	})
}

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
