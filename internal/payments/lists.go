package payments

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/paging"
)

// Lists are newest first. Orders and payments are in the order of their ids, which begin with the time of their
// creation: created_at is that time (ids.Time), so a filter by time is a range of ids. A refund's id is derived from
// its key, so refunds are in the order of created_at.
//
// A cursor is a place in the list of all. An object that has left the filtered list since the page before was read,
// such as an order that was paid, still says where the next page begins.

// Filter says which objects a list has; empty members say nothing.
type Filter struct {
	Status            string
	CustomerReference string // of orders
	OrderID           string // of payments and refunds
	PaymentID         string // of refunds
	CreatedAfter      time.Time
	CreatedBefore     time.Time // exclusive
}

// An order may have 110 KB, and who asks for a hundred of them need not want to read them. So they are read a few at a
// time, until they are many bytes.
const (
	ordersAtOnce   = 21 // one statement for a page of the usual size
	ordersBytesMax = 1 << 20
)

// ListOrders returns up to limit orders that come after the one named (empty: from the start), and whether there are
// more. Of large ones it returns fewer. ErrNotFound: the tenant has no order of that id.
func (s *Service) ListOrders(ctx context.Context, tenantID string, f Filter, after string, limit int) (
	[]Order, bool, error,
) {
	if after != "" {
		if _, err := s.GetOrder(ctx, tenantID, after); err != nil {
			return nil, false, err
		}
	}
	read := func(in paging.Span, n int32) (paging.Part[db.Order], error) {
		p, err := s.ordersOf(ctx, tenantID, f, in, min(n, ordersAtOnce))
		if err != nil {
			return p, fmt.Errorf("list orders: %w", err)
		}
		return p, nil
	}
	full := func(rows []db.Order) bool {
		bytes := 0
		for _, row := range rows {
			bytes += len(row.Items) + len(row.Metadata)
		}
		return bytes > ordersBytesMax
	}
	in := paging.Between(ids.Order, after, f.CreatedAfter, f.CreatedBefore)
	switch f.Status {
	case string(db.OrderStatusOpen):
		marked, err := s.markedUntil(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("list orders: %w", err)
		}
		in.Indexed = ids.Order + marked
	case string(db.OrderStatusPaid):
		in.Indexed = ""
	}
	return paging.List(limit, in, read, full, orderOf)
}

func (s *Service) ordersOf(ctx context.Context, tenantID string, f Filter, in paging.Span, n int32) (paging.Part[db.Order], error) {
	var (
		rows []db.Order
		err  error
	)
	young, scans := in.Unindexed()
	switch status := db.OrderStatus(f.Status); {
	case f.CustomerReference != "":
		rows, err = s.pool.OrderListOfReference(ctx, db.OrderListOfReferenceParams{
			TenantID: tenantID, CustomerReference: f.CustomerReference, Status: f.Status, FromID: in.From,
			Before: in.Before, LimitRows: n,
		})
	case status == "":
		rows, err = s.pool.OrderList(ctx, db.OrderListParams{
			TenantID: tenantID, FromID: in.From, Before: in.Before, LimitRows: n,
		})
	case scans:
		found, err := s.pool.OrderListScan(ctx, db.OrderListScanParams{
			TenantID: tenantID, Status: status, ScanRows: paging.ScanRows, FromID: young.From, Before: young.Before, LimitRows: n,
		})
		return paging.Scanned(found, in, orderID, func(r db.Order) bool { return r.Status == status }), err
	default:
		rows, err = s.pool.OrderListOfStatus(ctx, db.OrderListOfStatusParams{
			TenantID: tenantID, Status: status, FromID: in.From, Before: in.Before, LimitRows: n,
		})
	}
	return paging.Indexed(rows, n, orderID), err
}

func orderID(row db.Order) string { return row.ID }

func paymentID(row db.Payment) string { return row.ID }

// ListPayments returns up to limit payments, as ListOrders does. ErrNotFound: the tenant has no payment of that id, or
// it is another order's.
func (s *Service) ListPayments(ctx context.Context, tenantID string, f Filter, after string, limit int) (
	[]Payment, bool, error,
) {
	if after != "" {
		p, err := s.GetPayment(ctx, tenantID, after)
		if err != nil {
			return nil, false, err
		}
		if f.OrderID != "" && p.OrderID != f.OrderID {
			return nil, false, ErrNotFound // It is in another list.
		}
	}
	read := func(in paging.Span, n int32) (paging.Part[db.Payment], error) {
		p, err := s.paymentsOf(ctx, tenantID, f, in, n)
		if err != nil {
			return p, fmt.Errorf("list payments: %w", err)
		}
		return p, nil
	}
	in := paging.Between(ids.Payment, after, f.CreatedAfter, f.CreatedBefore)
	switch f.Status {
	case string(db.PaymentStatusProcessing):
		marked, err := s.markedUntil(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("list payments: %w", err)
		}
		in.Indexed = ids.Payment + marked
	case string(db.PaymentStatusSucceeded):
		in.Indexed = ""
	}
	return paging.List(limit, in, read, func([]db.Payment) bool { return false }, s.shown)
}

