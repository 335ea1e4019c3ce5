package main

import (
	"net/http"
	"strings"
	"time"

	"example.com/payonce/stripesim"
)

// webhooksStutter has the customer act when nobody asks any more: only Stripe's
// webhooks can tell, and they come late, twice too often and in the wrong order.
func webhooksStutter(p *show) {
	order := p.order(p.a, 12000, "eur")
	began := time.Now()
	p.must(p.stripe.bend(p.ctx, stripesim.WebhookFault{OrderID: order, Type: "payment_intent.requires_action", Kind: stripesim.WebhookDelay, Delay: 500 * time.Millisecond}))
	p.must(p.stripe.bend(p.ctx, stripesim.WebhookFault{OrderID: order, Type: "payment_intent.succeeded", Kind: stripesim.WebhookDuplicate, Count: 3}))
	waiting := p.waiting(order)
	p.event("The customer confirms on the bank's page, and the shop does not ask again.")
	p.must(p.stripe.authenticate(p.ctx, waiting.Stripe.PaymentIntent))
	p.until(p.b, "/v1/payments/"+waiting.ID, "succeeded")
	p.webhooks(began, "payment_intent.succeeded", "payment_intent.succeeded", "payment_intent.succeeded", "payment_intent.requires_action")
	p.paid(p.a, p.key("pay"), order, secured)
	p.charged(order, 1)
}

// webhooks waits until Stripe has sent these, in this order, and prints them.
func (p *show) webhooks(since time.Time, want ...string) {
	for began := time.Now(); ; time.Sleep(askAgain) {
		all, err := p.stripe.delivered(p.ctx, since)
		p.must(err)
		var came []stripesim.Delivery
		var types []string
		for _, d := range all {
			if d.Status == http.StatusOK && d.Type != "payment_intent.created" && strings.HasPrefix(d.Type, "payment_intent.") {
				came, types = append(came, d), append(types, d.Type)
			}
		}
		switch {
		case strings.Join(types, " ") == strings.Join(want, " "):
			for _, d := range came {
				p.out.exchange("Stripe", "POST /v1/webhooks/stripe  "+d.Type, "200, stored")
			}
			return
		case time.Since(began) > patience:
			p.fail("Stripe delivered %s, not %s", strings.Join(types, ", "), strings.Join(want, ", "))
		}
	}
}
