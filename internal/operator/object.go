package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/postgres"
)

// Limits of one order's page. An order with more attempts than that is a client's loop,
// and its latest ones are the relevant ones.
const (
	historiesMax = 12
	paymentsMax  = 50
)

// objectPage shows one order with its payments, refunds and keys. It is reached by the
// id of any of them, because the operator has whichever the customer sent.
type objectPage struct {
	Now           time.Time
	TenantID      string
	ID            string // as requested
	Order         *db.Order
	Payments      []paymentView
	Disputes      []disputeView      // part: disputes
	Checkout      *checkout.Checkout // part: checkouts
	Work          []workItem
	Histories     []history
	Discrepancies []db.Discrepancy
	Actions       []db.OperatorAction
}

// paymentView is a payment with its refunds.
type paymentView struct {
	db.Payment
	Refunds []db.Refund
	Settled int64 // given back outside of Stripe, as an operator has said
	// Disputed: a dispute stands in the way of a refund.
	Disputed bool
}

// Refundable is the amount that can still be refunded.
func (p paymentView) Refundable() int64 {
	if p.Status != db.PaymentStatusSucceeded {
		return 0
	}
	return p.Paid() - p.AmountRefundingMinor - p.Settled
}

// Paid is what was taken: of a payment that was authorized first, what was captured.
func (p paymentView) Paid() int64 { return compare.PaidMinor(p.Payment) }

// Authorized reports whether the payment holds money on the card that is not taken yet.
func (p paymentView) Authorized() bool { return p.Status == db.PaymentStatusAuthorized }

// InPart reports whether less was captured than was authorized.
func (p paymentView) InPart() bool { return p.succeeded() && p.Paid() < p.AmountMinor }

// Open reports whether the payment has no final status yet.
func (p paymentView) Open() bool {
	return p.Status == db.PaymentStatusProcessing || p.Status == db.PaymentStatusRequiresAction
}

// isObjectID reports whether an id has a page of its own.
func isObjectID(id string) bool {
	return slices.ContainsFunc(objectPrefixes, func(prefix string) bool { return strings.HasPrefix(id, prefix) })
}

var objectPrefixes = []string{
	"ord_", "pay_", "rfd_", "chk_",
	"dsp_", // part: disputes
}

// objectHref is the address of an object's page. The tenant is part of it, because ids
// are unique within a tenant only.
func objectHref(tenantID, id string) string { return "/operator/objects/" + tenantID + "/" + id }

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	tenantID, id := r.PathValue("tenant"), r.PathValue("id")
	page, err := s.readObject(ctx, tenantID, id)
	if errors.Is(err, postgres.ErrNoRows) && strings.HasPrefix(id, "rfd_") {
		// The refund of a charge that matches no payment has no row in refunds; its
		// PaymentIntent has the history.
		key, err := s.o.Pool.OperatorOrphanRefund(ctx, db.OperatorOrphanRefundParams{TenantID: tenantID, ID: id})
		if err == nil {
			http.Redirect(w, r, "/operator/intents/"+intentOfRefundKey(key), http.StatusSeeOther)
			return
		}
	}
	if err != nil {
		s.renderReadError(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "object", page.ID, page)
}

func (s *Server) readObject(ctx context.Context, tenantID, id string) (*objectPage, error) {
	q := s.o.Pool.Queries
	p := &objectPage{TenantID: tenantID, ID: id}
	var err error
	if p.Now, err = q.OutboxNow(ctx); err != nil {
		return nil, err
	}
	orderID, err := s.orderOf(ctx, p)
	if err != nil {
		return nil, err
	}
	subject := id
	if orderID != "" {
		if err := p.readOrder(ctx, q, orderID); err != nil {
			return nil, err
		}
		subject = orderID
	}
	keys, err := q.OperatorOrderKeys(ctx, db.OperatorOrderKeysParams{
		TenantID: tenantID, OrderID: orderID, LimitRows: historiesMax,
		ID: id, // part: checkouts
	})
	if err != nil {
		return nil, err
	}
	work, err := q.OperatorWork(ctx, db.OperatorWorkParams{
		ScanMax: scanMax, LimitRows: workMax, TenantID: tenantID, ResourceID: subject, Keys: keys,
	})
	if err != nil {
		return nil, err
	}
	p.Work = withoutAdvice(workItems(work, p.Now))
	// An unfinished request may have created no object yet; its key is then not among keys.
	for _, item := range work {
		if !slices.Contains(keys, item.Key) {
			keys = append(keys, item.Key)
		}
	}
	for _, key := range keys {
		h, err := s.historyOf(ctx, tenantID, key)
		if err != nil {
			return nil, err
		}
		p.Histories = append(p.Histories, h)
	}
	p.Actions, err = q.OperatorActionsOf(ctx, db.OperatorActionsOfParams{
		Subjects: p.subjects(), LimitRows: actionsMax,
	})
	return p, err
}

