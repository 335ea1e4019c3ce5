package postgres

import "example.com/payonce/db"

// ledgerInvariants are those of the ledger: its entries and its inbox rows are one commit, and agree with the payments.
var ledgerInvariants = []invariant{
	{"I7a", "an event and its effect commit together", offenders((*db.Queries).InvariantEffectHasInboxRow)},
	{"I7c", "published events are received", offenders((*db.Queries).InvariantPublishedReachesLedger)},
	{"I8a", "the ledger sums to zero", offenders((*db.Queries).InvariantLedgerSumsToZero)},
	{"I8b", "the ledger agrees with payments and refunds", offenders((*db.Queries).InvariantLedgerAgrees)},
}
