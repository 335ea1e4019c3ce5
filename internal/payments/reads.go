package payments

import (
	"context"

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

// GetPayment returns one payment of the tenant, or ErrNotFound.
func (s *Service) GetPayment(ctx context.Context, tenantID, id string) (Payment, error) {
	if !ids.Is(ids.Payment, id) {
		return Payment{}, ErrNotFound
	}
	row, err := s.statements.PaymentsRead.Do(ctx, objectKey{tenantID, id})
	if err != nil {
		return Payment{}, notFound(err, "get payment %s", id)
	}
	return s.shown(row), nil
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
