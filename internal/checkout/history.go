package checkout

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/keyhistory"
	"example.com/payonce/internal/postgres"
)

// History describes the keys of checkouts.
func History(ctx context.Context, q *db.Queries, tenantID, id string) (keyhistory.Made, error) {
	row, err := q.KeyHistoryCheckout(ctx, db.KeyHistoryCheckoutParams{TenantID: tenantID, ID: id})
	if errors.Is(err, postgres.ErrNoRows) {
		return keyhistory.Made{}, nil
	}
	if err != nil {
		return keyhistory.Made{}, fmt.Errorf("read checkout %s: %w", id, err)
	}
	return keyhistory.Made{
		OrderID: postgres.Deref(row.OrderID), PaymentID: postgres.Deref(row.PaymentID),
		Finished: func(p *db.Payment) string { return Verdict(row, p) },
	}, nil
}

// Verdict is what is said about the money of a checkout whose key is finished; p is nil without a payment.
func Verdict(row db.Checkout, p *db.Payment) string {
	paid := p != nil && p.Status == db.PaymentStatusSucceeded
	switch row.Status {
	case db.CheckoutStatusCompleted:
		if p != nil {
			return "completed, " + keyhistory.ChargedOnce(p)
		}
	case db.CheckoutStatusCompensated:
		if paid {
			return "compensated, " + keyhistory.ChargedOnce(p)
		}
		return "compensated (" + postgres.Deref(row.FailureCode) + "), no money taken"
	case db.CheckoutStatusProcessing:
	}
	return "the key is finished and its checkout is not; an operator must look"
}

var _ keyhistory.Describe = History
