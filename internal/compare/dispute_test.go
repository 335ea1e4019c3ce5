package compare

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

func TestDisputeMovementKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		category string
		amount   int64
		want     db.DisputeMovementKind
	}{
		{"dispute", -3000, db.DisputeMovementKindWithdrawal},
		{"dispute_reversal", 3000, db.DisputeMovementKindReinstatement},
		{"dispute", 0, db.DisputeMovementKindOther},  // a fee alone, such as that for a countered dispute
		{"dispute", 12, db.DisputeMovementKindOther}, // a correction in our favor is no withdrawal
		{"other_adjustment", -12, db.DisputeMovementKindOther},
		{"", -12, db.DisputeMovementKindOther},
	} {
		require.Equal(t, c.want, DisputeMovementKind(stripe.DisputeMovement{Category: c.category, AmountMinor: c.amount}))
	}
}

func TestDisputeHolds(t *testing.T) {
	t.Parallel()
	moved := func(category, currency string, amount, fee int64) db.DisputeMovement {
		return db.DisputeMovement{
			Kind:     DisputeMovementKind(stripe.DisputeMovement{Category: category, AmountMinor: amount}),
			Currency: currency, AmountMinor: amount, FeeMinor: fee, NetMinor: amount - fee,
		}
	}
	for _, c := range []struct {
		name        string
		movements   []db.DisputeMovement
		holds, fees int64
	}{
		{"an inquiry", nil, 0, 0},
		{"withdrawn", []db.DisputeMovement{moved("dispute", "usd", -6000, 1500)}, 6000, 1500},
		{"given back, the fee stays", []db.DisputeMovement{
			moved("dispute", "usd", -6000, 1500), moved("dispute_reversal", "usd", 6000, 0)}, 0, 1500},
		{"given back in part", []db.DisputeMovement{
			moved("dispute", "usd", -6000, 1500), moved("dispute_reversal", "usd", 2000, 0)}, 4000, 1500},
		{"the bank took it again", []db.DisputeMovement{
			moved("dispute", "usd", -6000, 1500), moved("dispute_reversal", "usd", 6000, 0),
			moved("dispute", "usd", -6000, 1500)}, 6000, 3000},
		{"withdrawn in the account's currency", []db.DisputeMovement{moved("dispute", "cad", -8391, 1500)}, 6000, 1500},
		{"given back at another rate", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500), moved("dispute_reversal", "cad", 8300, 0)}, 0, 1500},
		{"given back in another currency", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500), moved("dispute_reversal", "usd", 6000, 0)}, 0, 1500},
		{"corrected at another rate", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500), moved("dispute", "cad", 12, 0)}, 6000, 1500},
		{"given back after a fee alone", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500), moved("dispute", "cad", 0, 1500),
			moved("dispute_reversal", "cad", 8391, 0)}, 0, 3000},
		{"given back after a fee alone that is recorded as a withdrawal", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500),
			{Kind: db.DisputeMovementKindWithdrawal, Currency: "cad", FeeMinor: 1500, NetMinor: -1500},
			moved("dispute_reversal", "cad", 8391, 0)}, 0, 3000},
		{"withdrawn, and a fee alone", []db.DisputeMovement{
			moved("dispute", "cad", -8391, 1500), moved("dispute", "cad", 0, 1500)}, 6000, 3000},
	} {
		require.Equal(t, c.holds, DisputeHolds(6000, "usd", c.movements), c.name)
		require.Equal(t, c.fees, DisputeFees(c.movements), c.name)
	}
}
