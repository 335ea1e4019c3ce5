package postgres

import "example.com/payonce/db"

// checkoutInvariants are those of the saga. Payments and refunds of a checkout are checked with all others.
var checkoutInvariants = []invariant{
	{"I16", "an ended checkout is complete or fully compensated",
		offenders((*db.Queries).InvariantEndedCheckoutIsConsistent)},
}
