package checkout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
	"example.com/payonce/testkit/dbtest"
)

// TestVerdict: what is said about the money of a checkout whose key is finished.
func TestVerdict(t *testing.T) {
	t.Parallel()
	charge, why := "ch_1", "out_of_stock"
	paid := &db.Payment{Status: db.PaymentStatusSucceeded, ChargeID: &charge}
	failed := &db.Payment{Status: db.PaymentStatusFailed}
	const wrong = "the key is finished and its checkout is not; an operator must look"
	for _, c := range []struct {
		status  db.CheckoutStatus
		payment *db.Payment
		verdict string
	}{
		{db.CheckoutStatusCompleted, paid, "completed, charged once, ch_1"},
		{db.CheckoutStatusCompleted, nil, wrong},
		{db.CheckoutStatusCompensated, paid, "compensated, charged once, ch_1"},
		{db.CheckoutStatusCompensated, failed, "compensated (out_of_stock), no money taken"},
		{db.CheckoutStatusCompensated, nil, "compensated (out_of_stock), no money taken"},
		{db.CheckoutStatusProcessing, paid, wrong},
	} {
		require.Equal(t, c.verdict, checkout.Verdict(db.Checkout{Status: c.status, FailureCode: &why}, c.payment))
	}
}

// TestHistoryOfACheckoutThatIsNotHere says nothing: its key may be older than a restored database.
func TestHistoryOfACheckoutThatIsNotHere(t *testing.T) {
	t.Parallel()
	made, err := checkout.History(t.Context(), dbtest.New(t).Queries, "ten_1", "chk_1")
	require.NoError(t, err)
	require.Zero(t, made)
}
