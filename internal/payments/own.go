package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// OwnIntent returns an intent under the order whose payment has it. Anybody with access to the Stripe account can edit an
// intent's metadata, so where its charge names another order, that is looked at too. Metadata only leads to a payment:
// that the payment has the intent decides.
func OwnIntent(ctx context.Context, q *db.Queries, i stripe.Intent) (stripe.Intent, error) {
	own, err := ownOrder(ctx, q, i.ID, stripe.Order{TenantID: i.TenantID, OrderID: i.OrderID}, i.Charged)
	if err != nil {
		return i, err
	}
	if own.TenantID != i.TenantID || own.OrderID != i.OrderID {
		i.TenantID, i.OrderID, i.Operation = own.TenantID, own.OrderID, ""
	}
	return i, nil
}

// OwnRefund is OwnIntent for the refund of an intent.
func OwnRefund(ctx context.Context, q *db.Queries, r stripe.Refund) (stripe.Refund, error) {
	own, err := ownOrder(ctx, q, r.IntentID, stripe.Order{TenantID: r.TenantID, OrderID: r.OrderID}, r.Charged)
	if err == nil {
		r.TenantID, r.OrderID = own.TenantID, own.OrderID
	}
	return r, err
}

// ownOrder is charged, if a payment of that order has the intent, and else named.
func ownOrder(ctx context.Context, q *db.Queries, intentID string, named, charged stripe.Order) (stripe.Order, error) {
	if charged.TenantID == "" || charged == named {
		return named, nil
	}
	_, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: charged.TenantID, OrderID: charged.OrderID, IntentID: &intentID,
	})
	switch {
	case errors.Is(err, postgres.ErrNoRows):
		return named, nil
	case err != nil:
		return named, fmt.Errorf("find the payment of %s: %w", intentID, err)
	}
	return charged, nil
}
