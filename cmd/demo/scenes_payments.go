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

func customerPays(p *sceneRun) {
	order := p.createOrder(p.a, 1250, "usd")
	p.payUntilFinal(p.a, p.key("pay"), order, visa)
	p.expectCharges(order, 1)
	p.earlierPayment = &earlierPayment{payment(p.key("pay"), order, visa), order}
}

func shopRetries(p *sceneRun) {
	order := p.createOrder(p.a, 2400, "eur")
	first := p.payUntilFinal(p.a, p.key("pay"), order, visa)
	// The key is compared after unquoting, and the body by its meaning: neither the
	// quotes nor the order of the members make it another request.
	retry := request{
		method: http.MethodPost, path: "/v1/payments", key: `"` + p.key("pay") + `"`,
		body: fmt.Sprintf("{ \"payment_method\": %q,\n  \"order_id\": %q }", visa, order),
	}
	second := p.post(p.b, retry, card(visa))
	p.expectReplay(first, second)
	p.out.result(true, fmt.Sprintf("Both responses are the same %d bytes.", len(second.body)))
	p.expectCharges(order, 1)
}

func fiftyDuplicates(p *sceneRun) {
	const copies = 50
	order := p.createOrder(p.a, 990, "usd")
	p.delayConfirm(order, 300*time.Millisecond) // otherwise the first is done before the last arrives
	r := payment(p.key("pay"), order, visa)
	inProgress := 0
	var first response
	for _, a := range p.sendCopies(copies, r, card(visa)) {
		switch {
		case a.final():
			first = a
		case a.retryable():
			inProgress++
		default:
			p.fail("the response to a duplicate is %s", a)
		}
	}
	if first.status == 0 {
		first = p.sendUntilFinal(p.a, r, card(visa))
	}
	p.expect(first, http.StatusCreated, "succeeded")
	if inProgress > 0 {
		p.event("The requests that got 409 retry with the same key.")
		for _, a := range p.sendCopies(inProgress, r, card(visa)) {
			p.expectReplay(first, a)
		}
	}
	p.out.result(true, fmt.Sprintf("All %d requests got the same %d bytes.", copies, len(first.body)))
	p.expectCharges(order, 1)
}

// delayConfirm makes Stripe slow for one order, so that concurrent requests overlap.
func (p *sceneRun) delayConfirm(order string, delay time.Duration) {
	p.must(p.stripe.injectFault(p.ctx,
		stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Delay, Delay: delay}))
}

func keyReused(p *sceneRun) {
	mine, theirs := p.createOrder(p.a, 1500, "usd"), p.createOrder(p.a, 7700, "usd")
	p.payUntilFinal(p.a, p.key("pay"), mine, visa)
	p.expect(p.pay(p.b, p.key("pay"), theirs, visa), http.StatusUnprocessableEntity, "idempotency-key-mismatch")
	p.expectCharges(mine, 1)
	p.expectCharges(theirs, 0)
}

func twoKeysOneOrder(p *sceneRun) {
	order := p.createOrder(p.a, 3200, "usd")
	p.delayConfirm(order, 200*time.Millisecond)
	one, other := payment(p.key("tab1"), order, visa), payment(p.key("tab2"), order, mastercard)
	first, second := p.sendAsync(p.a, one), p.sendAsync(p.b, other)
	a, b := p.printResponse(p.a, one, card(visa), <-first), p.printResponse(p.b, other, card(mastercard), <-second)
	if a.status == http.StatusConflict { // either request can be the first
		a, b, one, other = b, a, other, one
	}
	p.expect(b, http.StatusConflict, "payment-in-progress")
	if !a.final() {
		a = p.sendUntilFinal(p.b, one, "the first")
	}
	p.expect(a, http.StatusCreated, "succeeded")
	p.expect(p.post(p.b, other, card(mastercard)), http.StatusConflict, "order-already-paid")
	p.expectCharges(order, 1)
}

func cardDeclined(p *sceneRun) {
	order := p.createOrder(p.a, 4999, "usd")
	first := p.sendUntilFinal(p.a, payment(p.key("card1"), order, declined), card(declined))
	p.expect(first, http.StatusPaymentRequired, "payment-declined")
	p.expectReplay(first, p.pay(p.b, p.key("card1"), order, declined))
	p.expectCharges(order, 0)
	p.payUntilFinal(p.b, p.key("card2"), order, mastercard)
	p.expectCharges(order, 1)
}

func bankAuthentication(p *sceneRun) {
	order := p.createOrder(p.a, 18000, "eur")
	waiting := p.payWith3DS(order)
	p.expectCharges(order, 0)
	p.must(p.stripe.authenticate(p.ctx, waiting.Stripe.PaymentIntent))
	p.event("The customer confirms on the bank's page.")
	p.payUntilFinal(p.b, p.key("pay"), order, secured)
	p.expectCharges(order, 1)
}

// payWith3DS pays with a card that needs the customer's confirmation, and returns
// the payment that waits for it.
func (p *sceneRun) payWith3DS(order string) object {
	a := p.pay(p.a, p.key("pay"), order, secured)
	if a.object().Status == "processing" { // on a busy machine the simulator can be late
		a = p.waitForStatus(p.a, "/v1/payments/"+a.object().ID, "requires_action")
	} else {
		p.expect(a, http.StatusAccepted, "requires_action")
	}
	return a.object()
}