func (s *Service) paymentsOf(ctx context.Context, tenantID string, f Filter, in paging.Span, n int32) (
	paging.Part[db.Payment], error,
) {
	var (
		rows []db.Payment
		err  error
	)
	young, scans := in.Unindexed()
	switch status := db.PaymentStatus(f.Status); {
	case f.OrderID != "":
		rows, err = s.pool.PaymentListOfOrder(ctx, db.PaymentListOfOrderParams{
			TenantID: tenantID, OrderID: f.OrderID, Status: f.Status, FromID: in.From, Before: in.Before, LimitRows: n,
		})
	case status == "":
		rows, err = s.pool.PaymentList(ctx, db.PaymentListParams{
			TenantID: tenantID, FromID: in.From, Before: in.Before, LimitRows: n,
		})
	case scans:
		found, err := s.pool.PaymentListScan(ctx, db.PaymentListScanParams{
			TenantID: tenantID, Status: status, ScanRows: paging.ScanRows, FromID: young.From, Before: young.Before, LimitRows: n,
		})
		return paging.Scanned(found, in, paymentID, func(r db.Payment) bool { return r.Status == status }), err
	default:
		rows, err = s.pool.PaymentListOfStatus(ctx, db.PaymentListOfStatusParams{
			TenantID: tenantID, Status: status, FromID: in.From, Before: in.Before, LimitRows: n,
		})
	}
	return paging.Indexed(rows, n, paymentID), err
}

// farFuture is later than every refund.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// ListRefunds returns up to limit refunds, as ListOrders does. ErrNotFound: the tenant has no refund of that id, or it
// is not of the payment or the order.
func (s *Service) ListRefunds(ctx context.Context, tenantID string, f Filter, after string, limit int) (
	[]Refund, bool, error,
) {
	beforeAt, beforeID := farFuture, ""
	if after != "" {
		if !ids.Is(ids.Refund, after) {
			return nil, false, ErrNotFound
		}
		row, err := s.statements.RefundsRead.Do(ctx, objectKey{tenantID, after})
		if err != nil {
			return nil, false, notFound(err, "get refund %s", after)
		}
		if f.PaymentID != "" && row.PaymentID != f.PaymentID || f.OrderID != "" && row.OrderID != f.OrderID {
			return nil, false, ErrNotFound
		}
		beforeAt, beforeID = row.CreatedAt, row.ID
	}
	rows, err := s.refundsOf(ctx, tenantID, f, beforeAt, beforeID, int32(limit+1)) //nolint:gosec // at most 101
	if err != nil {
		return nil, false, fmt.Errorf("list refunds: %w", err)
	}
	return paging.Page(rows, limit, refundOf)
}

func (s *Service) refundsOf(
	ctx context.Context, tenantID string, f Filter, beforeAt time.Time, beforeID string, n int32,
) ([]db.Refund, error) {
	switch {
	case f.PaymentID != "":
		return s.pool.RefundListOfPayment(ctx, db.RefundListOfPaymentParams{
			TenantID: tenantID, PaymentID: f.PaymentID, OrderID: f.OrderID, Status: f.Status, BeforeAt: beforeAt,
			BeforeID: beforeID, LimitRows: n,
		})
	case f.OrderID != "":
		return s.pool.RefundListOfOrder(ctx, db.RefundListOfOrderParams{
			TenantID: tenantID, OrderID: f.OrderID, Status: f.Status, BeforeAt: beforeAt, BeforeID: beforeID,
			LimitRows: n,
		})
	case f.Status != "":
		return s.pool.RefundListOfStatus(ctx, db.RefundListOfStatusParams{
			TenantID: tenantID, Status: db.RefundStatus(f.Status), BeforeAt: beforeAt, BeforeID: beforeID, LimitRows: n,
		})
	}
	return s.pool.RefundList(ctx, db.RefundListParams{
		TenantID: tenantID, BeforeAt: beforeAt, BeforeID: beforeID, LimitRows: n,
	})
}
