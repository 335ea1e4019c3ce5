package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/postgres"
)

// OrderRows reads everything that our rows say about some orders, for a comparison with
// Stripe's objects. An order that does not exist has an entry without a row.
func (s *Service) OrderRows(
	ctx context.Context, q *db.Queries, refs []compare.OrderRef,
) (map[compare.OrderRef]*compare.Order, error) {
	var tenants, orders []string
	found := map[compare.OrderRef]*compare.Order{}
	for _, r := range refs {
		if found[r] == nil {
			found[r] = &compare.Order{}
			tenants, orders = append(tenants, r.TenantID), append(orders, r.OrderID)
		}
	}
	orderRows, err := q.ReconcileOrders(ctx, db.ReconcileOrdersParams{
		TenantIds: tenants, OrderIds: orders, Patience: compare.HolderPatience,
	})
	if err != nil {
		return nil, fmt.Errorf("read the orders that Stripe names: %w", err)
	}
	for _, row := range orderRows {
		o := found[compare.OrderRef{TenantID: row.Order.TenantID, OrderID: row.Order.ID}]
		o.Row, o.HolderKey, o.HolderInProgress = &row.Order, row.HolderKey, row.HolderInProgress
		o.Reserved = row.CheckoutInProgress // part: checkouts
	}
	paymentRows, err := q.ReconcilePayments(ctx, db.ReconcilePaymentsParams{TenantIds: tenants, OrderIds: orders})
	if err != nil {
		return nil, fmt.Errorf("read their payments: %w", err)
	}
	for _, row := range paymentRows {
		o := found[compare.OrderRef{TenantID: row.Payment.TenantID, OrderID: row.Payment.OrderID}]
		o.Payments = append(o.Payments, compare.Payment{
			Payment: row.Payment, InProgress: row.InProgress,
			Idle: time.Duration(row.IdleSeconds * float64(time.Second)),
		})
	}
	refundRows, err := q.ReconcileRefunds(ctx, db.ReconcileRefundsParams{TenantIds: tenants, OrderIds: orders})
	if err != nil {
		return nil, fmt.Errorf("read their refunds: %w", err)
	}
	for _, row := range refundRows {
		o := found[compare.OrderRef{TenantID: row.Refund.TenantID, OrderID: row.Refund.OrderID}]
		o.Refunds = append(o.Refunds, compare.RefundRow{Refund: row.Refund, InProgress: row.InProgress})
	}
	return found, s.registeredRows(ctx, q, found)
}

// lockedOrder reads an order and locks it, if it exists, so that no payment of it can
// begin before the transaction ends.
func (s *Service) lockedOrder(ctx context.Context, q *db.Queries, r compare.OrderRef) (*compare.Order, error) {
	_, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: r.TenantID, ID: r.OrderID})
	if err != nil && !errors.Is(err, postgres.ErrNoRows) {
		return nil, fmt.Errorf("lock order %s: %w", r.OrderID, err)
	}
	found, err := s.OrderRows(ctx, q, []compare.OrderRef{r})
	if err != nil {
		return nil, err
	}
	return found[r], nil
}

// registeredRows adds the charges of the registered operations to their orders.
func (s *Service) registeredRows(
	ctx context.Context, q *db.Queries, orders map[compare.OrderRef]*compare.Order,
) error {
	if len(s.o.Registered) == 0 {
		return nil
	}
	refs := make([]compare.OrderRef, 0, len(orders))
	for ref, order := range orders {
		refs, order.Registered = append(refs, ref), map[string]bool{}
		for name := range s.o.Registered {
			order.Registered[name] = true
		}
	}
	for name, operation := range s.o.Registered {
		charges, err := operation.Charges(ctx, q, refs)
		if err != nil {
			return fmt.Errorf("read the charges of %s: %w", name, err)
		}
		for _, charge := range charges {
			charge.Operation = name
			if order := orders[charge.OrderRef]; order != nil {
				order.Charges = append(order.Charges, charge)
			}
		}
	}
	return nil
}
