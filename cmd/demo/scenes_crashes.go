package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"example.com/payonce/stripesim"
)

func stripesAnswerGetsLost(p *show) {
	order := p.order(p.a, 6400, "usd")
	p.must(p.stripe.inject(p.ctx, stripesim.Fault{Op: "intent.confirm", OrderID: order, Kind: stripesim.Drop}))
	lost := p.pay(p.a, p.key("pay"), order, visa)
	p.expect(lost, http.StatusAccepted, "processing")
	p.charged(order, 1)
	p.event("The answer says what is known: processing. Nobody guesses, nothing is sent twice; the completer asks Stripe.")
	p.until(p.b, "/v1/payments/"+lost.object().ID, "succeeded")
	p.paid(p.b, p.key("pay"), order, visa)
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
	pid := victim.PID()
	p.must(victim.Kill())
	p.event("Process A (%d) is killed with SIGKILL. Its connection to Stripe, and the customer's to it, break.", pid)
	p.received(p.a, r, card(visa), <-answered)
	p.must(p.stripe.release(p.ctx, hold))

	p.pay(p.b, p.key("pay"), order, visa)
	p.event("Process B does not know whether A is dead or slow: A's lease decides, %s in this demo.", lease)
	p.until(p.b, "/v1/orders/"+order, "paid")
	p.paid(p.b, p.key("pay"), order, visa)
	p.charged(order, 1)
	p.story(p.b, p.key("pay"))
	p.must(victim.start(p.ctx))
	p.event("Process A starts again (%d).", victim.PID())
}

// story asks what became of a key, and tells it: who held it, where each stood.
func (p *show) story(from *door, key string) {
	a := p.shop.send(p.ctx, from, request{method: http.MethodGet, path: "/v1/idempotency-keys/" + url.PathEscape(key)})
	var story struct {
		Attempts int
		Verdict  string
		Trail    []struct {
			LeaseToken    int    `json:"lease_token"`
			RecoveryPoint string `json:"recovery_point"`
		}
	}
	p.must(json.Unmarshal(a.body, &story))
	var trail []string
	for _, t := range story.Trail {
		trail = append(trail, fmt.Sprintf("%d %s", t.LeaseToken, t.RecoveryPoint))
	}
	p.out.exchange(from.name, "GET  /v1/idempotency-keys/"+key, fmt.Sprintf("%d, %s, after %d attempts", a.status, story.Verdict, story.Attempts))
	p.out.result(true, "By lease token: "+strings.Join(trail, ", "))
	if !strings.HasPrefix(story.Verdict, "charged once") {
		p.fail("the story of the key says %q", story.Verdict)
	}
}
