package payments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/payonce/db"
)

// Finding is a disagreement between Stripe and our rows about one object.
type Finding struct {
	Kind       db.DiscrepancyKind
	Object     string // aPaymentIntent or aRefund
	ObjectID   string // Stripe's
	TenantID   string
	OrderID    string
	PaymentID  string
	RefundID   string
	Currency   string
	DriftMinor int64 // how much more Stripe has than our rows say; negative: less
	Detail     string
}

// The kinds of Stripe objects that are compared.
const (
	aPaymentIntent = "payment_intent"
	aRefund        = "refund"
)

// ruling is the result of comparing one object.
type ruling int

const (
	agrees    ruling = iota // or nothing to compare
	inWork                  // an operation works on it and will find out; wake it
	orphaned                // money that is provably ours and has no row
	moved                   // a refund is further along at Stripe than here
	abandoned               // an intent that nobody will ever confirm
	disagrees               // a person must look
)

func (r ruling) String() string {
	switch r {
	case agrees:
		return "agrees"
	case inWork:
		return "in_work"
	case orphaned:
		return "orphaned"
	case moved:
		return "moved"
	case abandoned:
		return "abandoned"
	case disagrees:
		return "disagrees"
	}
	panic("bug: a ruling without a name")
}

// judgment is a ruling with its consequences.
type judgment struct {
	ruling  ruling
	key     string  // of inWork: the key to hurry along
	finding Finding // of orphaned and disagrees
}

// orderView is everything our rows say about one order.
type orderView struct {
	order        *db.Order // nil: there is no such order
	checkoutRuns bool      // an unfinished checkout is paying it
	payments     []paymentView
	refunds      []refundView
}

type paymentView struct {
	db.Payment
	inWork bool // it has an unfinished key that is not parked
}

type refundView struct {
	db.Refund
	inWork bool
}

// ref names an order.
type ref struct{ tenantID, orderID string }

// views reads everything about some orders.
func views(ctx context.Context, q *db.Queries, refs []ref) (map[ref]*orderView, error) {
	var tenants, orders []string
	found := map[ref]*orderView{}
	for _, r := range refs {
		if found[r] == nil {
			found[r] = &orderView{}
			tenants, orders = append(tenants, r.tenantID), append(orders, r.orderID)
		}
	}
	orderRows, err := q.ReconcileOrders(ctx, db.ReconcileOrdersParams{TenantIds: tenants, OrderIds: orders})
	if err != nil {
		return nil, fmt.Errorf("read the orders that Stripe names: %w", err)
	}
	for _, row := range orderRows {
		v := found[ref{row.Order.TenantID, row.Order.ID}]
		v.order, v.checkoutRuns = &row.Order, row.CheckoutInProgress
	}
	paymentRows, err := q.ReconcilePayments(ctx, db.ReconcilePaymentsParams{TenantIds: tenants, OrderIds: orders})
	if err != nil {
		return nil, fmt.Errorf("read their payments: %w", err)
	}
	for _, row := range paymentRows {
		v := found[ref{row.Payment.TenantID, row.Payment.OrderID}]
		v.payments = append(v.payments, paymentView{row.Payment, row.InProgress})
	}
	refundRows, err := q.ReconcileRefunds(ctx, db.ReconcileRefundsParams{TenantIds: tenants, OrderIds: orders})
	if err != nil {
		return nil, fmt.Errorf("read their refunds: %w", err)
	}
	for _, row := range refundRows {
		v := found[ref{row.Refund.TenantID, row.Refund.OrderID}]
		v.refunds = append(v.refunds, refundView{row.Refund, row.InProgress})
	}
	return found, nil
}

func (v *orderView) payment(which func(paymentView) bool) *paymentView {
	if i := slices.IndexFunc(v.payments, which); i >= 0 {
		return &v.payments[i]
	}
	return nil
}

func (v *orderView) live() *paymentView {
	return v.payment(func(p paymentView) bool {
		return p.Status == db.PaymentStatusProcessing || p.Status == db.PaymentStatusRequiresAction
	})
}

