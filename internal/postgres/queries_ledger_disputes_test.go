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

func TestQueriesOfInvariantsOfTheLedgerOfDisputes(t *testing.T) {
	t.Parallel()
	checkInvariants(t, []queryCase{
		{rule: "ComparesTheMovements", query: q.InvariantLedgerAgreesWithDisputes, any: true, given: `
			disputes
			  id
			  currency
			  differs
			  old
			  other
			  pending
			  right
			  version

			disputes
			  tenant_id  id
			  acme       theirs

			dispute_movements
			  id  dispute_id  version  net_minor  currency  created_at
			  1   currency    1        -2500      eur       -9h
			  2   currency    1        -700       usd       -9h
			  3   differs     1        -2500      eur       -9h
			  4   old         1        -2500      eur       -999h
			  5   other       1        -2500      eur       -9h
			  6   pending     1        -2500      eur       -9h
			  7   right       1        -3500      eur       -9h
			  8   right       2        1000       eur       -9h
			  9   right       3        1000       eur       -9h
			  10  version     1        -2500      eur       -9h

			dispute_movements
			  tenant_id  id  dispute_id  version  net_minor  created_at
			  acme       1   differs     1        -2500      -999h
			  acme       2   right       1        -2500      -9h

			ledger_entries
			  event_id    line  account   resource_id  amount_minor
			  currency-1  1     stripe    currency     -2500
			  differs-1   1     stripe    differs      -2000
			  none-1      1     stripe    none         -2500
			  old-1       1     stripe    old          -2500
			  other-1     1     stripe    other        -2500
			  pending-1   1     stripe    pending      -2500
			  right-1     1     stripe    right        -3500
			  right-1     2     disputes  right        3500
			  right-2     1     stripe    right        1000
			  theirs-1    1     stripe    theirs       -2500
			  version-1   1     stripe    version      -2500

			inbox_events
			  consumer  event_id    version  status
			  ledger    currency-1  1        done
			  ledger    differs-1   1        done
			  ledger    pending-1   1        pending
			  ledger    right-1     1        done
			  ledger    right-7002  2        done
			  ledger    rightly-3   3        done
			  ledger    version-2   2        done
			  other     other-1     1        done`, want: `
			row Subject=acme:eu differs Detail=booked -2000 eur net, moved -2500
			row Subject=acme:eu other Detail=booked -2500 eur net, moved 0
			row Subject=acme:eu pending Detail=booked -2500 eur net, moved 0
			row Subject=acme:eu version Detail=booked -2500 eur net, moved 0`},
		{rule: "FindsWhatWasNotReceived", query: q.InvariantPublishedReachesLedger, any: true, given: `
			outbox_events
			  aggregate_id  version  type             published_at
			  dispute       1        dispute.created  -1h
			  dispute       2        dispute.updated  -1h

			inbox_events
			  consumer  event_id   status
			  ledger    dispute-1  done`, want: `
			row Subject=acme:eu dispute 2 Detail=dispute.updated published -1h, never received by the ledger`},
	})
}
