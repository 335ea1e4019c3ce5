package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

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

// GetOrder returns one order of the tenant, or ErrNotFound.
func (s *Service) GetOrder(ctx context.Context, tenantID, id string) (Order, error) {
	if !isID(orderID, id) {
		return Order{}, ErrNotFound
	}
	row, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return Order{}, notFound(err, "get order %s", id)
	}
	return orderOf(row), nil
}

// ListOrders returns up to limit orders, newest first, that come after the one
// named (empty: from the start), and whether there are more. ErrNotFound: the
// tenant has no order of that id.
func (s *Service) ListOrders(ctx context.Context, tenantID, after string, limit int) ([]Order, bool, error) {
	if after != "" {
		if _, err := s.GetOrder(ctx, tenantID, after); err != nil {
			return nil, false, err
		}
	}
	rows, err := s.pool.OrderList(ctx, db.OrderListParams{TenantID: tenantID, Before: before(after), LimitRows: int32(limit + 1)}) //nolint:gosec // at most 101
	if err != nil {
		return nil, false, fmt.Errorf("list orders: %w", err)
	}
	return page(rows, limit, orderOf)
}

// before is the id that a list, which runs downwards, continues below.
func before(after string) string {
	if after == "" {
		return strings.Repeat("~", 8) // greater than every id
	}
	return after
}

// page cuts the row that was read too many, by which it knows that there are more.
func page[R, O any](rows []R, limit int, show func(R) O) ([]O, bool, error) {
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	list := make([]O, len(rows))
	for i, row := range rows {
		list[i] = show(row)
	}
	return list, more, nil
}

func notFound(err error, format string, args ...any) error {
	if errors.Is(err, db.ErrNoRows) {
		return ErrNotFound
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

func orderEvent(kind string, row db.Order) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: mustMarshal(orderOf(row))}
}

func paymentEvent(kind string, row db.Payment) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: mustMarshal(paymentOf(row))}
}
