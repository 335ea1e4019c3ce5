package payments

import (
	"context"
	"fmt"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
)

// OrderRequest is what POST /v1/orders asks for, decoded and validated.
type OrderRequest struct {
	Currency          string            `json:"currency"`
	Items             []Item            `json:"items"`
	CustomerReference *string           `json:"customer_reference"`
	Metadata          map[string]string `json:"metadata"`
}

// Total is what the order costs, in minor units. The limits on items keep it far from an overflow.
func (r OrderRequest) Total() int64 {
	var total int64
	for _, i := range r.Items {
		total += i.Quantity * i.UnitAmount
	}
	return total
}

func (s *Service) beginOrder(
	ctx context.Context, r idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	row := NewOrder(r.TenantID, idempotency.Decode[OrderRequest](r.Body))
	answer, err := s.keys.BeginFinished(ctx, r, row.ID, func(q *db.Queries) (idempotency.Answer, error) {
		if err := InsertOrder(ctx, q, row); err != nil {
			return idempotency.Answer{}, err
		}
		return s.answers.Object(http.StatusCreated, "/v1/orders/"+row.ID, orderOf(row)), nil
	})
	return nil, answer, err
}

// NewOrder is the row of a new order.
func NewOrder(tenantID string, r OrderRequest) db.Order {
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	id := ids.New(ids.Order)
	return db.Order{
		TenantID: tenantID, ID: id, Version: 1, Status: db.OrderStatusOpen, Currency: r.Currency,
		AmountMinor: r.Total(), Items: outbox.Data(r.Items), CustomerReference: r.CustomerReference,
		Metadata: outbox.Data(r.Metadata), CreatedAt: ids.Time(id),
	}
}

// InsertOrder inserts an order and its event.
func InsertOrder(ctx context.Context, q *db.Queries, row db.Order) error {
	err := q.OrderInsert(ctx, db.OrderInsertParams{
		TenantID: row.TenantID, ID: row.ID, Currency: row.Currency, AmountMinor: row.AmountMinor, Items: row.Items,
		CustomerReference: row.CustomerReference, Metadata: row.Metadata, CheckoutID: row.CheckoutID,
		CreatedAt: row.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert order %s: %w", row.ID, err)
	}
	return outbox.Append(ctx, q, OrderEvent("order.created", row))
}

// closedOrder is why an order in this status can never be paid; nil if it can.
func closedOrder(status db.OrderStatus) error {
	switch status {
	case db.OrderStatusOpen, db.OrderStatusAuthorized: // A payment of an authorized one is in progress.
		return nil
	case db.OrderStatusCanceled:
		return ErrOrderNotPayable
	case db.OrderStatusPaid, db.OrderStatusPartiallyRefunded, db.OrderStatusRefunded:
		return ErrOrderAlreadyPaid
	}
	panic("bug: an order of status " + string(status))
}

// Insert inserts the run's payment outside of T1, which has its own statement.
func (r *Run) Insert(ctx context.Context, q *db.Queries) (err error) {
	r.beforeLife, err = insertPayment(ctx, q, r.Payment)
	return err
}

func insertPayment(ctx context.Context, q *db.Queries, p db.Payment) (beforeLife bool, err error) {
	beforeLife, err = q.PaymentInsert(ctx, db.PaymentInsertParams{
		TenantID: p.TenantID, ID: p.ID, OrderID: p.OrderID, IdempotencyKey: p.IdempotencyKey,
		AmountMinor: p.AmountMinor, Currency: p.Currency, PaymentMethod: p.PaymentMethod,
		ManualCapture: p.ManualCapture,
		IntentNumber:  p.IntentNumber, IntentID: p.IntentID, CreatedAt: p.CreatedAt,
	})
	if err != nil {
		return false, fmt.Errorf("insert payment %s: %w", p.ID, err)
	}
	return beforeLife, nil
}
