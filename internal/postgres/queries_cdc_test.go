package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

const cdcRows = `
	cdc_events
	  id      aggregatetype  aggregateid  type        payload
	  pay-1   payment        pay          payment.a   1
	  pay-2   payment        pay          payment.b   2
	  ord-1   order          ord          order.paid  3
`

func TestQueriesOfCDC(t *testing.T) {
	t.Parallel()
	checkQueries(t, cdcRows, []queryCase{
		{rule: "InsertsEvents", query: q.CDCInsert, with: db.CDCInsertParams{
			Ids: []string{"pay-3", "ord-2"}, TenantIds: []string{tenant, twin}, AggregateTypes: []string{"payment", "order"},
			AggregateIds: []string{"pay", "ord"}, Types: []string{"payment.c", "order.canceled"}, Payloads: []string{"p", "o"},
		}, want: `
			inserts cdc_events/pay-3: aggregateid=pay aggregatetype=payment payload=p type=payment.c
			inserts cdc_events/twin/ord-2: aggregateid=ord aggregatetype=order payload=o type=order.canceled`},
		{rule: "DeletesTheseEvents", query: q.CDCDelete, with: db.CDCDeleteParams{
			TenantIds: []string{tenant, tenant, tenant, twin}, Ids: []string{"pay-1", "ord-1", "ord-9", "ord-1"},
		}, want: `
			deletes cdc_events/ord-1
			deletes cdc_events/pay-1
			deletes cdc_events/twin/ord-1`},
	})
}
