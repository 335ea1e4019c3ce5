package main

import (
	"context"
	"fmt"
	"net/http"
)

// serve keeps everything running until ctx ends, and says how to use it.
func (s *system) serve(ctx context.Context, out *printer) {
	order := s.shop.send(ctx, s.a, request{method: http.MethodPost, path: "/v1/orders", key: "tryout-order-" + s.nonce, body: `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":650}]}`})
	if order.status != http.StatusCreated {
		out.say("\nThe order for the lines below could not be made: %s", order)
		return
	}
	id := order.object().ID
	curl := fmt.Sprintf("curl -i -H 'Authorization: Bearer %s'", s.tenant.APIKey)
	if err := s.console.ready(); err != nil {
		out.say("\nThe console is not ready: %s", err)
		return
	}
	out.say("\n%s\n", out.paint(bold, "It keeps running. Try it:"))
	out.fact("Console", "%s", s.console.url)
	for _, p := range s.processes {
		out.fact("API "+p.door.name, "%s", p.url)
	}
	out.fact("Docs", "%s/docs", s.a.url)
	out.fact("Metrics", "http://%s/metrics", s.processes[0].Admin)
	out.fact("Stripe", "%s/effects, everything that happened to anybody's money", s.stripe.admin)
	out.fact("Broker", "%s, stream PAYONCE", s.broker.url())
	out.fact("API key", "%s", s.tenant.APIKey)
	out.fact("PostgreSQL", "psql '%s'", s.dsn)
	out.say("\n  Pay an order. Send the line again, and it is replayed, not paid again:\n")
	out.say("%s -H 'Idempotency-Key: my-first-key' -H 'Content-Type: application/json' -d '{\"order_id\":\"%s\",\"payment_method\":\"pm_card_visa\"}' %s/v1/payments", curl, id, s.a.url)
	out.say("\n  The same key for something else is refused, also by the other process:\n")
	out.say("%s -H 'Idempotency-Key: my-first-key' -H 'Content-Type: application/json' -d '{\"order_id\":\"%s\",\"payment_method\":\"pm_card_mastercard\"}' %s/v1/payments", curl, id, s.b.url)
	out.say("\n  What became of the order:\n")
	out.say("%s %s/v1/orders/%s", curl, s.a.url, id)
	out.say("\nCtrl-C ends it, and its data with it.")
	<-ctx.Done()
}
