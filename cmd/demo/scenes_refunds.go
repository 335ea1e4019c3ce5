package main

import (
	"fmt"
	"net/http"

	"example.com/payonce/stripesim"
)

// refund is the request to give back part of a payment.
func refund(key, payment string, amount int64) request {
	return request{method: http.MethodPost, path: "/v1/payments/" + payment + "/refunds", key: key, body: fmt.Sprintf(`{"amount":%d}`, amount)}
}

func moneyGoesBack(p *show) {
	order := p.order(p.a, 4000, "usd")
	payment := p.paid(p.a, p.key("pay"), order, visa).object().ID

	first := p.settle(p.a, refund(p.key("back"), payment, 1500), "15.00 USD")
	p.expect(first, http.StatusCreated, "succeeded")
	p.same(first, p.post(p.b, refund(p.key("back"), payment, 1500), "15.00 USD"))

	p.event("Two refunds of 20.00 USD at once, where 25.00 are left.")
	one, other := refund(p.key("more"), payment, 2000), refund(p.key("more2"), payment, 2000)
	fromA, fromB := p.meanwhile(p.a, one), p.meanwhile(p.b, other)
	a, b := p.received(p.a, one, "20.00 USD", <-fromA), p.received(p.b, other, "20.00 USD", <-fromB)
	if a.status == http.StatusConflict { // whichever came second
		a, b, one = b, a, other
	}
	if !a.final() {
		a = p.settle(p.b, one, "20.00 USD")
	}
	p.expect(a, http.StatusCreated, "succeeded")
	p.expect(b, http.StatusConflict, "refund-exceeds-payment")
	p.charged(order, 1)
	p.refunded(order, 3500)
}

func stripesAnswerToARefundGetsLost(p *show) {
	order := p.order(p.a, 5500, "usd")
	paid := p.paid(p.a, p.key("pay"), order, visa)
	p.must(p.stripe.inject(p.ctx, stripesim.Fault{Op: "refund.create", OrderID: order, Kind: stripesim.Drop}))
	r := refund(p.key("back"), paid.object().ID, 5500)
	lost := p.post(p.a, r, "55.00 USD")
	p.expect(lost, http.StatusAccepted, "pending")
	p.until(p.b, "/v1/refunds/"+lost.object().ID, "succeeded")
	p.expect(p.settle(p.b, r, "55.00 USD"), http.StatusCreated, "succeeded")
	p.refunded(order, 5500)
}
