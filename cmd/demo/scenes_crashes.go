package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"example.com/payonce/stripesim"
)

func stripeResponseLost(p *sceneRun) {
	order := p.createOrder(p.a, 6400, "usd")
	p.must(p.stripe.injectFault(p.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Drop}))
	lost := p.pay(p.a, p.key("pay"), order, visa)
	p.expect(lost, http.StatusAccepted, "processing")
	p.expectCharges(order, 1)
	p.event("The API responds 202: processing. Nothing is sent twice; the completer asks Stripe.")
	p.waitForStatus(p.b, "/v1/payments/"+lost.object().ID, "succeeded")
	p.payUntilFinal(p.b, p.key("pay"), order, visa)
	p.expectCharges(order, 1)
}

func killedAfterTheCharge(p *sceneRun) {
	victim := p.processAt(p.a)
	order := p.createOrder(p.a, 8800, "usd")
	// The hold stops Stripe after the charge and before its response: A is waiting
	// for the response when it is killed, in every run.
	hold, err := p.stripe.hold(p.ctx, "intent.confirm", order, stripesim.AfterEffect)
	p.must(err)
	r := payment(p.key("pay"), order, visa)
	pending := p.sendAsync(p.a, r)
	p.must(p.stripe.waitForHold(p.ctx, hold))
	p.expectCharges(order, 1)
	pid := victim.PID()
	p.must(victim.Kill())
	p.event("Process A (%d) is killed with SIGKILL. All its connections are closed.", pid)
	p.printResponse(p.a, r, card(visa), <-pending)
	p.must(p.stripe.release(p.ctx, hold))

	p.pay(p.b, p.key("pay"), order, visa)
	p.event("Process B cannot tell a killed process from a slow one: it waits until A's lease has expired (%s here).",
		lease)
	p.waitForStatus(p.b, "/v1/orders/"+order, "paid")
	p.payUntilFinal(p.b, p.key("pay"), order, visa)
	p.expectCharges(order, 1)
	p.printKeyHistory(p.b, p.key("pay"), "charged once")
	p.must(victim.start(p.ctx))
	p.event("Process A is started again (%d).", victim.PID())
}

// printKeyHistory prints which processes worked on a key, and how far each got. Its verdict must begin with a text.
func (p *sceneRun) printKeyHistory(from *endpoint, key, verdict string) {
	a := p.shop.send(p.ctx, from, request{
		method: http.MethodGet, path: "/v1/idempotency-keys/" + url.PathEscape(key),
	})
	var history struct {
		Attempts int
		Verdict  string
		Trail    []struct {
			LeaseToken    int    `json:"lease_token"`
			RecoveryPoint string `json:"recovery_point"`
		}
	}
	p.must(json.Unmarshal(a.body, &history))
	var points []string
	for _, t := range history.Trail {
		points = append(points, fmt.Sprintf("%d %s", t.LeaseToken, t.RecoveryPoint))
	}
	p.out.exchange(from.name, "GET  /v1/idempotency-keys/"+key,
		fmt.Sprintf("%d, %s, after %d attempts", a.status, history.Verdict, history.Attempts))
	p.out.result(true, "By lease token: "+strings.Join(points, ", "))
	if !strings.HasPrefix(history.Verdict, verdict) {
		p.fail("the key's history says %q", history.Verdict)
	}
}
