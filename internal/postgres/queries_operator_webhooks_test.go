package postgres_test

import "testing"

func TestQueriesOfOperatorWebhooks(t *testing.T) {
	t.Parallel()
	checkQueries(t, `
	webhook_deliveries
	  event_id  status     created_at  http_status  last_error
	  ord_1-1   failed     -3h         500          timeout
	  ord_1-2   failed     -4h         404          reset
	  ord_1-3   failed     -2h         .            .
	  ord_2-1   delivered  -5h         503          unread
	  ord_2-2   pending    -6h         502          unsent
`, []queryCase{
		{rule: "CountsPerTenant", query: q.OperatorDeliveriesGivenUp, with: int32(99), want: `
			row twin GivenUp=3 Oldest=-4h1m HttpStatus=500 LastError=timeout
			row GivenUp=3 Oldest=-4h HttpStatus=500 LastError=timeout`},
		{rule: "HasNoDetail", query: q.OperatorDeliveriesGivenUp, with: int32(99),
			first: "UPDATE webhook_deliveries SET http_status = NULL, last_error = NULL WHERE status = 'failed'", want: `
			row twin GivenUp=3 Oldest=-4h1m
			row GivenUp=3 Oldest=-4h`},
	})
}
