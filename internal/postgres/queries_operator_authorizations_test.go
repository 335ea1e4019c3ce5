package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

const authorizationRows = `
	payments
	  id         order_id  status      capture_before  capturing_key  capturing_minor  failure_code           updated_at  created_at  intent_id  charge_id  manual_capture
	  captured   ord_1     succeeded   .               .              .                .                      -9h         -90h        pi_1       ch_1  false
	  declined   ord_2     failed      .               .              .                declined               -9h         -90h        pi_2       .  false
	  expired    ord_3     canceled    .               .              .                authorization_expired  -9h         -90h        pi_3       ch_3  true
	  forgotten  ord_4     canceled    .               .              .                authorization_expired  -26h        -90h        pi_4       ch_4  true
	  later      ord_5     authorized  +26h            .              .                .                      -9h         -90h        pi_5       ch_5  true
	  next       ord_6     authorized  +2h             c_1            400              .                      -9h         -90h        pi_6       ch_6  true
	  old        ord_7     canceled    .               .              .                authorization_expired  -9h         -990h       pi_7       ch_7  true
	  overdue    ord_8     authorized  -2h             x_1            .                .                      -9h         -90h        pi_8       ch_8  true
	  waits      ord_9     authorized  +5h             .              .                .                      -9h         -90h        pi_9       ch_9  true

	orders
	  id     customer_reference
	  ord_1  Ann
	  ord_2  Bob
	  ord_3  Ann
	  ord_4  .
`

