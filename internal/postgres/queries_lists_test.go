package postgres_test

import (
	"testing"
	"time"

	"example.com/payonce/db"
)

// Orders, payments and refunds, named in the order of their creation. Each has a twin of another tenant.
const listedRows = `
	orders
	  id  version  status    customer_reference  payment_id
	  o1  2        paid      ann                 p1
	  o2  1        open      ann                 .
	  o3  2        canceled  bob                 .
	  o4  2        paid      .                   p4
	  o5  2        canceled  ann                 .

	payments
	  id  order_id  status           intent_id
	  p1  o1        succeeded        pi_1
	  p2  several   failed           pi_2
	  p3  several   requires_action  pi_3
	  p4  o4        succeeded        pi_4
	  p5  o5        failed           pi_5

	refunds
	  id  payment_id  order_id  status     stripe_refund_id  version  created_at
	  r1  one         first     succeeded  re_1              2        -9h
	  r2  one         first     failed     re_2              2        -8h
	  r4  two         second    succeeded  re_4              2        -7h
	  r3  one         first     succeeded  re_3              2        -7h
	  r5  two         second    failed     re_5              2        -5h
`

func TestQueriesOfLists(t *testing.T) {
	t.Parallel()
	checkQueries(t, listedRows, []queryCase{
		{rule: "ReadsARange", query: q.OrderList,
			with: db.OrderListParams{TenantID: tenant, FromID: "o2", Before: "o4", LimitRows: 9}, want: `
			row ID=o3
			row ID=o2`},
		{rule: "ReadsAPage", query: q.OrderList, with: db.OrderListParams{TenantID: tenant, Before: "z", LimitRows: 1},
			want: `
			row ID=o5`},
		{rule: "ReadsThoseOfACustomer", query: q.OrderListOfReference,
			with: db.OrderListOfReferenceParams{TenantID: tenant, CustomerReference: "ann", Before: "z", LimitRows: 9},
			want: `
			row ID=o5
			row ID=o2
			row ID=o1`},
		{rule: "ReadsARange", query: q.OrderListOfReference, with: db.OrderListOfReferenceParams{
			TenantID: tenant, CustomerReference: "ann", FromID: "o2", Before: "o5", LimitRows: 9,
		}, want: `
			row ID=o2`},
		{rule: "ReadsAPage", query: q.OrderListOfReference,
			with: db.OrderListOfReferenceParams{TenantID: tenant, CustomerReference: "ann", Before: "z", LimitRows: 1},
			want: `
			row ID=o5`},
		{rule: "ReadsThoseOfAStatus", query: q.OrderListOfReference, with: db.OrderListOfReferenceParams{
			TenantID: tenant, CustomerReference: "ann", Status: "paid", Before: "z", LimitRows: 9,
		}, want: `
			row ID=o1`},
		{rule: "ReadsThoseOfAStatus", query: q.OrderListOfStatus,
			with: db.OrderListOfStatusParams{TenantID: tenant, Status: "canceled", Before: "z", LimitRows: 9}, want: `
			row ID=o5
			row ID=o3`},
		{rule: "ReadsARange", query: q.OrderListOfStatus, each: "o3 o4", with: func(from string) any {
			return db.OrderListOfStatusParams{TenantID: tenant, Status: "canceled", FromID: from, Before: "o5", LimitRows: 9}
		}, want: `
			o3: row ID=o3
			o4: no row`},
		{rule: "ReadsAPage", query: q.OrderListOfStatus,
			with: db.OrderListOfStatusParams{TenantID: tenant, Status: "canceled", Before: "z", LimitRows: 1}, want: `
			row ID=o5`},
		{rule: "ReadsThoseOfAStatusAndTheLastThatItLooksAt", query: q.OrderListScan, with: db.OrderListScanParams{
			TenantID: tenant, Status: "paid", ScanRows: 3, Before: "z", LimitRows: 9,
		}, want: `
			row ID=o4
			row ID=o3`},
		{rule: "EndsWithTheLast", query: q.OrderListScan, each: "o1 o3 o5", with: func(before string) any {
			return db.OrderListScanParams{TenantID: tenant, Status: "paid", ScanRows: 3, Before: before, LimitRows: 9}
		}, want: `
			o1: no row
			o3: row ID=o1
			o5: row ID=o4
			o5: row ID=o2`},
		{rule: "ReadsARange", query: q.OrderListScan, with: db.OrderListScanParams{
			TenantID: tenant, Status: "paid", ScanRows: 9, FromID: "o2", Before: "z", LimitRows: 9,
		}, want: `
			row ID=o4`},
		{rule: "ReadsAPage", query: q.OrderListScan, with: db.OrderListScanParams{
			TenantID: tenant, Status: "paid", ScanRows: 9, Before: "z", LimitRows: 1,
		}, want: `
			row ID=o4`},

		{rule: "ReadsARange", query: q.PaymentList,
			with: db.PaymentListParams{TenantID: tenant, FromID: "p2", Before: "p4", LimitRows: 9}, want: `
			row ID=p3
			row ID=p2`},
		{rule: "ReadsARange", query: q.PaymentListOfOrder, each: "p2 p3", with: func(from string) any {
			return db.PaymentListOfOrderParams{TenantID: tenant, OrderID: "several", FromID: from, Before: "p3", LimitRows: 9}
		}, want: `
			p2: row ID=p2
			p3: no row`},
		{rule: "ReadsThoseOfAStatus", query: q.PaymentListOfOrder, with: db.PaymentListOfOrderParams{
			TenantID: tenant, OrderID: "several", Status: "failed", Before: "z", LimitRows: 9,
		}, want: `
			row ID=p2`},
		{rule: "ReadsAPage", query: q.PaymentListOfOrder, with: db.PaymentListOfOrderParams{
			TenantID: tenant, OrderID: "several", Before: "z", LimitRows: 1,
		}, want: `
			row ID=p3`},
		{rule: "ReadsThoseOfAStatus", query: q.PaymentListOfStatus,
			with: db.PaymentListOfStatusParams{TenantID: tenant, Status: "failed", Before: "z", LimitRows: 9}, want: `
			row ID=p5
			row ID=p2`},
		{rule: "ReadsARange", query: q.PaymentListOfStatus, each: "p2 p3", with: func(from string) any {
			return db.PaymentListOfStatusParams{TenantID: tenant, Status: "failed", FromID: from, Before: "p5", LimitRows: 9}
		}, want: `
			p2: row ID=p2
			p3: no row`},
		{rule: "ReadsAPage", query: q.PaymentListOfStatus,
			with: db.PaymentListOfStatusParams{TenantID: tenant, Status: "failed", Before: "z", LimitRows: 1}, want: `
			row ID=p5`},
		{rule: "ReadsThoseOfAStatusAndTheLastThatItLooksAt", query: q.PaymentListScan, with: db.PaymentListScanParams{
			TenantID: tenant, Status: "succeeded", ScanRows: 3, Before: "z", LimitRows: 9,
		}, want: `
			row ID=p4
			row ID=p3`},
		{rule: "ReadsARange", query: q.PaymentListScan, with: db.PaymentListScanParams{
			TenantID: tenant, Status: "succeeded", ScanRows: 9, FromID: "p2", Before: "p5", LimitRows: 9,
		}, want: `
			row ID=p4`},
		{rule: "GoesOn", query: q.PaymentListScan, with: db.PaymentListScanParams{
			TenantID: tenant, Status: "succeeded", ScanRows: 9, Before: "p4", LimitRows: 9,
		}, want: `
			row ID=p1`},
		{rule: "ReadsAPage", query: q.PaymentListScan, with: db.PaymentListScanParams{
			TenantID: tenant, Status: "succeeded", ScanRows: 9, Before: "z", LimitRows: 1,
		}, want: `
			row ID=p4`},

		{rule: "ReadsTheNewestFirst", query: q.RefundList,
			with: db.RefundListParams{TenantID: tenant, BeforeAt: at("+1h"), LimitRows: 4}, want: `
			row ID=r5
			row ID=r4
			row ID=r3
			row ID=r2`},
		{rule: "GoesOn", query: q.RefundList,
			with: db.RefundListParams{TenantID: tenant, BeforeAt: at("-7h"), BeforeID: "r4", LimitRows: 9}, want: `
			row ID=r3
			row ID=r2
			row ID=r1`},
		{rule: "ReadsTheNewestFirst", query: q.RefundListOfStatus,
			with: db.RefundListOfStatusParams{TenantID: tenant, Status: "failed", BeforeAt: at("+1h"), LimitRows: 1}, want: `
			row ID=r5`},
		{rule: "GoesOn", query: q.RefundListOfStatus, with: db.RefundListOfStatusParams{
			TenantID: tenant, Status: "succeeded", BeforeAt: at("-7h"), BeforeID: "r4", LimitRows: 9,
		}, want: `
			row ID=r3
			row ID=r1`},
		{rule: "ReadsTheNewestFirst", query: q.RefundListOfPayment, with: db.RefundListOfPaymentParams{
			TenantID: tenant, PaymentID: "one", BeforeAt: at("+1h"), LimitRows: 2,
		}, want: `
			row ID=r3
			row ID=r2`},
		{rule: "ReadsThoseOfAStatus", query: q.RefundListOfPayment, with: db.RefundListOfPaymentParams{
			TenantID: tenant, PaymentID: "one", Status: "failed", BeforeAt: at("+1h"), LimitRows: 9,
		}, want: `
			row ID=r2`},
		{rule: "ReadsThoseOfAnOrder", query: q.RefundListOfPayment, each: "first second", with: func(order string) any {
			return db.RefundListOfPaymentParams{TenantID: tenant, PaymentID: "two", OrderID: order, BeforeAt: at("+1h"), LimitRows: 1}
		}, want: `
			first: no row
			second: row ID=r5`},
		{rule: "GoesOn", query: q.RefundListOfPayment, with: db.RefundListOfPaymentParams{
			TenantID: tenant, PaymentID: "one", BeforeAt: at("-7h"), BeforeID: "r3", LimitRows: 9,
		}, want: `
			row ID=r2
			row ID=r1`},
		{rule: "ReadsTheNewestFirst", query: q.RefundListOfOrder,
			with: db.RefundListOfOrderParams{TenantID: tenant, OrderID: "first", BeforeAt: at("+1h"), LimitRows: 2}, want: `
			row ID=r3
			row ID=r2`},
		{rule: "ReadsThoseOfAStatus", query: q.RefundListOfOrder, with: db.RefundListOfOrderParams{
			TenantID: tenant, OrderID: "first", Status: "failed", BeforeAt: at("+1h"), LimitRows: 9,
		}, want: `
			row ID=r2`},
		{rule: "GoesOn", query: q.RefundListOfOrder, with: db.RefundListOfOrderParams{
			TenantID: tenant, OrderID: "first", BeforeAt: at("-8h"), BeforeID: "r2", LimitRows: 9,
		}, want: `
			row ID=r1`},
	})
}

