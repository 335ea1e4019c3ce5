package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

const operatorDisputeRows = `
	payments
	  id    status     amount_refunding_minor  amount_refunded_minor
	  full  succeeded  1000                    1000
	  half  succeeded  500                     500
	  none  succeeded  0                       0

	disputes
	  id       status                  payment_id  next_read_at  created_at  evidence_due_by
	  due_1    needs_response          full        -1h           -9h         +1h
	  due_2    needs_response          none        -3h           -8h         +2h
	  inquiry  warning_needs_response  half        -4h           -7h         .
	  lost     lost                    none        -9h           -6h         -1h
	  refused  warning_needs_response  full        -5h           -5h         +3h
	  review   under_review            none        -2h           -4h         +1h
`

func TestQueriesOfOperatorDisputes(t *testing.T) {
	t.Parallel()
	checkQueries(t, operatorDisputeRows, []queryCase{
		{rule: "ReadsWhatNeedsAResponseFirst", query: q.OperatorDisputes,
			with: db.OperatorDisputesParams{ScanMax: 99, LimitRows: 99}, show: "Status EvidenceDueBy", want: `
			row ID=due_1 Status=needs_response EvidenceDueBy=+1h
			row twin ID=due_2 Status=needs_response EvidenceDueBy=+1h1m
			row ID=due_2 Status=needs_response EvidenceDueBy=+2h
			row twin ID=inquiry Status=needs_response EvidenceDueBy=+2h1m
			row ID=refused Status=warning_needs_response EvidenceDueBy=+3h
			row twin ID=review Status=warning_needs_response EvidenceDueBy=+3h1m
			row twin ID=lost Status=warning_needs_response
			row ID=inquiry Status=warning_needs_response
			row ID=review Status=under_review EvidenceDueBy=+1h
			row twin ID=due_1 Status=under_review EvidenceDueBy=+1h1m`},
		{rule: "ReadsAFew", query: q.OperatorDisputes,
			with: db.OperatorDisputesParams{ScanMax: 99, LimitRows: 1}, want: `
			row ID=due_1`},
		{rule: "BeginsWithWhatIsReadNext", query: q.OperatorDisputes,
			with: db.OperatorDisputesParams{ScanMax: 3, LimitRows: 99}, want: `
			row ID=refused
			row twin ID=review
			row twin ID=lost`},
		{rule: "Counts", query: q.OperatorDisputeCounts, with: int32(99), want: `
			row Open=10 NeedsResponse=6`},
		{rule: "BeginsWithWhatIsReadNext", query: q.OperatorDisputeCounts, with: int32(3), want: `
			row Open=3 NeedsResponse=1`},
		{rule: "FindsTheTenantOfADispute", query: q.OperatorFindObject, each: "only_ours missing",
			with: func(id string) any { return id }, given: `
			disputes
			  tenant_id  id
			  acme:eu    only_ours`, want: `
			only_ours: row acme:eu
			missing: no row`},
	})
}