// orderOf returns the order that an object belongs to; empty for a checkout that has
// not created one.
func (s *Server) orderOf(ctx context.Context, p *objectPage) (string, error) {
	q := s.o.Pool.Queries
	switch {
	case strings.HasPrefix(p.ID, "ord_"):
		return p.ID, nil
	case strings.HasPrefix(p.ID, "pay_"):
		row, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: p.TenantID, ID: p.ID})
		return row.OrderID, err
	case strings.HasPrefix(p.ID, "rfd_"):
		row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: p.TenantID, ID: p.ID})
		return row.OrderID, err
	// part: disputes {
	case strings.HasPrefix(p.ID, "dsp_"):
		row, err := q.DisputeGet(ctx, db.DisputeGetParams{TenantID: p.TenantID, ID: p.ID})
		return row.OrderID, err
	// part: disputes }
	// part: checkouts {
	case strings.HasPrefix(p.ID, "chk_"):
		found, err := s.o.Checkouts.Get(ctx, p.TenantID, p.ID)
		p.Checkout = &found
		return text(found.OrderID), err
		// part: checkouts }
	}
	return s.o.Payments.OrderOfCharge(ctx, p.TenantID, p.ID)
}

// readOrder reads the refunds of those payments only that can have any.
func (p *objectPage) readOrder(ctx context.Context, q *db.Queries, id string) error {
	order, err := q.OrderGet(ctx, db.OrderGetParams{TenantID: p.TenantID, ID: id})
	if err != nil {
		return err
	}
	p.Order = &order
	rows, err := q.PaymentListOfOrder(ctx, db.PaymentListOfOrderParams{
		TenantID: p.TenantID, OrderID: id, Before: "pay_~", LimitRows: paymentsMax,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		view := paymentView{Payment: row}
		if row.AmountRefundingMinor > 0 || row.Status == db.PaymentStatusSucceeded {
			view.Refunds, err = q.RefundsOfPayment(ctx, db.RefundsOfPaymentParams{
				TenantID: p.TenantID, PaymentID: row.ID,
			})
			if err != nil {
				return err
			}
			owed, err := q.RefundOwedGet(ctx, db.RefundOwedGetParams{TenantID: p.TenantID, PaymentID: row.ID})
			if err != nil && !errors.Is(err, postgres.ErrNoRows) {
				return err
			}
			view.Settled = owed.SettledMinor
		}
		p.Payments = append(p.Payments, view)
	}
	// part: disputes {
	if err := p.readDisputes(ctx, q, id); err != nil {
		return err
	}
	// part: disputes }
	p.Discrepancies, err = q.OperatorDiscrepancies(ctx,
		db.OperatorDiscrepanciesParams{TenantID: p.TenantID, OrderID: id})
	return err
}

// subjects are the ids under which the audit trail may have actions about this page.
func (p *objectPage) subjects() []string {
	list := []string{p.ID}
	if p.Order != nil {
		list = append(list, p.Order.ID)
	}
	for _, payment := range p.Payments {
		list = append(list, payment.ID, text(payment.IntentID))
		for _, refund := range payment.Refunds {
			list = append(list, refund.ID)
		}
	}
	for _, item := range p.Work {
		list = append(list, item.ResourceID)
	}
	return list
}

// Paid is the payment that succeeded, if one has.
func (p *objectPage) Paid() *paymentView {
	if i := slices.IndexFunc(p.Payments, paymentView.succeeded); i >= 0 {
		return &p.Payments[i]
	}
	return nil
}

func (p paymentView) succeeded() bool { return p.Status == db.PaymentStatusSucceeded }

// Unfinished is the payment without a final status, if there is one.
func (p *objectPage) Unfinished() *paymentView {
	if i := slices.IndexFunc(p.Payments, paymentView.Open); i >= 0 {
		return &p.Payments[i]
	}
	return nil
}

// Summary answers the question that most visits are about: was this customer charged,
// and how often? A discrepancy comes first, because then the rows of this database may
// be the ones that are wrong.
func (p *objectPage) Summary() string {
	if text := p.discrepancySummary(); text != "" {
		return text
	}
	paid, open := p.Paid(), p.Unfinished()
	switch {
	case paid != nil:
		text := paid.summary()
		if paid.Settled > 0 {
			text += " " + money.Format(paid.Settled, paid.Currency) + " was given back outside of Stripe."
		}
		text += paid.disputeSummary() // part: disputes
		return text
	case p.Held() != nil:
		return p.Held().heldSummary(p.Now)
	case open != nil && open.Status == db.PaymentStatusRequiresAction:
		return "Not charged yet: waiting for the customer (3-D Secure)."
	case open != nil && p.moneyMayHaveMoved():
		return "Outcome not yet known. Charged at most once."
	}
	return "Not charged."
}

// discrepancySummary is empty if no discrepancy changes the amount charged.
func (p *objectPage) discrepancySummary() string {
	for _, f := range p.Discrepancies {
		switch {
		case f.DriftMinor > 0 && p.Paid() != nil:
			return fmt.Sprintf("Charged once in this database; Stripe has %s more.",
				money.Format(f.DriftMinor, f.Currency))
		case f.DriftMinor > 0:
			return fmt.Sprintf("Not charged in this database; Stripe has %s.",
				money.Format(f.DriftMinor, f.Currency))
		case f.DriftMinor < 0:
			return fmt.Sprintf("Unclear: Stripe has %s less than this database.",
				money.Format(-f.DriftMinor, f.Currency))
		}
	}
	return ""
}

// summary of a payment that succeeded. Its refunds may be pending.
func (p paymentView) summary() string {
	amount := money.Format(p.Paid(), p.Currency)
	if p.InPart() {
		amount += ", captured of " + money.Format(p.AmountMinor, p.Currency) + " authorized"
	}
	switch pending := p.AmountRefundingMinor - p.AmountRefundedMinor; {
	case p.AmountRefundedMinor == p.Paid():
		return "Charged once and fully refunded."
	case pending > 0:
		return fmt.Sprintf("Charged once: %s, refund of %s pending.", amount, money.Format(pending, p.Currency))
	case p.AmountRefundedMinor > 0:
		return fmt.Sprintf("Charged once: %s, of which %s refunded.", amount,
			money.Format(p.AmountRefundedMinor, p.Currency))
	}
	return fmt.Sprintf("Charged once: %s.", amount)
}

// moneyMayHaveMoved is cautious: an unknown recovery point counts as moved.
func (p *objectPage) moneyMayHaveMoved() bool {
	return slices.ContainsFunc(p.Work, func(w workItem) bool {
		return w.Unknown || moneyAt(w.RecoveryPoint) != nothingMoved
	})
}

// Severity is the colour of the summary.
func (p *objectPage) Severity() string {
	switch {
	case len(p.Discrepancies) > 0, slices.ContainsFunc(p.Work, workItem.NeedsYou):
		return "bad"
	// part: disputes {
	case p.disputeNeedsYou():
		return "bad"
	case p.disputeHolds():
		return "warn"
	// part: disputes }
	case p.Unfinished() != nil, p.Held() != nil, len(p.Work) > 0:
		return "warn"
	}
	return "good"
}
