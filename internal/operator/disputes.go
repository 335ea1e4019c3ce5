package operator

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const disputesMax = 50

// disputesPanel shows the disputes that have not ended.
type disputesPanel struct {
	panel
	Counts db.OperatorDisputeCountsRow
	List   []disputeView
}

func (d *disputesPanel) read(ctx context.Context, q *db.Queries, now time.Time) (err error) {
	if d.Counts, err = q.OperatorDisputeCounts(ctx, scanMax); err != nil {
		return err
	}
	rows, err := q.OperatorDisputes(ctx, db.OperatorDisputesParams{ScanMax: scanMax, LimitRows: disputesMax})
	for _, row := range rows {
		movements, err := movementsOf(ctx, q, row)
		if err != nil {
			return err
		}
		p, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: row.TenantID, ID: row.PaymentID})
		if err != nil {
			return err
		}
		d.List = append(d.List, disputeView{Dispute: row, Now: now, Fees: fees(movements), Refunded: fullyRefunded(p)})
	}
	return err
}

func movementsOf(ctx context.Context, q *db.Queries, row db.Dispute) ([]db.DisputeMovement, error) {
	return q.DisputeMovements(ctx, db.DisputeMovementsParams{TenantID: row.TenantID, DisputeID: row.ID})
}

// fees are what Stripe charges for a dispute, in the currency in which the account is settled; empty for none.
func fees(movements []db.DisputeMovement) string {
	sums := map[string]int64{}
	for _, m := range movements {
		if m.FeeMinor != 0 {
			sums[m.Currency] += m.FeeMinor
		}
	}
	var list []string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, money.Format(sums[currency], currency))
	}
	return strings.Join(list, ", ")
}

// disputeView is a dispute, and on the page of its order its movements.
type disputeView struct {
	db.Dispute
	Now       time.Time
	Fees      string
	Refunded  bool // the payment, in full
	Movements []db.DisputeMovement
}

func fullyRefunded(p db.Payment) bool { return p.AmountRefundedMinor >= compare.PaidMinor(p) }