func (v *orderView) paid() *paymentView {
	return v.payment(func(p paymentView) bool { return p.Status == db.PaymentStatusSucceeded })
}

func (p *paymentView) uses(intentID string) bool { return p.IntentID != nil && *p.IntentID == intentID }

// judgeIntent compares a PaymentIntent with our rows of its order. If it is wrong,
// what it leads to is still subject to the constraints of the rows.
func judgeIntent(i Intent, v *orderView) judgment {
	paid := v.paid()
	switch {
	case paid != nil && paid.uses(i.ID) && i.Status != IntentSucceeded:
		f := findingOf(i, v, db.DiscrepancyKindMissingAtStripe, -paid.AmountMinor, "succeeded here, and is not there at Stripe")
		if i.Status != "" {
			f.Detail = fmt.Sprintf("succeeded here, and is %s at Stripe", i.Status)
		}
		f.PaymentID, f.Currency = paid.ID, paid.Currency
		return judgment{ruling: disagrees, finding: f}
	case paid != nil && paid.uses(i.ID) && (i.ReceivedMinor != paid.AmountMinor || i.Currency != paid.Currency):
		f := findingOf(i, v, db.DiscrepancyKindAmountMismatch, i.ReceivedMinor-paid.AmountMinor,
			fmt.Sprintf("%d %s here, %d %s at Stripe", paid.AmountMinor, paid.Currency, i.ReceivedMinor, i.Currency))
		f.PaymentID = paid.ID
		return judgment{ruling: disagrees, finding: f}
	case i.Status == IntentSucceeded && (paid == nil || !paid.uses(i.ID)):
		return judgeGhost(i, v)
	}
	return judgment{ruling: agrees}
}

// judgeGhost judges money that belongs to no payment of ours.
func judgeGhost(i Intent, v *orderView) judgment {
	net := i.ReceivedMinor - i.RefundedMinor
	ghost := func(detail string) judgment {
		return judgment{ruling: disagrees, finding: findingOf(i, v, db.DiscrepancyKindUnmatchedAtStripe, net, detail)}
	}
	live, paid := v.live(), v.paid()
	switch {
	case live != nil && (live.IntentID == nil || live.uses(i.ID)):
		j := ghost(fmt.Sprintf("paid at Stripe, %s here, and nobody works on it", live.Status))
		j.key, j.finding.PaymentID = live.IdempotencyKey, live.ID
		if live.inWork {
			j.ruling = inWork
		}
		return j
	case net == 0:
		return judgment{ruling: agrees} // It was refunded already.
	case v.order == nil:
		return ghost("paid at Stripe, and the order is not here")
	case v.checkoutRuns || v.order.Status == db.OrderStatusOpen && v.order.CancelingKey != nil:
		return judgment{ruling: inWork}
	case live != nil:
		return ghost("paid at Stripe while another payment of the order is under way: " + live.ID)
	case paid != nil:
		return ghost(fmt.Sprintf("the order is paid a second time, after %s with %s", paid.ID, *paid.IntentID))
	case i.AmountMinor != v.order.AmountMinor || i.ReceivedMinor != v.order.AmountMinor || i.Currency != v.order.Currency:
		return judgment{ruling: disagrees, finding: findingOf(i, v, db.DiscrepancyKindAmountMismatch, net,
			fmt.Sprintf("the order is of %d %s, and %d %s was paid", v.order.AmountMinor, v.order.Currency, i.ReceivedMinor, i.Currency))}
	case v.order.Status == db.OrderStatusOpen, v.order.Status == db.OrderStatusCanceled && i.RefundedMinor == 0:
		j := ghost("paid at Stripe, and no payment here")
		j.ruling = orphaned
		return j
	}
	return ghost("paid at Stripe, and the order is " + string(v.order.Status))
}

func findingOf(i Intent, v *orderView, kind db.DiscrepancyKind, drift int64, detail string) Finding {
	f := Finding{Kind: kind, Object: aPaymentIntent, ObjectID: i.ID, TenantID: i.TenantID, OrderID: i.OrderID, Currency: i.Currency, DriftMinor: drift, Detail: detail}
	if v.order != nil && f.Currency == "" {
		f.Currency = v.order.Currency
	}
	return f
}

