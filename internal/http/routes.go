package http

import (
	"net/http"

	"example.com/payonce/internal/payments"
)

// route is one line of the API. A POST names its operation and how its request is
// parsed, or says why it needs no key. There is no third way:
// TestEveryPostDeclaresItsIdempotency sees to that.
type route struct {
	method, pattern string

	operation string // of a POST with an Idempotency-Key
	parse     parse
	handle    http.HandlerFunc // of everything else

	// open routes need no API key. keyless says why a POST needs no
	// Idempotency-Key.
	open    bool
	keyless string
}

func (s *Server) routes() []route {
	return append([]route{
		{method: "POST", pattern: "/v1/orders", operation: payments.CreateOrder, parse: orderRequest},
		{method: "GET", pattern: "/v1/orders", handle: s.listOrders},
		{method: "GET", pattern: "/v1/orders/{id}", handle: s.getOrder},
		{method: "POST", pattern: "/v1/orders/{id}/cancel", operation: payments.CancelOrder, parse: cancelRequest},
		{method: "POST", pattern: "/v1/payments", operation: payments.CreatePayment, parse: paymentRequest},
		{method: "GET", pattern: "/v1/payments", handle: s.listPayments},
		{method: "GET", pattern: "/v1/payments/{id}", handle: s.getPayment},
		{method: "POST", pattern: "/v1/payments/{id}/cancel", operation: payments.CancelPayment, parse: cancelRequest},
		{method: "POST", pattern: "/v1/payments/{id}/refunds", operation: payments.CreateRefund, parse: refundRequest},
		{method: "GET", pattern: "/v1/refunds/{id}", handle: s.getRefund},
		{method: "POST", pattern: "/v1/checkouts", operation: payments.CreateCheckout, parse: checkoutRequest},
		{method: "GET", pattern: "/v1/checkouts/{id}", handle: s.getCheckout},
		{method: "PUT", pattern: "/v1/stock/{sku}", handle: s.setStock},
		{method: "GET", pattern: "/v1/stock/{sku}", handle: s.getStock},

		{method: "GET", pattern: "/v1/idempotency-keys/{key}", handle: s.getKey},
		{method: "GET", pattern: "/v1/events", handle: s.listEvents},
		{method: "POST", pattern: "/v1/webhooks/stripe", handle: s.stripeWebhook, open: true, keyless: "Stripe's event id is its key"},

		{method: "GET", pattern: "/healthz", handle: s.healthz, open: true},
		{method: "GET", pattern: "/readyz", handle: s.readyz, open: true},
	}, docsRoutes(s.o.Retention, s.notFound)...)
}
