package postgres

import "example.com/payonce/db"

// disputeInvariants are those of disputes: what payments show as disputed is what their disputes hold.
var disputeInvariants = []invariant{
	{"I24a", "disputed amounts add up", offenders((*db.Queries).InvariantDisputedAddsUp)},
	{"I24b", "a dispute is what its movements moved", offenders((*db.Queries).InvariantDisputeIsWhatMoved)},
	// part: ledger {
	{
		"I24c", "the ledger agrees with disputes",
		offenders((*db.Queries).InvariantLedgerAgreesWithDisputes),
	},
	// part: ledger }
}
