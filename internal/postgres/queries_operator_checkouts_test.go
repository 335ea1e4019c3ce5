package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

// A checkout's key has its name.
const operatorCheckoutRows = `
	idempotency_keys
	  key       operation        resource_id  finished_at  next_attempt_at  created_at
	  ended     create_checkout  ended        -1h          -9h              -9h
	  late      create_checkout  late         .            +1h              -8h
	  new       create_checkout  new          .            -2h              -7h
	  of_order  create_checkout  of_order     .            -1h              -6h
	  payment   create_payment   paying       .            -8h              -9h

	checkouts
	  id        status      created_at
	  ended     completed   -9h
	  late      processing  -8h
	  new       processing  -2h
	  of_order  processing  -6h
	  paying    processing  -9h

	checkout_steps
	  checkout_id  step          status
	  ended        create_order  done
	  late         create_order  pending
	  new          create_order  pending
	  of_order     create_order  done
	  of_order     pay           running
	  paying       create_order  pending

	orders
	  id   checkout_id
	  ord  of_order
	  two  late
`

func TestQueriesOfOperatorCheckouts(t *testing.T) {
	t.Parallel()
	checkQueries(t, operatorCheckoutRows, []queryCase{
		{rule: "ReadsTheStepsInOrder", query: q.OperatorSagas, with: int32(9), want: `
			row twin CheckoutID=late Step=create_order Status=done Attempts=1 UpdatedAt=-8h1m CreatedAt=-9h1m
			row twin CheckoutID=new Step=create_order Status=pending CreatedAt=-8h1m
			row CheckoutID=late Step=create_order Status=pending CreatedAt=-8h
			row CheckoutID=of_order Step=create_order Status=done Attempts=1 UpdatedAt=-8h CreatedAt=-6h
			row CheckoutID=of_order Step=pay Status=running Attempts=1 UpdatedAt=-8h CreatedAt=-6h
			row twin CheckoutID=of_order Step=create_order Status=pending CreatedAt=-2h1m
			row twin CheckoutID=of_order Step=pay Status=done Attempts=1 UpdatedAt=-8h1m CreatedAt=-2h1m
			row CheckoutID=new Step=create_order Status=pending CreatedAt=-2h`},
		{rule: "BeginsWithWhatIsDueFirst", query: q.OperatorSagas, with: int32(3), want: `
			row twin CheckoutID=new Step=create_order Status=pending CreatedAt=-8h1m
			row twin CheckoutID=of_order Step=create_order Status=pending CreatedAt=-2h1m
			row twin CheckoutID=of_order Step=pay Status=done Attempts=1 UpdatedAt=-8h1m CreatedAt=-2h1m
			row CheckoutID=new Step=create_order Status=pending CreatedAt=-2h`},
		{rule: "ReadsTheKeyOfTheCheckout", query: q.OperatorOrderKeys, each: "ord two", with: func(order string) any {
			return db.OperatorOrderKeysParams{TenantID: tenant, OrderID: order, ID: "new", LimitRows: 9}
		}, want: `
			ord: row new
			ord: row of_order
			two: row late
			two: row new`},
		{rule: "FindsTheTenantOfACheckout", query: q.OperatorFindObject, each: "only_ours missing",
			with: func(id string) any { return id }, given: `
			checkouts
			  tenant_id  id
			  acme:eu    only_ours`, want: `
			only_ours: row acme:eu
			missing: no row`},
	})
}
