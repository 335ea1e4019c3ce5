package payments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
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

// Most orders end as paid and most payments as succeeded. An index that has these would cost every payment a new entry in
// each index of two tables, so the index has the others only (listed_status), and of what is open or processing that
// which lasts (MarkLasting). The rest of a list goes along the primary key, a part at a time, and ends its page early
// rather than read on.
const (
	scanRows = 1000     // in one statement, some milliseconds
	scanMax  = 5 * 1000 // After so many a page with two objects ends: one to show, one to know that there are more.
)

// An order may have 110 KB, and who asks for a hundred of them need not want to read them. So they are read a few at a
// time, until they are many bytes.
const (
	ordersAtOnce   = 21 // one statement for a page of the usual size
	ordersBytesMax = 1 << 20
)

// span is a range of ids: from the first, to before the second. What has the status of the list is in the index if its id
// is less than the third.
type span struct{ from, before, indexed string }

// last is greater than every id.
var last = strings.Repeat("~", 8)

func (f Filter) span(kind, after string) span {
	s := span{before: last, indexed: last}
	if !f.CreatedAfter.IsZero() {
		s.from = kind + ids.Floor(wholeMilliseconds(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		s.before = kind + ids.Floor(wholeMilliseconds(f.CreatedBefore))
	}
	if after != "" {
		s.before = min(s.before, after)
	}
	return s
}

// wholeMilliseconds rounds up: what was made at or after t was made at or after that, because no time has more digits.
func wholeMilliseconds(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); whole.Before(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}

// unindexed is the part of the span that no index has, if there is one.
func (s span) unindexed() (span, bool) {
	s.from = max(s.from, s.indexed)
	return s, s.from < s.before
}

// part is what one statement returned.
type part[R any] struct {
	rows    []R
	next    string // where the next statement continues; empty: there are no more
	scanned int    // rows that were looked at
}

// list reads parts until the page is full: limit rows and one more, which shows that there are more.
func list[R, O any](
	limit int, s span, read func(span, int32) (part[R], error), full func([]R) bool, show func(R) O,
) ([]O, bool, error) {
	var rows []R
	for scanned := 0; ; {
		p, err := read(s, int32(limit+1-len(rows))) //nolint:gosec // at most 101
		if err != nil {
			return nil, false, err
		}
		rows, s.before = append(rows, p.rows...), p.next
		scanned += p.scanned
		if p.next == "" || len(rows) > limit {
			return page(rows, limit, show)
		}
		if len(rows) > 1 && (scanned >= scanMax || full(rows)) {
			return page(rows, len(rows)-1, show)
		}
	}
}

// indexed is a part that an index has: rows of which there are no more if there are fewer than n.
func indexed[R any](rows []R, n int32, id func(R) string) part[R] {
	p := part[R]{rows: rows}
	if len(rows) == int(n) {
		p.next = id(rows[len(rows)-1])
	}
	return p
}

// scannedPart is a part of a scan: the rows that match, and perhaps the last that was looked at. After it comes what the
// index has.
func scannedPart[R any](found []R, s span, id func(R) string, matches func(R) bool) part[R] {
	p := part[R]{scanned: scanRows}
	if len(found) == 0 && s.from < s.indexed {
		p.next = s.indexed
	}
	for _, row := range found {
		if matches(row) {
			p.rows = append(p.rows, row)
		}
		p.next = id(row)
	}
	return p
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
	read := func(in span, n int32) (part[db.Order], error) {
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
	in := f.span(ids.Order, after)
	switch f.Status {
	case string(db.OrderStatusOpen):
		marked, err := s.markedUntil(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("list orders: %w", err)
		}
		in.indexed = ids.Order + marked
	case string(db.OrderStatusPaid):
		in.indexed = ""
	}
	return list(limit, in, read, full, orderOf)
}

func (s *Service) ordersOf(ctx context.Context, tenantID string, f Filter, in span, n int32) (part[db.Order], error) {
	var (
		rows []db.Order
		err  error
	)
	young, scans := in.unindexed()
	switch status := db.OrderStatus(f.Status); {
	case f.CustomerReference != "":
		rows, err = s.pool.OrderListOfReference(ctx, db.OrderListOfReferenceParams{
			TenantID: tenantID, CustomerReference: f.CustomerReference, Status: f.Status, FromID: in.from,
			Before: in.before, LimitRows: n,
		})
	case status == "":
		rows, err = s.pool.OrderList(ctx, db.OrderListParams{
			TenantID: tenantID, FromID: in.from, Before: in.before, LimitRows: n,
		})
	case scans:
		found, err := s.pool.OrderListScan(ctx, db.OrderListScanParams{
			TenantID: tenantID, Status: status, ScanRows: scanRows, FromID: young.from, Before: young.before, LimitRows: n,
		})
		return scannedPart(found, in, orderID, func(r db.Order) bool { return r.Status == status }), err
	default:
		rows, err = s.pool.OrderListOfStatus(ctx, db.OrderListOfStatusParams{
			TenantID: tenantID, Status: status, FromID: in.from, Before: in.before, LimitRows: n,
		})
	}
	return indexed(rows, n, orderID), err
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
	read := func(in span, n int32) (part[db.Payment], error) {
		p, err := s.paymentsOf(ctx, tenantID, f, in, n)
		if err != nil {
			return p, fmt.Errorf("list payments: %w", err)
		}
		return p, nil
	}
	in := f.span(ids.Payment, after)
	switch f.Status {
	case string(db.PaymentStatusProcessing):
		marked, err := s.markedUntil(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("list payments: %w", err)
		}
		in.indexed = ids.Payment + marked
	case string(db.PaymentStatusSucceeded):
		in.indexed = ""
	}
	return list(limit, in, read, func([]db.Payment) bool { return false }, PaymentOf)
}

func (s *Service) paymentsOf(ctx context.Context, tenantID string, f Filter, in span, n int32) (
	part[db.Payment], error,
) {
	var (
		rows []db.Payment
		err  error
	)
	young, scans := in.unindexed()
	switch status := db.PaymentStatus(f.Status); {
	case f.OrderID != "":
		rows, err = s.pool.PaymentListOfOrder(ctx, db.PaymentListOfOrderParams{
			TenantID: tenantID, OrderID: f.OrderID, Status: f.Status, FromID: in.from, Before: in.before, LimitRows: n,
		})
	case status == "":
		rows, err = s.pool.PaymentList(ctx, db.PaymentListParams{
			TenantID: tenantID, FromID: in.from, Before: in.before, LimitRows: n,
		})
	case scans:
		found, err := s.pool.PaymentListScan(ctx, db.PaymentListScanParams{
			TenantID: tenantID, Status: status, ScanRows: scanRows, FromID: young.from, Before: young.before, LimitRows: n,
		})
		return scannedPart(found, in, paymentID, func(r db.Payment) bool { return r.Status == status }), err
	default:
		rows, err = s.pool.PaymentListOfStatus(ctx, db.PaymentListOfStatusParams{
			TenantID: tenantID, Status: status, FromID: in.from, Before: in.before, LimitRows: n,
		})
	}
	return indexed(rows, n, paymentID), err
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
	return page(rows, limit, refundOf)
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