func TestQueriesOfAuthorizations(t *testing.T) {
	t.Parallel()
	find := func(ids []string, newest int32) func(id string) any {
		return func(id string) any {
			return db.OperatorFindAtStripeParams{TenantIds: ids, NewestOfEach: newest, ID: id}
		}
	}
	checkQueries(t, authorizationRows, []queryCase{
		{rule: "ReadsTheNextToExpireFirst", query: q.OperatorAuthorizations,
			with: db.OperatorAuthorizationsParams{Within: 24 * time.Hour, LimitRows: 9}, want: `
			row twin ID=waits OrderID=ord_8 AmountMinor=1000 Currency=eur CaptureBefore=-2h1m CapturingKey=x_1
			row ID=overdue OrderID=ord_8 AmountMinor=1000 Currency=eur CaptureBefore=-2h CapturingKey=x_1
			row ID=next OrderID=ord_6 AmountMinor=1000 Currency=eur CaptureBefore=+2h CapturingKey=c_1
				CapturingMinor=400
			row twin ID=old OrderID=ord_6 AmountMinor=1000 Currency=eur CaptureBefore=+2h1m CapturingKey=c_1
				CapturingMinor=400
			row ID=waits OrderID=ord_9 AmountMinor=1000 Currency=eur CaptureBefore=+5h
			row twin ID=captured OrderID=ord_9 AmountMinor=1000 Currency=eur CaptureBefore=+5h1m`},
		{rule: "ReadsAFew", query: q.OperatorAuthorizations,
			with: db.OperatorAuthorizationsParams{Within: 24 * time.Hour, LimitRows: 1}, want: `
			row twin ID=waits OrderID=ord_8 AmountMinor=1000 Currency=eur CaptureBefore=-2h1m CapturingKey=x_1`},
		{rule: "Counts", query: q.OperatorAuthorizationCounts,
			with: db.OperatorAuthorizationCountsParams{Within: 24 * time.Hour, ScanMax: 99}, want: `
			row Held=8 Expiring=4 Overdue=2`},
		{rule: "CountsTheNextToExpire", query: q.OperatorAuthorizationCounts,
			with: db.OperatorAuthorizationCountsParams{Within: 24 * time.Hour, ScanMax: 3}, want: `
			row Held=3 Expiring=1 Overdue=2`},
		{rule: "CountsWhoseEndIsNotRead", query: q.OperatorAuthorizationCounts, given: `
			payments
			  id      order_id  status      capture_before  created_at  manual_capture  intent_id
			  recent  ord_40    authorized  -23h            -90h        true            pi_40
			  unread  ord_41    authorized  -25h            -90h        true            pi_41`,
			with: db.OperatorAuthorizationCountsParams{Within: 24 * time.Hour, ScanMax: 99}, want: `
			row Held=10 Expiring=4 Overdue=4 Unread=1`},
		{rule: "ReadsTheLastExpiredFirst", query: q.OperatorAuthorizationsExpired,
			with: db.OperatorAuthorizationsExpiredParams{ScanMax: 99, LimitRows: 9}, want: `
			row ID=expired OrderID=ord_3 AmountMinor=1000 Currency=eur UpdatedAt=-9h
			row twin ID=forgotten OrderID=ord_3 AmountMinor=1000 Currency=eur UpdatedAt=-9h1m`},
		{rule: "ReadsAFew", query: q.OperatorAuthorizationsExpired,
			with: db.OperatorAuthorizationsExpiredParams{ScanMax: 99, LimitRows: 1}, want: `
			row ID=expired OrderID=ord_3 AmountMinor=1000 Currency=eur UpdatedAt=-9h`},
		{rule: "LooksAtTheNewest", query: q.OperatorAuthorizationsExpired, given: `
			payments
			  id     order_id  status     failure_code           updated_at  created_at  manual_capture  intent_id  captured_minor
			  auto   ord_32    canceled   authorization_expired  -7h         -70h        false           pi_32      .
			  taken  ord_33    succeeded  .                      -6h         -60h        true            pi_33      400
			  newer  ord_30    canceled   authorization_expired  -9h         -80h        true            pi_30      .`,
			with: db.OperatorAuthorizationsExpiredParams{ScanMax: 1, LimitRows: 9}, want: `
			row ID=newer OrderID=ord_30 AmountMinor=1000 Currency=eur UpdatedAt=-9h`},
		{rule: "LeavesOutWhatWasReleased", query: q.OperatorAuthorizationsExpired, given: `
			payments
			  id        order_id  status    updated_at  created_at  manual_capture  intent_id
			  released  ord_34    canceled  -1h         -80h        true            pi_34`,
			with: db.OperatorAuthorizationsExpiredParams{ScanMax: 99, LimitRows: 1}, want: `
			row ID=expired OrderID=ord_3 AmountMinor=1000 Currency=eur UpdatedAt=-9h`},
		{rule: "FindsACustomersOrders", query: q.OperatorFindReference, each: "Ann ann A% missing",
			with: func(reference string) any {
				return db.OperatorFindReferenceParams{Reference: reference, LimitRows: 9}
			}, want: `
			Ann: row twin ID=ord_4 Status=open Currency=eur AmountMinor=1000 CreatedAt=-9h1m
			Ann: row twin ID=ord_2 Status=open Currency=eur AmountMinor=1000 CreatedAt=-9h1m
			Ann: row ID=ord_3 Status=open Currency=eur AmountMinor=1000 CreatedAt=-9h
			Ann: row ID=ord_1 Status=open Currency=eur AmountMinor=1000 CreatedAt=-9h
			ann: no row
			A%: no row
			missing: no row`},
		{rule: "FindsAFew", query: q.OperatorFindReference,
			with: db.OperatorFindReferenceParams{Reference: "Ann", LimitRows: 1}, want: `
			row twin ID=ord_4 Status=open Currency=eur AmountMinor=1000 CreatedAt=-9h1m`},
		{rule: "FindsAmongTheNewest", query: q.OperatorFindAtStripe, each: "pi_9 ch_9 ch_1 pi_% pi_0",
			with: find([]string{tenant}, 3), want: `
			pi_9: row ID=waits
			ch_9: row ID=waits
			ch_1: no row
			pi_%: no row
			pi_0: no row`},
		{rule: "FindsInTheTenants", query: q.OperatorFindAtStripe, each: "ch_1 pi_2",
			with: find([]string{tenant}, 99), want: `
			ch_1: row ID=captured
			pi_2: row ID=declined`},
		{rule: "FindsInEachTenant", query: q.OperatorFindAtStripe, each: "pi_3", with: find([]string{tenant, twin}, 99), any: true, want: `
			pi_3: row ID=expired`},
	})
}
