package compare

import (
	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

// DisputeMovementKind tells a withdrawal from a reinstatement by Stripe's reporting
// category, because the type of both is "adjustment". What Stripe may add to its
// categories is of kind other, and counts all the same. So is a fee alone, which withdraws nothing.
func DisputeMovementKind(m stripe.DisputeMovement) db.DisputeMovementKind {
	switch {
	case m.Category == "dispute" && m.AmountMinor < 0:
		return db.DisputeMovementKindWithdrawal
	case m.Category == "dispute_reversal":
		return db.DisputeMovementKindReinstatement
	}
	return db.DisputeMovementKindOther
}

// DisputeHolds is how much of a payment a dispute has withdrawn and not given back, in
// the currency of the charge. Where the account is settled in that currency the movements
// say so themselves, whatever their number. In another currency their sum is not zero even
// when all was given back, because the rate has moved; then the dispute holds its whole
// amount until as many movements have given back as have withdrawn.
func DisputeHolds(amountMinor int64, currency string, movements []db.DisputeMovement) int64 {
	var sum int64
	withdrawals, same := 0, true
	for _, m := range movements {
		sum += m.AmountMinor
		same = same && m.Currency == currency
		switch m.Kind {
		case db.DisputeMovementKindWithdrawal:
			if m.AmountMinor < 0 { // A fee alone was once recorded under this kind, and movements never change.
				withdrawals++
			}
		case db.DisputeMovementKindReinstatement:
			withdrawals--
		case db.DisputeMovementKindOther: // An adjustment of the rate.
		}
	}
	switch {
	case same:
		return max(0, -sum)
	case withdrawals > 0:
		return amountMinor
	}
	return 0
}

// DisputeFees is the sum of the fees of a dispute's movements.
func DisputeFees(movements []db.DisputeMovement) (sum int64) {
	for _, m := range movements {
		sum += m.FeeMinor
	}
	return sum
}
