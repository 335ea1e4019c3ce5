package main

import (
	"fmt"
	"net/http"

	"example.com/payonce/stripesim"
)

// authorization returns the request that reserves an order's money on a card, for a later capture.
func authorization(key, order, method string) request {
	return request{
		method: http.MethodPost, path: "/v1/payments", key: key,
		body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q,"capture":"manual"}`, order, method),
	}
}

// capture returns the request that takes a part of what is authorized. Stripe releases the rest.
func capture(key, payment string, amount int64) request {
	return request{
		method: http.MethodPost, path: "/v1/payments/" + payment + "/capture", key: key,
		body: fmt.Sprintf(`{"amount":%d}`, amount),
	}
}

// cancelPayment returns the request that releases what is authorized.
func cancelPayment(key, payment string) request {
	return request{method: http.MethodPost, path: "/v1/payments/" + payment + "/cancel", key: key}
}

// authorize authorizes an order, and checks that no money was taken. It returns the payment's id.
func (p *sceneRun) authorize(to *endpoint, key, order string) string {
	a := p.sendUntilFinal(to, authorization(key, order, visa), card(visa)+", manual")
	p.expect(a, http.StatusCreated, "authorized")
	p.expectCharges(order, 0)
	return a.object().ID
}

func killedInACapture(p *sceneRun) {
	const authorized, shipped = 5000, 3000
	victim := p.processAt(p.a)
	order := p.createOrder(p.a, authorized, "usd")
	payment := p.authorize(p.a, p.key("pay"), order)

	p.event("Goods for %s are shipped.", money(shipped, "usd"))
	hold, err := p.stripe.hold(p.ctx, "intent.capture", order, stripesim.AfterEffect)
	p.must(err)
	r, detail := capture(p.key("ship"), payment, shipped), money(shipped, "usd")
	pending := p.sendAsync(p.a, r)
	p.must(p.stripe.waitForHold(p.ctx, hold))
	p.expectCharges(order, 1)
	pid := victim.PID()
	p.must(victim.Kill())
	p.event("Process A (%d) is killed with SIGKILL. It never gets Stripe's response.", pid)
	p.printResponse(p.a, r, detail, <-pending)
	p.must(p.stripe.release(p.ctx, hold))

	p.event("The shop retries at B, which takes over when A's lease has expired (%s here) and asks Stripe first.", lease)
	captured := p.sendUntilFinal(p.b, r, detail)
	p.expect(captured, http.StatusOK, "succeeded")
	p.expectReplay(captured, p.post(p.b, r, detail))
	p.expect(p.post(p.b, capture(p.key("more"), payment, authorized-shipped), money(authorized-shipped, "usd")),
		http.StatusConflict, "payment-not-capturable")
	p.expectPaid(p.b, order, shipped)
	p.expectCharges(order, 1)
	p.expectReleased(order, authorized-shipped)
	p.printKeyHistory(p.b, p.key("ship"), "charged once")
	p.must(victim.start(p.ctx))
	p.event("Process A is started again (%d).", victim.PID())
}

func authorizationReleased(p *sceneRun) {
	const amount = 2600
	order := p.createOrder(p.a, amount, "eur")
	first := p.authorize(p.a, p.key("pay"), order)
	p.waitForStatus(p.b, "/v1/orders/"+order, "authorized")
	another := payment(p.key("other"), order, mastercard)
	p.expect(p.post(p.b, another, card(mastercard)), http.StatusConflict, "payment-in-progress")

	release := cancelPayment(p.key("release"), first)
	released := p.sendUntilFinal(p.a, release, "")
	p.expect(released, http.StatusOK, "canceled")
	p.expectReplay(released, p.post(p.b, release, ""))
	p.expectCharges(order, 0)
	p.expectReleased(order, amount)
	p.waitForStatus(p.b, "/v1/orders/"+order, "open")
	p.expect(p.post(p.a, capture(p.key("late"), first, amount), money(amount, "eur")), http.StatusConflict,
		"payment-not-capturable")

	p.event("The order is open again. The other card's payment is retried, with its key.")
	p.expect(p.sendUntilFinal(p.b, another, card(mastercard)), http.StatusCreated, "succeeded")
	p.expectPaid(p.a, order, amount)
	p.expectCharges(order, 1)
}

// expectPaid checks with how much an order was paid, as the API says.
func (p *sceneRun) expectPaid(from *endpoint, order string, want int64) {
	a := p.waitForStatus(from, "/v1/orders/"+order, "paid")
	if got := a.object().AmountPaid; got != want {
		p.fail("amount_paid of %s is %d, expected %d", order, got, want)
	}
	p.out.result(true, "amount_paid: "+money(want, p.orderRecord(order).currency))
}

// expectReleased checks the sum that was reserved for an order and never taken, in Stripe's records.
func (p *sceneRun) expectReleased(order string, want int64) {
	o := p.orderRecord(order)
	o.should.released = want
	if got := p.sumsAtStripe(order).released; got != want {
		p.fail("%s was released of %s, expected %s", money(got, o.currency), order, money(want, o.currency))
	}
	p.out.result(true, "Stripe's records: "+money(want, o.currency)+" was released, and never taken")
}
