package keyhistory

import (
	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// orphanRefundVerdict is about a refund that an operator made of money that belongs to no
// payment. It has no row, so its call says how it ended.
func orphanRefundVerdict(calls []Call) string {
	for _, c := range calls {
		switch {
		case c.Outcome == db.StripeOutcomeDone:
			return "refunded once, " + postgres.Deref(c.ObjectID)
		case c.Outcome == db.StripeOutcomeRefused:
			return "not refunded (" + postgres.Deref(c.ErrorCode) + "); the money is still at Stripe"
		}
	}
	return unended
}
