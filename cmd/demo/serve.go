package main

import (
	"context"
	"fmt"
	"net/http"
)

// serve prints how to use the system, and keeps it running until ctx is cancelled.
func (s *system) serve(ctx context.Context, out *printer) {
	// The first curl line pays this order, so that it can be pasted as it is.
	order := s.shop.send(ctx, s.a, request{
		method: http.MethodPost, path: "/v1/orders", key: "tryout-order-" + s.nonce,
		body: `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":650}]}`,
	})
	if order.status != http.StatusCreated {
		out.say("\nCannot create the order for the curl lines: %s", order)
		return
	}
	other, err := createTenant(ctx, s.processes[0].Program, "other", s.service, s.dataKey)
	if err != nil {
		out.say("\nCannot %s", err)
		return
	}
	if err := s.console.enableButtons(); err != nil {
		out.say("\nCannot start the console: %s", err)
		return
	}
	out.say("\n%s\n", out.paint(bold, "It keeps running. Open these in a browser:"))
	out.fact("Console", "%s", s.console.url)
	out.fact("Docs", "%s", s.docsURL())
	out.fact("Operator", "%s", s.operatorURL())
	out.say("\n%s\n", out.paint(bold, "The parts:"))
	for _, p := range s.processes {
		out.fact("API "+p.endpoint.name, "%s", p.url)
	}
	out.fact("API key", "%s", s.tenant.APIKey)
	out.fact("Metrics", "http://%s/metrics", s.processes[0].Admin)
	out.fact("Stripe", "%s/effects, every charge and refund at the simulated Stripe", s.stripe.admin)
	out.fact("Broker", "%s, stream PAYONCE", s.broker.url())
	out.fact("PostgreSQL", "psql '%s'", s.dsn)
	out.fact("Data key", "DATA_KEY=%s, for api audit and -against", s.dataKey)
	s.sayCurlLines(out, order.object().ID)
	out.say("\n  Ask this API what it promises about keys (docs/idemcheck.md):\n")
	out.say("export PAYONCE_API_KEY=%s PAYONCE_OTHER_API_KEY=%s STRIPESIM_ADMIN=%s", s.tenant.APIKey, other.APIKey, s.stripe.admin)
	out.say("go run ./cmd/idemcheck -profile cmd/idemcheck/payonce.yaml %s", s.a.url)
	out.say("\nCtrl-C ends it and deletes its data.")
	<-ctx.Done()
}

func (s *system) docsURL() string { return s.b.url + "/docs" }

// operatorURL is process B's: the console kills A.
func (s *system) operatorURL() string { return "http://" + s.processAt(s.b).Admin + "/operator" }

func (s *system) sayCurlLines(out *printer, order string) {
	out.say("\n  For the README's requests:\n")
	out.say("export API=%s API_KEY=%s", s.a.url, s.tenant.APIKey)
	curl := fmt.Sprintf("curl -i -H 'Authorization: Bearer %s'", s.tenant.APIKey)
	pay := func(to *endpoint, method string) {
		out.say("%s -H 'Idempotency-Key: my-first-key' -H 'Content-Type: application/json'"+
			" -d '{\"order_id\":\"%s\",\"payment_method\":\"%s\"}' %s/v1/payments", curl, order, method, to.url)
	}
	out.say("\n  Pay an order. Run the line twice: the second response is the stored one, and nothing is charged:\n")
	pay(s.a, visa)
	out.say("\n  The same key with another body is rejected (422), by the other process too:\n")
	pay(s.b, mastercard)
	out.say("\n  The order:\n")
	out.say("%s %s/v1/orders/%s", curl, s.a.url, order)
}
