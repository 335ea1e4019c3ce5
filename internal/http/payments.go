package http

import (
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/cards"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
)

const methodMax = 255 // Stripe's limit for the length of an id; our ids are shorter

// paymentsPart: POST /v1/payments is where money moves. This file checks its form;
// idempotency.go claims the key and calls the operation.
func paymentsPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{method: "POST", pattern: "/v1/payments", operation: payments.CreatePayment, parse: paymentRequest},
			{method: "GET", pattern: "/v1/payments", handle: s.listPayments, query: true},
			{method: "GET", pattern: "/v1/payments/{id}", handle: s.getPayment},
			{
				method: "POST", pattern: "/v1/payments/{id}/capture",
				operation: payments.CapturePayment, parse: captureRequest,
			},
			{
				method: "POST", pattern: "/v1/payments/{id}/cancel",
				operation: payments.CancelPayment, parse: pathRequest,
			},
		}
	}}
}

// paymentRequest is the request of CreatePayment. There is no amount in it: the amount
// is the order's, so that a client cannot charge a different one.
func paymentRequest(_ *http.Request, body []byte) (any, error) {
	var b struct {
		OrderID       *string `json:"order_id"`
		PaymentMethod *string `json:"payment_method"`
		Capture       *string `json:"capture"`
	}
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var (
		c   checks
		req payments.PayRequest
	)
	if b.OrderID == nil {
		c.fail("/order_id", "is required")
	} else {
		c.text("/order_id", *b.OrderID, 1, methodMax)
		req.OrderID = *b.OrderID
	}
	req.PaymentMethod = paymentMethod(&c, b.PaymentMethod)
	req.ManualCapture = manualCapture(&c, b.Capture)
	return req, c.err()
}

func manualCapture(c *checks, capture *string) bool {
	if capture == nil {
		return false
	}
	switch payments.Capture(*capture) {
	case payments.CaptureAutomatic:
	case payments.CaptureManual:
		return true
	default:
		c.fail("/capture", "must be automatic or manual")
	}
	return false
}

// captureRequest keeps "no amount" apart from any number: it means all that is authorized. An empty body is accepted, as
// by a cancel.
func captureRequest(r *http.Request, body []byte) (any, error) {
	var b struct {
		Amount *int64 `json:"amount"`
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
	return payments.CaptureRequest{PaymentID: r.PathValue("id"), Amount: b.Amount}, c.err()
}

// paymentMethod checks the form only; Stripe checks whether it exists. Stripe's ids
// begin with a letter. A value that begins with a digit may be a card number, which must
// not be stored, logged or passed on.
func paymentMethod(c *checks, method *string) string {
	if method == nil {
		c.fail("/payment_method", "is required")
		return ""
	}
	c.text("/payment_method", *method, 1, methodMax)
	if *method != "" && !letter((*method)[0]) {
		c.fail("/payment_method", "must be the id of a payment method, which begins with a letter; never a card number")
	}
	if cards.NumberInID(*method) {
		c.fail("/payment_method", cardMessage)
	}
	for _, r := range *method {
		if r <= ' ' || r > '~' {
			c.fail("/payment_method", "must consist of visible ASCII characters")
			break
		}
	}
	return *method
}

func letter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

func (s *Server) getPayment(w http.ResponseWriter, r *http.Request) {
	payment, err := whenFinal(s, r, s.o.Payments.GetPayment, s.o.Payments.GetPayment, paymentIsFinal)
	s.show(w, r, forReader(r, payment), err)
}

// forReader is a payment without what its customer acts with, if the API key may only read: with a client secret somebody
// can pay, and it may not leave the tenant's server with a key of a dashboard.
func forReader(r *http.Request, p payments.Payment) payments.Payment {
	if tenantOf(r).readOnly {
		p.NextAction = payments.WithoutSecret(p.NextAction)
	}
	return p
}

// paymentIsFinal: what remains is done on request, or not at all.
func paymentIsFinal(p payments.Payment) bool {
	return p.Status != db.PaymentStatusProcessing && p.Status != db.PaymentStatusRequiresAction
}

func (s *Server) listPayments(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "order_id", "status", "created_after", "created_before", "starting_after")
	f := payments.Filter{Status: q.Get("status"), OrderID: q.Get("order_id")}
	if err == nil {
		err = idFilter(q, "order_id", ids.Order)
	}
	if err == nil {
		err = knownStatus(f.Status, db.AllPaymentStatusValues())
	}
	if err == nil {
		f.CreatedAfter, f.CreatedBefore, err = interval(q)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Payments.ListPayments(r.Context(), tenantOf(r).id, f, q.Get("starting_after"), limit)
	for i := range list {
		list[i] = forReader(r, list[i])
	}
	showList(s, w, r, list, more, err)
}