// judgeRefund compares a refund at Stripe with our rows of its order.
func judgeRefund(r StripeRefund, v *orderView) judgment {
	i := slices.IndexFunc(v.refunds, func(row refundView) bool { return r.is(row.Refund) })
	if i < 0 {
		return judgeUnknownRefund(r, v)
	}
	row := v.refunds[i]
	f := Finding{
		Object: aRefund, ObjectID: r.ID, TenantID: row.TenantID, OrderID: row.OrderID, PaymentID: row.PaymentID, RefundID: row.ID, Currency: row.Currency,
		Kind: db.DiscrepancyKindStatusMismatch, DriftMinor: given(row.Status, row.AmountMinor) - given(r.Status, r.AmountMinor),
		Detail: fmt.Sprintf("refund %s here, %s at Stripe", row.Status, r.Status),
	}
	_, _, applies := refundMoves(row.Status, r.Status, row.AmountMinor)
	switch {
	case r.Status != "" && (r.AmountMinor != row.AmountMinor || r.Currency != row.Currency):
		f.Kind, f.Detail = db.DiscrepancyKindAmountMismatch, fmt.Sprintf("refund of %d %s here, %d %s at Stripe", row.AmountMinor, row.Currency, r.AmountMinor, r.Currency)
		return judgment{ruling: disagrees, finding: f}
	case row.Status == r.Status:
		return judgment{ruling: agrees}
	case row.Status == db.RefundStatusPending && row.inWork:
		return judgment{ruling: inWork, key: row.IdempotencyKey, finding: f}
	case applies:
		return judgment{ruling: moved, finding: f}
	case r.Status == "":
		f.Kind, f.Detail = db.DiscrepancyKindMissingAtStripe, fmt.Sprintf("refund %s here, and not there at Stripe", row.Status)
	}
	if f.DriftMinor == 0 {
		return judgment{ruling: agrees} // Failed here and canceled there: no money moved either way.
	}
	return judgment{ruling: disagrees, finding: f}
}

// judgeUnknownRefund judges a refund that has no row here.
func judgeUnknownRefund(r StripeRefund, v *orderView) judgment {
	paid := v.paid()
	if given(r.Status, 1) == 0 && r.Status != db.RefundStatusPending || paid == nil || !paid.uses(r.IntentID) {
		return judgment{ruling: agrees} // No money moved, or the payment is the finding and its drift includes this refund.
	}
	f := Finding{
		Kind: db.DiscrepancyKindUnmatchedAtStripe, Object: aRefund, ObjectID: r.ID, TenantID: paid.TenantID, OrderID: paid.OrderID, PaymentID: paid.ID, RefundID: r.RefundID,
		Currency: r.Currency, DriftMinor: -given(r.Status, r.AmountMinor), Detail: "refunded at Stripe, and no refund here",
	}
	if slices.ContainsFunc(v.refunds, func(row refundView) bool { return row.ID == r.RefundID }) {
		f.Detail = "refunded at Stripe a second time in the name of " + r.RefundID
		return judgment{ruling: disagrees, finding: f}
	}
	ours := isID(refundID, r.RefundID) && r.TenantID == paid.TenantID && r.OrderID == paid.OrderID && r.PaymentID == paid.ID
	if ours && r.Currency == paid.Currency && r.AmountMinor <= paid.AmountMinor-paid.AmountRefundingMinor {
		return judgment{ruling: orphaned, finding: f}
	}
	return judgment{ruling: disagrees, finding: f}
}

// given is how much of a refund's amount has moved.
func given(status db.RefundStatus, amount int64) int64 {
	if status == db.RefundStatusSucceeded {
		return amount
	}
	return 0
}

// lockedView reads an order and locks it, if it exists, so that no payment of it can
// begin before the transaction ends.
func lockedView(ctx context.Context, q *db.Queries, r ref) (*orderView, error) {
	_, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: r.tenantID, ID: r.orderID})
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("lock order %s: %w", r.orderID, err)
	}
	found, err := views(ctx, q, []ref{r})
	if err != nil {
		return nil, err
	}
	return found[r], nil
}
