package http

import (
	"errors"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
)

// The problem is declared here and not in problem_types.go, so that a service without
// checkouts does not document a problem that it never returns.
const codeOutOfStock = "out-of-stock"

// checkoutsPart is the part to leave out if orders are paid without a saga. Its file and
// stock.go go with it, and nothing else here refers to them.
func checkoutsPart() part {
	return part{
		routes: func(s *Server) []route {
			return append([]route{
				{method: "POST", pattern: "/v1/checkouts", operation: checkout.Create, parse: checkoutRequest},
				{method: "GET", pattern: "/v1/checkouts", handle: s.listCheckouts, query: true},
				{method: "GET", pattern: "/v1/checkouts/{id}", handle: s.getCheckout},
			}, s.stockRoutes()...)
		},
		served:     func(s *Server) bool { return s.o.Checkouts != nil },
		problems:   checkoutProblems,
		problemFor: checkoutProblem,
	}
}

// checkoutRequest is an order without metadata, and the payment method.
func checkoutRequest(_ *http.Request, body []byte) (any, error) {
	var b struct {
		Currency          *string      `json:"currency"`
		Items             *[]*itemBody `json:"items"`
		PaymentMethod     *string      `json:"payment_method"`
		CustomerReference *string      `json:"customer_reference" nullable:"true"`
		Capture           *string      `json:"capture"`
	}
	if err := decodeObject(body, &b); err != nil {
		return nil, err
	}
	var c checks
	// The order is validated like one of POST /v1/orders, so that a checkout cannot create
	// an order that would be refused there.
	order := orderBody{Currency: b.Currency, Items: b.Items, CustomerReference: b.CustomerReference}.check(&c)
	return checkout.Request{
		Currency: order.Currency, Items: order.Items, CustomerReference: order.CustomerReference,
		PaymentMethod: paymentMethod(&c, b.PaymentMethod), ManualCapture: manualCapture(&c, b.Capture),
	}, c.err()
}

func (s *Server) getCheckout(w http.ResponseWriter, r *http.Request) {
	shown, err := whenFinal(s, r, s.o.Checkouts.Get, s.o.Checkouts.Status, checkoutIsFinal)
	s.show(w, r, shown, err)
}

func checkoutIsFinal(status db.CheckoutStatus) bool { return status != db.CheckoutStatusProcessing }

func (s *Server) listCheckouts(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "status", "starting_after")
	status := db.CheckoutStatus(q.Get("status"))
	if err == nil {
		err = knownStatus(string(status), db.AllCheckoutStatusValues())
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	list, more, err := s.o.Checkouts.List(r.Context(), tenantOf(r).id, status, q.Get("starting_after"), limit)
	showList(s, w, r, list, more, err)
}

var checkoutProblems = []problemType{
	{Code: codeOutOfStock, Title: "Out of stock", Status: http.StatusConflict, Stored: true},
}

// checkoutProblem adds the checkout to the problem that ended it, so that the client
// sees which steps were compensated without another request.
func checkoutProblem(err error) *problem {
	var stock *checkout.OutOfStockError
	if errors.As(err, &stock) {
		return &problem{code: codeOutOfStock, detail: stock.Checkout.Failure.Message, checkout: &stock.Checkout}
	}
	var failed *checkout.PaymentFailedError
	if errors.As(err, &failed) {
		p := paymentProblem(&failed.PaymentError)
		p.detail, p.checkout = failed.Checkout.Failure.Message, &failed.Checkout
		return p
	}
	return nil
}
