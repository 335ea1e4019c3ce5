package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

// oneLife began two hours ago.
const oneLife = `
	lives
	  number  backup_at  began_at  system_identifier  timeline  wal_position
	  7       -9h        -2h       1                  1         0/1
`

func TestQueriesOfLives(t *testing.T) {
	t.Parallel()
	checkQueries(t, `
		orders
		  id     created_at
		  old    -9h
		  young  -1h

		payments
		  id   order_id  intent_id
		  pay  old       pi_known

		outbox_events
		  aggregate_id  version  position
		  placed        1        1
		  waits         1        .

		api_keys
		  key_hash                          hint  name     created_at  last_used_at  revoked_at  expires_at
		  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  h1    used     -9h         -2h           .           .
		  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb  h2    unused   -9h         .             .           .
		  cccccccccccccccccccccccccccccccc  h3    revoked  -9h         -2h           -3h         .
		  dddddddddddddddddddddddddddddddd  h4    expired  -9h         -2h           .           -3h
		  eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee  h5    young    -2h         -1h           .           .
	`, []queryCase{
		{rule: "NothingIsLost", query: q.LostTime, with: "lost", want: `
			no row`},
		{rule: "IsLostUntilItIsRead", query: q.LostTime, given: oneLife, with: "lost", want: `
			row -9h`},
		{rule: "WasReadBeforeTheLifeBegan", query: q.LostTime, given: oneLife + `
			reconciliation_windows
			  name  covered_through
			  lost  -3h`, with: "lost", want: `
			row -9h`},
		{rule: "WasRead", query: q.LostTime, given: oneLife + `
			reconciliation_windows
			  name  covered_through
			  lost  -1h`, with: "lost", want: `
			no row`},
		{rule: "IsBeforeALife", query: q.PaymentWithOrder, given: oneLife, show: "BeforeLife",
			with: db.PaymentWithOrderParams{TenantID: tenant, ID: "pay"}, want: `
			row Payment=(ID=pay) Order=(ID=old) StatusSeconds=-9h BeforeLife=true`},
		{rule: "AddsUnlessAPaymentHasIt", query: q.UnaccountedIntentAdd, each: "pi_lost pi_known", with: func(intent string) any {
			return db.UnaccountedIntentAddParams{TenantID: tenant, OrderID: "old", IntentID: intent}
		}, want: `
			pi_lost: inserts unaccounted_intents/old/pi_lost: found_at=now
			pi_known: nothing`},
		{rule: "AddsOnce", query: q.UnaccountedIntentAdd, given: `
			unaccounted_intents
			  order_id  intent_id
			  old       pi_lost`,
			with: db.UnaccountedIntentAddParams{TenantID: tenant, OrderID: "old", IntentID: "pi_lost"}, want: ``},
		{rule: "ReadsWhatNoPaymentHas", query: q.UnaccountedIntents, given: `
			unaccounted_intents
			  order_id  intent_id
			  old       pi_known
			  old       pi_lost
			  young     pi_other`,
			with: db.UnaccountedIntentsParams{TenantID: tenant, OrderID: "old"}, want: `
			row pi_lost`},
		{rule: "RecordsALife", query: q.LifeBegin, with: db.LifeBeginParams{
			Number: 9, BackupAt: at("-9h"), SystemIdentifier: 1, Timeline: 2, WalPosition: "0/3"}, want: `
			inserts lives/9: backup_at=-9h began_at=now system_identifier=1 timeline=2 wal_position=0/3`},
		{rule: "EndsFeeds", query: q.LifeEndFeeds, given: `
			event_feeds
			  tenant_id  last_position  begins_after
			  acme       4              4
			  acme:eu    5              0`, want: `
			returns 1
			changes event_feeds/tenant: begins_after=5`},
		{rule: "FindsWhoseEventsAreUnplaced", query: q.LifeTenantsWithUnplacedEvents, want: `
			row acme
			row acme:eu`},
		{rule: "KnowsTenants", query: q.TenantsKnown, any: true, with: []string{"acme", "ten_lost"}, want: `
			row acme`},
		{rule: "ListsKeysInForce", query: q.LifeKeysInForce, with: db.LifeKeysInForceParams{BackupAt: at("-3h"), LimitRows: 9},
			want: `
			row Name=used Hint=h1 CreatedAt=-9h
			row twin Name=used Hint=h1 CreatedAt=-9h1m
			row twin Name=unused Hint=h2 CreatedAt=-9h1m
			row Name=unused Hint=h2 CreatedAt=-9h`},
		{rule: "FindsWhatIsLost", query: q.LifeLostEvents, with: db.LifeLostEventsParams{
			TenantIds: []string{tenant, tenant, tenant, twin}, AggregateIds: []string{"placed", "placed", "waits", "placed"},
			Versions: []int64{1, 2, 1, 1}, Lives: []int64{0, 0, 8, 0}}, want: `
			row 2
			row 3`},
		{rule: "CountsWhatIsInForce", query: q.LifeInForce, with: at("-3h"), want: `
			row ApiKeys=4 Tenants=2`},
	})
}
