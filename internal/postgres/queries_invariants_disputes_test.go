package postgres_test

import "testing"

func TestQueriesOfInvariantsOfDisputes(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "ComparesTheSums", query: q.InvariantDisputedAddsUp, any: true, given: `
			payments
			  id        amount_disputed_minor
			  pay_held  0
			  pay_less  900
			  pay_none  0
			  pay_only  500
			  pay_some  1000

			payments
			  tenant_id  id        amount_disputed_minor
			  acme       pay_some  0

			orders
			  id        amount_disputed_minor
			  ord_held  0
			  ord_less  900
			  ord_none  0
			  ord_only  500
			  ord_some  1000

			orders
			  tenant_id  id        amount_disputed_minor
			  acme       ord_some  0

			disputes
			  id    payment_id  order_id  withdrawn_minor
			  d_1   pay_some    ord_some  600
			  d_2   pay_some    ord_some  400
			  d_3   pay_less    ord_less  1000
			  d_4   pay_held    ord_held  1000`, want: `
			row Subject=acme:eu ord_held Detail=shows 0, its disputes hold 1000
			row Subject=acme:eu ord_less Detail=shows 900, its disputes hold 1000
			row Subject=acme:eu ord_only Detail=shows 500, its disputes hold 0
			row Subject=acme:eu pay_held Detail=shows 0, its disputes hold 1000
			row Subject=acme:eu pay_less Detail=shows 900, its disputes hold 1000
			row Subject=acme:eu pay_only Detail=shows 500, its disputes hold 0`},
		{rule: "ComparesTheMovements", query: q.InvariantDisputeIsWhatMoved, any: true, given: `
			payments
			  id      status
			  failed  failed
			  pay     succeeded

			payments
			  tenant_id  id   status
			  acme       pay  failed

			disputes
			  id       payment_id  fee_minor  withdrawn_minor  version
			  fee      pay         1000       1000             2
			  failed   failed      0          0                2
			  held     pay         0          1000             2
			  inquiry  pay         0          0                1
			  missing  missing     0          0                2
			  right    pay         1500       1000             2
			  unmoved  pay         1500       0                2
			  version  pay         1500       0                2

			dispute_movements
			  id     dispute_id  amount_minor  fee_minor  version
			  txn_1  fee         -1000         1500       2
			  txn_2  held        1000          0          2
			  txn_3  right       -1000         1500       1
			  txn_4  version     -1000         1500       3

			dispute_movements
			  tenant_id  id     dispute_id  fee_minor
			  acme       txn_1  right       1500`, want: `
			row Subject=acme:eu failed Detail=fee 0 and 0 held, movements: 0 with fees of 0; payment failed
			row Subject=acme:eu fee Detail=fee 1000 and 1000 held, movements: 1 with fees of 1500; payment
				succeeded
			row Subject=acme:eu held Detail=fee 0 and 1000 held, movements: 1 with fees of 0; payment succeeded
			row Subject=acme:eu missing Detail=fee 0 and 0 held, movements: 0 with fees of 0; payment missing
			row Subject=acme:eu unmoved Detail=fee 1500 and 0 held, movements: 0 with fees of 0; payment
				succeeded
			row Subject=acme:eu version Detail=fee 1500 and 0 held, movements: 1 with fees of 1500; payment
				succeeded`},
		{rule: "CountsTheEventsOfDisputes", query: q.InvariantVersionsHaveEvents, any: true, given: `
			disputes
			  id       version
			  missing  1
			  right    2

			outbox_events
			  aggregate_id  version
			  right         1
			  right         2`, want: `
			row Subject=acme:eu missing Detail=version 1, 0 events from  to`},
		{rule: "MayChangeAsStripeSays", query: q.InvariantTransitionsAreLegal, any: true, given: `
			outbox_events
			  aggregate_id  version  type
			  first         1        dispute.updated
			  lost          1        dispute.created
			  lost          2        dispute.lost
			  won           1        dispute.created
			  won           2        dispute.updated
			  won           3        dispute.won
			  won           4        dispute.updated`, want: `
			row Subject=acme:eu first Detail=dispute.updated as version 1 after nothing`},
	})
}
