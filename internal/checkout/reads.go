package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// Get returns one checkout of the tenant, or payments.ErrNotFound.
func (s *Service) Get(ctx context.Context, tenantID, id string) (Checkout, error) {
	if !ids.Is(ids.Checkout, id) {
		return Checkout{}, payments.ErrNotFound
	}
	row, steps, err := read(ctx, s.pool.Queries, tenantID, id)
	if err != nil {
		return Checkout{}, err
	}
	return Shown(row, steps), nil
}

// statusOf names a checkout whose status is asked for.
type statusOf struct{ tenantID, id string }

func newStatuses(pool *postgres.Pool) *postgres.Batched[statusOf, db.CheckoutStatus] {
	return postgres.NewBatched(pool, postgres.Statement[statusOf, db.CheckoutStatus]{
		Run: func(ctx context.Context, q *db.Queries, asked []statusOf, done func(int32, db.CheckoutStatus)) error {
			arg := db.CheckoutStatusesReadParams{}
			for _, a := range asked {
				arg.TenantIds, arg.Ids = append(arg.TenantIds, a.tenantID), append(arg.Ids, a.id)
			}
			rows, err := q.CheckoutStatusesRead(ctx, arg)
			for _, row := range rows {
				done(row.Ordinal, row.Status)
			}
			return err
		},
		Tenant: func(a *statusOf) string { return a.tenantID },
	})
}

// Status is the status of one checkout, or payments.ErrNotFound. Many may ask for it again and again: it is read in
// batches.
func (s *Service) Status(ctx context.Context, tenantID, id string) (db.CheckoutStatus, error) {
	if !ids.Is(ids.Checkout, id) {
		return "", payments.ErrNotFound
	}
	status, err := s.statuses.Do(ctx, statusOf{tenantID, id})
	if errors.Is(err, postgres.ErrNoRows) {
		return "", payments.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("read the status of checkout %s: %w", id, err)
	}
	return status, nil
}

// List returns up to limit checkouts, newest first, of one status or (empty) of all, that come after the one named
// (empty: from the start), and whether there are more. The named one may have another status by now; it still says
// where the page begins. payments.ErrNotFound: the tenant has no checkout of that id.
func (s *Service) List(ctx context.Context, tenantID string, status db.CheckoutStatus, after string, limit int) (
	[]Checkout, bool, error,
) {
	before := ids.Checkout + "~" // greater than every id
	if after != "" {
		if _, err := s.Status(ctx, tenantID, after); err != nil {
			return nil, false, err
		}
		before = after
	}
	rows, err := s.list(ctx, tenantID, status, before, int32(limit+1)) //nolint:gosec // at most 101
	if err != nil {
		return nil, false, fmt.Errorf("list checkouts: %w", err)
	}
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	list := make([]Checkout, len(rows))
	for i, row := range rows {
		var steps []db.CheckoutStep // in the JSON of the statement
		if err := json.Unmarshal(row.Steps, &steps); err != nil {
			return nil, false, fmt.Errorf("read the steps of checkout %s: %w", row.Checkout.ID, err)
		}
		list[i] = Shown(row.Checkout, steps)
	}
	return list, more, nil
}

func (s *Service) list(ctx context.Context, tenantID string, status db.CheckoutStatus, before string, n int32) (
	[]db.CheckoutListRow, error,
) {
	if status == "" {
		return s.pool.CheckoutList(ctx, db.CheckoutListParams{TenantID: tenantID, Before: before, LimitRows: n})
	}
	rows, err := s.pool.CheckoutListOfStatus(ctx, db.CheckoutListOfStatusParams{
		TenantID: tenantID, Status: status, Before: before, LimitRows: n,
	})
	list := make([]db.CheckoutListRow, len(rows))
	for i, row := range rows {
		list[i] = db.CheckoutListRow(row)
	}
	return list, err
}