const lastingRows = `
	orders
	  id  version  status    lasting
	  o1  1        open      false
	  o2  1        open      false
	  o3  1        open      true
	  o4  2        canceled  false
	  o5  1        open      false
	  o6  1        open      false

	payments
	  id  order_id  status           lasting  intent_id
	  p1  o1        processing       false    pi_1
	  p2  o2        processing       false    pi_2
	  p3  o3        processing       true     pi_3
	  p4  o4        requires_action  false    pi_4
	  p5  o5        processing       false    pi_5
	  p6  o6        processing       false    pi_6

	reconciliation_windows
	  name     covered_through
	  recent   -9h
	  lasting  -2h
`

func TestQueriesOfWhatLasts(t *testing.T) {
	t.Parallel()
	orders := func(from string) any {
		return db.OrdersMarkLastingParams{FromID: from, UntilID: "o6", LimitRows: 9}
	}
	payments := func(from string) any {
		return db.PaymentsMarkLastingParams{FromID: from, UntilID: "p6", LimitRows: 9}
	}
	checkQueries(t, lastingRows, []queryCase{
		{rule: "ReadsItsWindow", query: q.ListsMarkedUntil, want: `
			row -2h`},
		{rule: "InsertsOnce", query: q.ListsWindowInsert, want: ``},
		{rule: "InsertsTheFirst", query: q.ListsWindowInsert,
			first: "DELETE FROM reconciliation_windows WHERE name = 'lasting'", want: `
			inserts reconciliation_windows/lasting: leased_until=-infinity next_at=-infinity`},
		{rule: "LocksItsWindow", query: q.ListsWindowLock, with: -5 * time.Hour, want: `
			row FromAt=-2h UntilAt=now+5h
			locks reconciliation_windows/lasting`},
		{rule: "LeavesWhatIsLocked", query: q.ListsWindowLock, with: -5 * time.Hour,
			locked: "reconciliation_windows/lasting", want: `
			no row`},
		{rule: "CoversItsWindow", query: q.ListsWindowCover, with: at("-1h"), want: `
			changes reconciliation_windows/lasting: covered_through=-1h`},
		{rule: "MarksWhatIsOpenInARange", query: q.OrdersMarkLasting, each: "o1 o2 o6", with: orders, want: `
			o1: returns 6
			o1: changes orders/o1: lasting=true
			o1: changes orders/o2: lasting=true
			o1: changes orders/o5: lasting=true
			o1: changes orders/twin/o1: lasting=true
			o1: changes orders/twin/o2: lasting=true
			o1: changes orders/twin/o3: lasting=true
			o2: returns 4
			o2: changes orders/o2: lasting=true
			o2: changes orders/o5: lasting=true
			o2: changes orders/twin/o2: lasting=true
			o2: changes orders/twin/o3: lasting=true
			o6: returns 0`},
		{rule: "MarksSoMany", query: q.OrdersMarkLasting,
			with: db.OrdersMarkLastingParams{UntilID: "z", LimitRows: 2}, want: `
			returns 2
			changes orders/twin/o1: lasting=true
			changes orders/twin/o2: lasting=true`},
		{rule: "MarksWhatIsProcessingInARange", query: q.PaymentsMarkLasting, each: "p1 p2 p6", with: payments, want: `
			p1: returns 6
			p1: changes payments/p1: lasting=true
			p1: changes payments/p2: lasting=true
			p1: changes payments/p5: lasting=true
			p1: changes payments/twin/p1: lasting=true
			p1: changes payments/twin/p2: lasting=true
			p1: changes payments/twin/p3: lasting=true
			p2: returns 4
			p2: changes payments/p2: lasting=true
			p2: changes payments/p5: lasting=true
			p2: changes payments/twin/p2: lasting=true
			p2: changes payments/twin/p3: lasting=true
			p6: returns 0`},
		{rule: "MarksSoMany", query: q.PaymentsMarkLasting,
			with: db.PaymentsMarkLastingParams{UntilID: "z", LimitRows: 2}, want: `
			returns 2
			changes payments/twin/p1: lasting=true
			changes payments/twin/p2: lasting=true`},
	})
}
