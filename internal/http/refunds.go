package http

import (
	"net/http"
	"slices"

	"example.com/payonce/internal/payments"
)

func refundsPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{
				method: "POST", pattern: "/v1/payments/{id}/refunds",
				operation: payments.CreateRefund, parse: refundRequest,
			},
			{method: "GET", pattern: "/v1/refunds/{id}", handle: s.getRefund},
		}
	}}
}

// refundRequest keeps "no amount" apart from any number: it means what is not refunded
// yet, which only the operation can compute, under the lock of the payment's row.
func refundRequest(r *http.Request, body []byte) (any, error) {
	var b struct {
		Amount *int64  `json:"amount"`
		Reason *string `json:"reason"`
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
	refund, err := s.o.Payments.GetRefund(r.Context(), tenantOf(r).id, r.PathValue("id"))
	s.show(w, r, refund, err)
}
