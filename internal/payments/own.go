package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// OwnIntent returns an intent under the order whose payment has it. Anybody with access to the Stripe account can edit
// an intent's metadata, so where its charge names another order, that is looked at too. Metadata only leads to a
// payment: that the payment has the intent decides.
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

// LocateIntent is OwnIntent, and looks for the payment of an intent that was paid among all of the time since the
// intent was created if neither order has it. That is slow, so it is for one intent of which something is known to be
// wrong.
func LocateIntent(ctx context.Context, q *db.Queries, i stripe.Intent) (stripe.Intent, error) {
	i, err := OwnIntent(ctx, q, i)
	if err != nil || i.Status != stripe.IntentSucceeded {
		return i, err
	}
	known, err := hasIntent(ctx, q, i.ID, stripe.Order{TenantID: i.TenantID, OrderID: i.OrderID})
	if err != nil || known {
		return i, err
	}
	elsewhere, err := paymentElsewhere(ctx, q, i)
	if err != nil {
		return i, err
	}
	if elsewhere != nil {
		i.TenantID, i.OrderID, i.Operation = elsewhere.TenantID, elsewhere.OrderID, ""
	}
	return i, nil
}

// paymentElsewhere is a payment of another order that has the intent; nil if there is none.
func paymentElsewhere(
	ctx context.Context, q *db.Queries, i stripe.Intent,
) (*db.PaymentOfIntentElsewhereRow, error) {
	others, err := q.PaymentOfIntentElsewhere(ctx, db.PaymentOfIntentElsewhereParams{
		FromID: oldestOf(i), UntilID: ids.Payment + ids.Floor(i.CreatedAt.Add(clocksApart)), IntentID: &i.ID,
		TenantID: i.TenantID, OrderID: i.OrderID,
	})
	if err != nil {
		return nil, fmt.Errorf("look for other payments of %s: %w", i.ID, err)
	}
	if len(others) == 0 {
		return nil, nil
	}
	return &others[0], nil
}

// oldestOf is the least id of a payment with the intent, if the intent is the first of its order.
func oldestOf(i stripe.Intent) string {
	return ids.Payment + ids.Floor(i.CreatedAt.Add(-AbandonedAfter-clocksApart))
}

// OwnRefund is OwnIntent for the refund of an intent.
func OwnRefund(ctx context.Context, q *db.Queries, r stripe.Refund) (stripe.Refund, error) {
	own, err := ownOrder(ctx, q, r.IntentID, stripe.Order{TenantID: r.TenantID, OrderID: r.OrderID}, r.Charged)
	r.TenantID, r.OrderID = own.TenantID, own.OrderID
	return r, err
}

// ownOrder is charged, if a payment of that order has the intent, and else named.
func ownOrder(ctx context.Context, q *db.Queries, intentID string, named, charged stripe.Order) (stripe.Order, error) {
	if charged.TenantID == "" || charged == named {
		return named, nil
	}
	has, err := hasIntent(ctx, q, intentID, charged)
	if has {
		return charged, nil
	}
	return named, err
}

// hasIntent reports whether a payment of the order has the intent.
func hasIntent(ctx context.Context, q *db.Queries, intentID string, order stripe.Order) (bool, error) {
	_, err := q.PaymentOfIntent(ctx, db.PaymentOfIntentParams{
		TenantID: order.TenantID, OrderID: order.OrderID, IntentID: &intentID,
	})
	switch {
	case errors.Is(err, postgres.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find the payment of %s: %w", intentID, err)
	}
	return true, nil
}
