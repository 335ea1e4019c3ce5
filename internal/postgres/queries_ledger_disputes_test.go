package postgres_test

import (
	"testing"

	"example.com/payonce/db"
)

const ledgerDisputeRows = `
	disputes
	  id   version
	  d_1  2
	  d_2  9
	  d_3  1

	dispute_movements
	  id     dispute_id  version  amount_minor  fee_minor  net_minor
	  txn_1  d_1         2        -1000         1500       -2500
	  txn_2  d_1         2        300           0          300
	  txn_3  d_1         1        -700          0          -700
	  txn_4  d_2         2        -800          0          -800
`

func TestQueriesOfTheLedgerOfDisputes(t *testing.T) {
	t.Parallel()
	checkQueries(t, ledgerDisputeRows, []queryCase{
		{rule: "HasReachedTheVersion", query: q.LedgerBasisOfDispute, each: "d_1/2 d_1/3 d_2/3 d_3/2 missing/1",
			with: func(of string) any {
				id, version := split(of)
				return db.LedgerBasisOfDisputeParams{TenantID: tenant, DisputeID: id, Version: version}
			}, want: `
			d_1/2: returns true
			d_1/3: returns false
			d_2/3: returns true
			d_3/2: returns false
			missing/1: returns false`},
		{rule: "BooksTheMovementsOfAVersion", query: q.LedgerBookDispute, with: db.LedgerBookDisputeParams{
			TenantID: tenant, EventID: "d_1-2", DisputeID: "d_1", Version: 2,
		}, want: `
			inserts ledger_entries/d_1-2/1: account=disputes amount_minor=1000 booked_at=now currency=eur
				resource_id=d_1
			inserts ledger_entries/d_1-2/2: account=fees amount_minor=1500 booked_at=now currency=eur
				resource_id=d_1
			inserts ledger_entries/d_1-2/3: account=stripe amount_minor=-2500 booked_at=now currency=eur
				resource_id=d_1
			inserts ledger_entries/d_1-2/4: account=disputes amount_minor=-300 booked_at=now currency=eur
				resource_id=d_1
			inserts ledger_entries/d_1-2/5: account=stripe amount_minor=300 booked_at=now currency=eur
				resource_id=d_1`},
	})
}
