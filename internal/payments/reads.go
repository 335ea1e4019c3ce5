package payments

import (
	"context"
	"fmt"
	"strings"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
)

// Many clients ask at the same time for the outcome of a payment, so the reads of one object run in batches.

// objectKey names an object of a tenant.
type objectKey struct{ tenantID, id string }

func runOrdersRead(ctx context.Context, q *db.Queries, tenants, ids []string, done func(int32, db.Order)) error {
	rows, err := q.OrdersRead(ctx, db.OrdersReadParams{TenantIds: tenants, Ids: ids})
	for _, row := range rows {
		done(row.Ordinal, row.Order)
	}
	return err
}

func runPaymentsRead(ctx context.Context, q *db.Queries, tenants, ids []string, done func(int32, db.Payment)) error {
	rows, err := q.PaymentsRead(ctx, db.PaymentsReadParams{TenantIds: tenants, Ids: ids})
	for _, row := range rows {
		done(row.Ordinal, row.Payment)
	}
	return err
}

func runRefundsRead(ctx context.Context, q *db.Queries, tenants, ids []string, done func(int32, db.Refund)) error {
	rows, err := q.RefundsRead(ctx, db.RefundsReadParams{TenantIds: tenants, Ids: ids})
	for _, row := range rows {
		done(row.Ordinal, row.Refund)
	}
	return err
}

func newRead[Object any](
	pool *postgres.Pool,
	run func(ctx context.Context, q *db.Queries, tenants, ids []string, done func(int32, Object)) error,
) *postgres.Batched[objectKey, Object] {
	return postgres.NewBatched(pool, postgres.Statement[objectKey, Object]{
		Run: func(ctx context.Context, q *db.Queries, keys []objectKey, done func(int32, Object)) error {
			tenants, ids := make([]string, len(keys)), make([]string, len(keys))
			for i, k := range keys {
				tenants[i], ids[i] = k.tenantID, k.id
			}
			return run(ctx, q, tenants, ids, done)
		},
		Tenant: func(k *objectKey) string { return k.tenantID },
	})
}

// GetOrder returns one order of the tenant, or ErrNotFound.
func (s *Service) GetOrder(ctx context.Context, tenantID, id string) (Order, error) {
	if !ids.Is(ids.Order, id) {
		return Order{}, ErrNotFound
	}
	row, err := s.statements.OrdersRead.Do(ctx, objectKey{tenantID, id})
	if err != nil {
		return Order{}, notFound(err, "get order %s", id)
	}
	return orderOf(row), nil
}

// An order may have 110 KB, and who asks for a hundred of them need not want to read them. So they are read a few at a
// time, until they are many bytes.
const (
	ordersAtOnce   = 21 // one statement for a page of the usual size
	ordersBytesMax = 1 << 20
)

// ListOrders returns up to limit orders, newest first, that come after the one named (empty: from
// the start), and whether there are more. Of large ones it returns fewer. ErrNotFound: the tenant has no order of that
// id.
func (s *Service) ListOrders(ctx context.Context, tenantID, after string, limit int) ([]Order, bool, error) {
	if after != "" {
		if _, err := s.GetOrder(ctx, tenantID, after); err != nil {
			return nil, false, err
		}
	}
	var rows []db.Order
	for from, bytes := before(after), 0; ; from = rows[len(rows)-1].ID {
		n := min(limit+1-len(rows), ordersAtOnce)
		read, err := s.pool.OrderList(ctx, db.OrderListParams{
			TenantID: tenantID, Before: from, LimitRows: int32(n), //nolint:gosec // at most 21
		})
		if err != nil {
			return nil, false, fmt.Errorf("list orders: %w", err)
		}
		rows = append(rows, read...)
		if len(read) < n || len(rows) > limit {
			return page(rows, limit, orderOf)
		}
		for _, row := range read {
			bytes += len(row.Items) + len(row.Metadata)
		}
		if bytes > ordersBytesMax {
			return page(rows, len(rows)-1, orderOf) // The last one shows that there are more.
		}
	}
}

// GetPayment returns one payment of the tenant, or ErrNotFound.
func (s *Service) GetPayment(ctx context.Context, tenantID, id string) (Payment, error) {
	if !ids.Is(ids.Payment, id) {
		return Payment{}, ErrNotFound
	}
	row, err := s.statements.PaymentsRead.Do(ctx, objectKey{tenantID, id})
	if err != nil {
		return Payment{}, notFound(err, "get payment %s", id)
	}
	return PaymentOf(row), nil
}

// ListPayments returns up to limit payments, newest first, of one order or
// (empty) of all, as ListOrders does.
func (s *Service) ListPayments(
	ctx context.Context, tenantID, ofOrder, after string, limit int,
) ([]Payment, bool, error) {
	if after != "" {
		p, err := s.GetPayment(ctx, tenantID, after)
		if err != nil {
			return nil, false, err
		}
		if ofOrder != "" && p.OrderID != ofOrder {
			return nil, false, ErrNotFound // It is in another list.
		}
	}
	var (
		rows []db.Payment
		err  error
		most = int32(limit + 1) //nolint:gosec // at most 101
	)
	if ofOrder != "" && !ids.Is(ids.Order, ofOrder) {
		return nil, false, nil
	}
	if ofOrder == "" {
		rows, err = s.pool.PaymentList(ctx, db.PaymentListParams{
			TenantID: tenantID, Before: before(after), LimitRows: most,
		})
	} else {
		rows, err = s.pool.PaymentListOfOrder(ctx, db.PaymentListOfOrderParams{
			TenantID: tenantID, OrderID: ofOrder, Before: before(after), LimitRows: most,
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("list payments: %w", err)
	}
	return page(rows, limit, PaymentOf)
}

// GetRefund returns one refund of the tenant, or ErrNotFound.
func (s *Service) GetRefund(ctx context.Context, tenantID, id string) (Refund, error) {
	if !ids.Is(ids.Refund, id) {
		return Refund{}, ErrNotFound
	}
	row, err := s.statements.RefundsRead.Do(ctx, objectKey{tenantID, id})
	if err != nil {
		return Refund{}, notFound(err, "get refund %s", id)
	}
	return refundOf(row), nil
}

// before is the id below which a list, which is in descending order, continues.
func before(after string) string {
	if after == "" {
		return strings.Repeat("~", 8) // greater than every id
	}
	return after
}

// page drops the extra row that was read to find out whether there are more.
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
