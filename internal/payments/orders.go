package payments

import (
	"context"
	"fmt"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
)

// OrderRequest is what POST /v1/orders asks for, decoded and validated.
type OrderRequest struct {
	Currency          string            `json:"currency"`
	Items             []Item            `json:"items"`
	CustomerReference *string           `json:"customer_reference"`
	Metadata          map[string]string `json:"metadata"`
}

// Total is what the order costs, in minor units. The limits on items keep it
// far from an overflow.
func (r OrderRequest) Total() int64 {
	var total int64
	for _, i := range r.Items {
		total += i.Quantity * i.UnitAmount
	}
	return total
}

func (s *Service) beginOrder(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	row := newOrder(r.TenantID, decode[OrderRequest](r.Body))
	answer, err := s.keys.BeginFinished(ctx, r, row.ID, func(q *db.Queries) (idempotency.Answer, error) {
		if err := insertOrder(ctx, q, row); err != nil {
			return idempotency.Answer{}, err
		}
		return s.answers.Object(http.StatusCreated, "/v1/orders/"+row.ID, orderOf(row)), nil
	})
	return nil, answer, err
}

func newOrder(tenantID string, r OrderRequest) db.Order {
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	return db.Order{
		TenantID: tenantID, ID: newID(orderID), Version: 1, Status: db.OrderStatusOpen, Currency: r.Currency, AmountMinor: r.Total(),
		Items: mustMarshal(r.Items), CustomerReference: r.CustomerReference, Metadata: mustMarshal(r.Metadata), CreatedAt: now(),
	}
}

func insertOrder(ctx context.Context, q *db.Queries, row db.Order) error {
	err := q.OrderInsert(ctx, db.OrderInsertParams{
		TenantID: row.TenantID, ID: row.ID, Currency: row.Currency, AmountMinor: row.AmountMinor, Items: row.Items,
		CustomerReference: row.CustomerReference, Metadata: row.Metadata, CheckoutID: row.CheckoutID, CreatedAt: row.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert order %s: %w", row.ID, err)
	}
	return outbox.Append(ctx, q, orderEvent("order.created", row))
}
