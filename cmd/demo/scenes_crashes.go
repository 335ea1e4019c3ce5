package main

import (
	"net/http"

	"example.com/payonce/internal/stripesim"
)

func stripesAnswerGetsLost(p *show) {
	order := p.order(p.a, 6400, "usd")
	p.must(p.stripe.inject(p.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Drop}))
	lost := p.pay(p.a, p.key("pay"), order, visa)
	p.expect(lost, http.StatusAccepted, "processing")
	p.charged(order, 1)
	p.event("The answer says what is known: processing. Nobody guesses, nothing is sent twice; the completer asks Stripe.")
	p.until(p.b, "/v1/payments/"+lost.object().ID, "succeeded")
	p.expect(p.settle(p.b, payment(p.key("pay"), order, visa), card(visa)), http.StatusCreated, "succeeded")
	p.charged(order, 1)
}

func killedInTheWorstMoment(p *show) {
	victim := p.process(p.a)
	order := p.order(p.a, 8800, "usd")
	hold, err := p.stripe.hold(p.ctx, "intent.confirm", order, stripesim.AfterEffect)
	p.must(err)
	r := payment(p.key("pay"), order, visa)
	answered := p.meanwhile(p.a, r)
	p.must(p.stripe.arrived(p.ctx, hold))
	p.charged(order, 1)
	pid := victim.pid()
	p.must(victim.kill())
	p.event("Process A (%d) is killed with SIGKILL. Its connection to Stripe, and the customer's to it, break.", pid)
	p.received(p.a, r, card(visa), <-answered)
	p.must(p.stripe.release(p.ctx, hold))

	retry := p.pay(p.b, p.key("pay"), order, visa)
	p.expect(retry, http.StatusConflict, "idempotency-key-in-flight")
	p.event("Process B does not know whether A is dead or slow: A's lease decides, %s in this demo.", lease)
	p.until(p.b, "/v1/orders/"+order, "paid")
	p.expect(p.settle(p.b, payment(p.key("pay"), order, visa), card(visa)), http.StatusCreated, "succeeded")
	p.charged(order, 1)
	p.must(victim.start(p.ctx))
	p.event("Process A starts again (%d).", victim.pid())
}
