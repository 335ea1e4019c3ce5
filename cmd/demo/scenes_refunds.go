package main

import (
	"fmt"
	"net/http"

	"example.com/payonce/stripesim"
)

// refund returns the request that refunds part of a payment.
func refund(key, payment string, amount int64) request {
	return request{
		method: http.MethodPost, path: "/v1/payments/" + payment + "/refunds", key: key,
		body: fmt.Sprintf(`{"amount":%d}`, amount),
	}
}

func partialRefunds(p *sceneRun) {
	order := p.createOrder(p.a, 4000, "usd")
	payment := p.payUntilFinal(p.a, p.key("pay"), order, visa).object().ID

	first := p.sendUntilFinal(p.a, refund(p.key("refund"), payment, 1500), "15.00 USD")
	p.expect(first, http.StatusCreated, "succeeded")
	p.expectReplay(first, p.post(p.b, refund(p.key("refund"), payment, 1500), "15.00 USD"))

	p.event("Two refunds of 20.00 USD at once, where 25.00 are left.")
	one, other := refund(p.key("more"), payment, 2000), refund(p.key("more2"), payment, 2000)
	fromA, fromB := p.sendAsync(p.a, one), p.sendAsync(p.b, other)
	a, b := p.printResponse(p.a, one, "20.00 USD", <-fromA), p.printResponse(p.b, other, "20.00 USD", <-fromB)
	if a.status == http.StatusConflict { // either request can be the first
		a, b, one = b, a, other
	}
	if !a.final() {
		a = p.sendUntilFinal(p.b, one, "20.00 USD")
	}
	p.expect(a, http.StatusCreated, "succeeded")
	p.expect(b, http.StatusConflict, "refund-exceeds-payment")
	p.expectCharges(order, 1)
	p.expectRefunded(order, 3500)
}

func refundResponseLost(p *sceneRun) {
	order := p.createOrder(p.a, 5500, "usd")
	paid := p.payUntilFinal(p.a, p.key("pay"), order, visa)
	p.must(p.stripe.injectFault(p.ctx, stripesim.Fault{Op: "refund.create", OrderID: order, Kind: stripesim.Drop}))
	r := refund(p.key("refund"), paid.object().ID, 5500)
	lost := p.post(p.a, r, "55.00 USD")
	p.expect(lost, http.StatusAccepted, "pending")
	p.waitForStatus(p.b, "/v1/refunds/"+lost.object().ID, "succeeded")
	p.expect(p.sendUntilFinal(p.b, r, "55.00 USD"), http.StatusCreated, "succeeded")
	p.expectRefunded(order, 5500)
}