// readDisputes reads the disputes of an order, newest first.
func (p *objectPage) readDisputes(ctx context.Context, q *db.Queries, orderID string) error {
	rows, err := q.DisputeListOfOrder(ctx, db.DisputeListOfOrderParams{
		TenantID: p.TenantID, OrderID: orderID, LimitRows: disputesMax,
		BeforeAt: p.Now.AddDate(1, 0, 0), // Stripe wrote the times, and its clock may be ahead.
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		movements, err := movementsOf(ctx, q, row)
		if err != nil {
			return err
		}
		refunded := slices.ContainsFunc(p.Payments, func(v paymentView) bool {
			return v.ID == row.PaymentID && fullyRefunded(v.Payment)
		})
		p.Disputes = append(p.Disputes,
			disputeView{Dispute: row, Now: p.Now, Fees: fees(movements), Refunded: refunded, Movements: movements})
	}
	for i, payment := range p.Payments {
		p.Payments[i].Disputed, err = q.DisputeStandsInTheWay(ctx, db.DisputeStandsInTheWayParams{
			TenantID: p.TenantID, PaymentID: payment.ID,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// disputeNeedsYou reports whether a dispute of the order needs a response.
func (p *objectPage) disputeNeedsYou() bool {
	return slices.ContainsFunc(p.Disputes, disputeView.NeedsYou)
}

// disputeHolds reports whether a bank has withdrawn money of the order, and not given it back.
func (p *objectPage) disputeHolds() bool {
	return slices.ContainsFunc(p.Payments, func(v paymentView) bool { return v.AmountDisputedMinor > 0 })
}

// disputeSummary says what disputes hold of the payment; empty for nothing.
func (p paymentView) disputeSummary() string {
	if p.AmountDisputedMinor == 0 {
		return ""
	}
	return " Withdrawn by the bank: " + money.Format(p.AmountDisputedMinor, p.Currency) + "."
}

// Inquiry reports whether the bank only asks, and has withdrawn nothing.
func (d disputeView) Inquiry() bool {
	return slices.Contains([]string{"warning_needs_response", "warning_under_review", "warning_closed"}, d.Status)
}

// NeedsYou reports whether the bank waits for a response. Nothing here can give it. An inquiry about a payment that is
// refunded in full needs none: no further money can be withdrawn.
func (d disputeView) NeedsYou() bool {
	return d.Status == "needs_response" || d.Status == "warning_needs_response" && !d.Refunded
}

// Severity is the colour of the dispute.
func (d disputeView) Severity() string {
	switch {
	case d.NeedsYou() || d.Status == "lost":
		return "bad"
	case d.Watched:
		return "warn"
	}
	return "good"
}

// Until says how long there is to respond.
func (d disputeView) Until() string {
	switch {
	case !d.NeedsYou():
		return ""
	case d.EvidenceDueBy == nil:
		return "The bank accepts no response: accept the dispute in Stripe’s dashboard."
	case d.EvidenceDueBy.Before(d.Now):
		return "The deadline passed " + span(d.Now.Sub(*d.EvidenceDueBy)) + " ago. Stripe decides without a response."
	}
	if d.Inquiry() {
		return "Respond within " + span(d.EvidenceDueBy.Sub(d.Now)) + "; after that it may become a dispute."
	}
	return "Respond within " + span(d.EvidenceDueBy.Sub(d.Now)) + "; after that it is lost without a response."
}

// Next says what happens next, or what has happened.
func (d disputeView) Next() string {
	switch d.Status {
	case "needs_response":
		return "Evidence is submitted in Stripe’s dashboard, once: everything in one response. If the " +
			"customer is right, accept the dispute there: contesting it may cost a further fee."
	case "warning_needs_response":
		if d.Refunded {
			return "The payment is fully refunded, so nothing more is withdrawn. The bank closes the inquiry."
		}
		return "The bank asks first, and has withdrawn nothing. A full refund ends most inquiries; otherwise respond in " +
			"Stripe’s dashboard."
	case "under_review", "warning_under_review":
		return "The response was submitted. The bank decides, usually within two to three months."
	case "won":
		if d.WithdrawnMinor > 0 {
			return "Won. The money is not back yet."
		}
		return "Won. The money is back."
	case "lost":
		return "Lost. The money stays with the customer."
	case "warning_closed":
		return "The inquiry was closed. Nothing was withdrawn."
	}
	return "Look at it in Stripe’s dashboard."
}

// Evidence is what convinces a bank, by the reason that it gives.
func (d disputeView) Evidence() string {
	if !d.NeedsYou() || d.EvidenceDueBy == nil {
		return ""
	}
	switch d.Reason {
	case "fraudulent", "unrecognized":
		return "Proof that the cardholder bought it: name, e-mail and IP address of the order, 3-D Secure, matching " +
			"addresses of billing and delivery, a signed delivery, earlier undisputed orders of the same " +
			"customer."
	case "product_not_received":
		return "Proof that it was delivered: carrier, tracking number, date and address of the delivery; of a " +
			"service, the log of its use. If the delivery is not due yet, the date that was agreed."
	case "product_unacceptable":
		return "Proof that it was as described: the description at the time of the order, photos, the correspondence " +
			"with the customer, your terms for returns, and that nothing was sent back."
	case "duplicate":
		return "Proof that there were two purchases: receipts and deliveries of both orders. Look whether the " +
			"customer was charged twice; if so, accept the dispute."
	case "subscription_canceled":
		return "Proof that it was not canceled before the charge: the terms that the customer accepted, the reminder " +
			"that was sent, the use after the charge."
	case "credit_not_processed":
		return "Proof that no refund was due, by the terms that the customer accepted, or that it was made: the " +
			"refund’s id and date. A refund that was due and not made: accept the dispute."
	case "incorrect_account_details", "insufficient_funds", "bank_cannot_process", "debit_not_authorized",
		"check_returned", "customer_initiated":
		return "Proof that the customer agreed to the debit: the mandate, name and date. Most of these cannot be " +
			"won; ask the customer for another way to pay."
	}
	return "What the bank’s letter asks for (it is in Stripe’s dashboard): the order, its delivery, the terms " +
		"that the customer accepted, and the correspondence."
}

// Dashboard is the dispute's address in Stripe's dashboard, where the response is written.
func (d disputeView) Dashboard() string {
	return "https://dashboard.stripe.com/disputes/" + d.StripeDisputeID
}

// stripeDisputeID is what a dispute's id looks like at Stripe.
var stripeDisputeID = regexp.MustCompile(`^(du|dp)_[A-Za-z0-9]{8,64}$`)

// findDispute redirects to a dispute by Stripe's id. False: no dispute has it, or err.
func (s *Server) findDispute(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) (bool, error) {
	row, err := s.o.Pool.DisputeOfStripeID(ctx, id)
	if errors.Is(err, postgres.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	redirect(w, r, objectHref(row.TenantID, row.ID))
	return true, nil
}

// refuseIfDisputed is a refusal if a dispute of the payment stands in the way of a refund. It is
// checked again when the refund is recorded, with the payment locked.
func (s *Server) refuseIfDisputed(ctx context.Context, p db.Payment) error {
	disputed, err := s.o.Pool.DisputeStandsInTheWay(ctx, db.DisputeStandsInTheWayParams{
		TenantID: p.TenantID, PaymentID: p.ID,
	})
	if err == nil && disputed {
		err = refusal(payments.ErrPaymentDisputed.Error())
	}
	return err
}
