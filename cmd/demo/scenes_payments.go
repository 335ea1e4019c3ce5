package main

import (
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/internal/stripesim"
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
	p.expect(p.pay(p.a, p.key("pay"), order, visa), http.StatusCreated, "succeeded")
	p.charged(order, 1)
	p.keepsake = &keepsake{payment(p.key("pay"), order, visa), order}
}

func theShopAsksAgain(p *show) {
	order := p.order(p.a, 2400, "eur")
	first := p.pay(p.a, p.key("pay"), order, visa)
	p.expect(first, http.StatusCreated, "succeeded")
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
		case a.status == http.StatusCreated:
			first = a
		case a.object().Code == "idempotency-key-in-flight":
			turnedAway++
		default:
			p.fail("a duplicate was answered %s", a)
		}
	}
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
	p.expect(p.pay(p.a, p.key("pay"), mine, visa), http.StatusCreated, "succeeded")
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
	loser, where, how := other, p.b, card(mastercard)
	if b.status == http.StatusCreated {
		a, b, loser, where, how = b, a, one, p.a, card(visa)
	}
	p.expect(a, http.StatusCreated, "succeeded")
	p.expect(b, http.StatusConflict, "payment-in-progress")
	p.expect(p.post(where, loser, how), http.StatusConflict, "order-already-paid")
	p.charged(order, 1)
}

func theCardIsDeclined(p *show) {
	order := p.order(p.a, 4999, "usd")
	first := p.pay(p.a, p.key("card1"), order, declined)
	p.expect(first, http.StatusPaymentRequired, "payment-declined")
	p.same(first, p.pay(p.b, p.key("card1"), order, declined))
	p.charged(order, 0)
	p.expect(p.pay(p.b, p.key("card2"), order, mastercard), http.StatusCreated, "succeeded")
	p.charged(order, 1)
}

func theBankAsks(p *show) {
	order := p.order(p.a, 18000, "eur")
	waiting := p.pay(p.a, p.key("pay"), order, secured)
	p.expect(waiting, http.StatusAccepted, "requires_action")
	p.charged(order, 0)
	p.must(p.stripe.authenticate(p.ctx, waiting.object().Stripe.PaymentIntent))
	p.event("The customer confirms on the bank's page.")
	p.expect(p.settle(p.b, payment(p.key("pay"), order, secured), card(secured)), http.StatusCreated, "succeeded")
	p.charged(order, 1)
}
