package main

import (
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/stripesim"
)

// Stripe's test cards.
const (
	visa       = "pm_card_visa"
	mastercard = "pm_card_mastercard"
	declined   = "pm_card_visa_chargeDeclined"
	secured    = "pm_card_threeDSecure2Required"
)

func aCustomerPays(p *show) {
	order := p.order(p.a, 1250, "usd")
	p.paid(p.a, p.key("pay"), order, visa)
	p.charged(order, 1)
	p.keepsake = &keepsake{payment(p.key("pay"), order, visa), order}
}

func theShopAsksAgain(p *show) {
	order := p.order(p.a, 2400, "eur")
	first := p.paid(p.a, p.key("pay"), order, visa)
	again := request{method: http.MethodPost, path: "/v1/payments", key: `"` + p.key("pay") + `"`, body: fmt.Sprintf("{ \"payment_method\": %q,\n  \"order_id\": %q }", visa, order)}
	second := p.post(p.b, again, card(visa))
	p.same(first, second)
	p.out.result(true, fmt.Sprintf("Both answers are the same %d bytes.", len(second.body)))
	p.charged(order, 1)
}

func fiftyClicks(p *show) {
	const clicks = 50
	order := p.order(p.a, 990, "usd")
	p.must(p.stripe.inject(p.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Delay, Delay: 300 * time.Millisecond}))
	click := payment(p.key("pay"), order, visa)
	turnedAway := 0
	var first answer
	for _, a := range p.together(clicks, click, card(visa)) {
		switch {
		case a.final():
			first = a
		case a.mayChange():
			turnedAway++
		default:
			p.fail("a duplicate was answered %s", a)
		}
	}
	if first.status == 0 {
		first = p.settle(p.a, click, card(visa))
	}
	p.expect(first, http.StatusCreated, "succeeded")
	if turnedAway > 0 {
		p.event("Those that were told to wait come back with the same key.")
		for _, a := range p.together(turnedAway, click, card(visa)) {
			p.same(first, a)
		}
	}
	p.out.result(true, fmt.Sprintf("All %d clicks got the same %d bytes.", clicks, len(first.body)))
	p.charged(order, 1)
}

func aKeyIsUsedTwice(p *show) {
	mine, theirs := p.order(p.a, 1500, "usd"), p.order(p.a, 7700, "usd")
	p.paid(p.a, p.key("pay"), mine, visa)
	p.expect(p.pay(p.b, p.key("pay"), theirs, visa), http.StatusUnprocessableEntity, "idempotency-key-mismatch")
	p.charged(mine, 1)
	p.charged(theirs, 0)
}

func twoTabs(p *show) {
	order := p.order(p.a, 3200, "usd")
	p.must(p.stripe.inject(p.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Delay, Delay: 200 * time.Millisecond}))
	one, other := payment(p.key("tab1"), order, visa), payment(p.key("tab2"), order, mastercard)
	first, second := p.meanwhile(p.a, one), p.meanwhile(p.b, other)
	a, b := p.received(p.a, one, card(visa), <-first), p.received(p.b, other, card(mastercard), <-second)
	if a.status == http.StatusConflict { // whichever came second
		a, b, one, other = b, a, other, one
	}
	p.expect(b, http.StatusConflict, "payment-in-progress")
	if !a.final() {
		a = p.settle(p.b, one, "the first")
	}
	p.expect(a, http.StatusCreated, "succeeded")
	p.expect(p.post(p.b, other, card(mastercard)), http.StatusConflict, "order-already-paid")
	p.charged(order, 1)
}

func theCardIsDeclined(p *show) {
	order := p.order(p.a, 4999, "usd")
	first := p.settle(p.a, payment(p.key("card1"), order, declined), card(declined))
	p.expect(first, http.StatusPaymentRequired, "payment-declined")
	p.same(first, p.pay(p.b, p.key("card1"), order, declined))
	p.charged(order, 0)
	p.paid(p.b, p.key("card2"), order, mastercard)
	p.charged(order, 1)
}

func theBankAsks(p *show) {
	order := p.order(p.a, 18000, "eur")
	waiting := p.waiting(order)
	p.charged(order, 0)
	p.must(p.stripe.authenticate(p.ctx, waiting.Stripe.PaymentIntent))
	p.event("The customer confirms on the bank's page.")
	p.paid(p.b, p.key("pay"), order, secured)
	p.charged(order, 1)
}

// waiting pays with a card whose bank wants to see the customer first.
func (p *show) waiting(order string) object {
	a := p.pay(p.a, p.key("pay"), order, secured)
	if a.object().Status == "processing" { // a busy machine; see paid
		a = p.until(p.a, "/v1/payments/"+a.object().ID, "requires_action")
	} else {
		p.expect(a, http.StatusAccepted, "requires_action")
	}
	return a.object()
}
