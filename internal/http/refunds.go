package http

import (
	"net/http"
	"slices"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
)

// refundsPart: a refund is created under its payment, because it cannot exist without one,
// and read by its own id, which is what events contain.
func refundsPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{
				method: "POST", pattern: "/v1/payments/{id}/refunds",
				operation: payments.CreateRefund, parse: refundRequest,
			},
			{method: "GET", pattern: "/v1/refunds", handle: s.listRefunds, query: true},
			{method: "GET", pattern: "/v1/refunds/{id}", handle: s.getRefund},
		}
	}}
}

// refundRequest keeps "no amount" apart from any number: it means what is not refunded
// yet, which only the operation can compute, under the lock of the payment's row.
func refundRequest(r *http.Request, body []byte) (any, error) {
	var b struct {
		Amount *int64  `json:"amount"`
		Reason *string `json:"reason" nullable:"true"`
	}
	if len(body) > 0 {
		if err := decodeObject(body, &b); err != nil {
			return nil, err
		}
	}
	var c checks
	if b.Amount != nil {
		c.between("/amount", *b.Amount, 1, unitMax)
	}
	reasons := []string{"duplicate", "fraudulent", "requested_by_customer"} // Stripe accepts no others.
	if b.Reason != nil && !slices.Contains(reasons, *b.Reason) {
		c.fail("/reason", "must be duplicate, fraudulent or requested_by_customer")
	}
	return payments.RefundRequest{PaymentID: r.PathValue("id"), Amount: b.Amount, Reason: b.Reason}, c.err()
}

func (s *Server) getRefund(w http.ResponseWriter, r *http.Request) {
	refund, err := whenFinal(s, r, s.o.Payments.GetRefund, s.o.Payments.GetRefund, refundIsFinal)
	s.show(w, r, refund, err)
}

// refundIsFinal, though a bank may still send back one that succeeded.
func refundIsFinal(refund payments.Refund) bool { return refund.Status != db.RefundStatusPending }

func (s *Server) listRefunds(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "payment_id", "order_id", "status", "starting_after")
	f := payments.Filter{PaymentID: q.Get("payment_id"), OrderID: q.Get("order_id"), Status: q.Get("status")}
	if err == nil {
		err = idFilter(q, "payment_id", ids.Payment)
	}
	if err == nil {
		err = idFilter(q, "order_id", ids.Order)
	}
	if err == nil {
		err = knownStatus(f.Status, db.AllRefundStatusValues())
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Payments.ListRefunds(r.Context(), tenantOf(r).id, f, q.Get("starting_after"), limit)
	showList(s, w, r, list, more, err)
}
