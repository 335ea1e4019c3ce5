package main

import (
	"net/http"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

// webhooksRepeatedAndReordered never retries the payment after the customer has
// confirmed it, so only the webhooks can complete it.
func webhooksRepeatedAndReordered(p *sceneRun) {
	order := p.createOrder(p.a, 12000, "eur")
	began := time.Now()
	p.must(p.stripe.injectWebhookFault(p.ctx, stripesim.WebhookFault{
		OrderID: order, Type: "payment_intent.requires_action",
		Kind: stripesim.WebhookDelay, Delay: 500 * time.Millisecond,
	}))
	p.must(p.stripe.injectWebhookFault(p.ctx, stripesim.WebhookFault{
		OrderID: order, Type: "payment_intent.succeeded",
		Kind: stripesim.WebhookDuplicate, Count: 3,
	}))
	waiting := p.payWith3DS(order)
	p.event("The customer confirms on the bank's page. The shop does not retry.")
	p.must(p.stripe.authenticate(p.ctx, waiting.Stripe.PaymentIntent))
	p.waitForStatus(p.b, "/v1/payments/"+waiting.ID, "succeeded")
	p.waitForWebhooks(began,
		"payment_intent.succeeded", "payment_intent.succeeded", "payment_intent.succeeded",
		"payment_intent.requires_action")
	p.payUntilFinal(p.a, p.key("pay"), order, secured)
	p.expectCharges(order, 1)
}

// waitForWebhooks waits until Stripe has delivered these, in this order, and prints them.
func (p *sceneRun) waitForWebhooks(since time.Time, want ...string) {
	for began := time.Now(); ; time.Sleep(pollInterval) {
		all, err := p.stripe.deliveriesSince(p.ctx, since)
		p.must(err)
		var types []string
		for _, d := range all {
			if d.Status == http.StatusOK && strings.HasPrefix(d.Type, "payment_intent.") &&
				d.Type != "payment_intent.created" {
				types = append(types, d.Type)
			}
		}
		switch {
		case strings.Join(types, " ") == strings.Join(want, " "):
			for _, eventType := range types {
				p.out.exchange("Stripe", "POST /v1/webhooks/stripe  "+eventType, "200, stored")
			}
			return
		case time.Since(began) > waitTimeout:
			p.fail("Stripe delivered %s, expected %s", strings.Join(types, ", "), strings.Join(want, ", "))
		}
	}
}
