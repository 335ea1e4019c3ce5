package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/payonce/testkit/process"
)

const cup = "cup" // what the checkouts sell: the only thing that can run out

// checkout is the request to buy some cups.
func checkout(key, sku string, quantity int, method string) request {
	return request{method: http.MethodPost, path: "/v1/checkouts", key: key,
		body: fmt.Sprintf(`{"currency":"usd","items":[{"sku":%q,"quantity":%d,"unit_amount":900}],"payment_method":%q}`, sku, quantity, method)}
}

// bought is a checkout, as its own object and inside the problem that it can
// also be answered with.
type bought struct {
	ID      string
	Status  any
	OrderID string `json:"order_id"`
	Steps   []struct{ Name, Status string }
	Inside  *bought `json:"checkout"`
}

// checkedOut reads an answer, and counts its order among the scene's.
func (p *show) checkedOut(a answer) bought {
	var b bought
	_ = json.Unmarshal(a.body, &b) // what is no checkout has no order
	if b.Inside != nil {
		b = *b.Inside
	}
	if b.OrderID == "" {
		p.fail("expected a checkout with an order, got %s %s", a, a.body)
	}
	if !slices.ContainsFunc(p.orders, func(o *expected) bool { return o.id == b.OrderID }) {
		p.orders = append(p.orders, &expected{id: b.OrderID, currency: "usd"})
	}
	return b
}

// steps says what became of each step: "create_order done, pay failed, …".
func (b bought) steps() string {
	var out []string
	for _, s := range b.Steps {
		if s.Status != "skipped" && s.Status != "pending" {
			out = append(out, s.Name+" "+s.Status)
		}
	}
	return strings.Join(out, ", ")
}

// stocked sets how many there are.
func (p *show) stocked(sku string, available int) {
	r := request{method: http.MethodPut, path: "/v1/stock/" + sku, body: fmt.Sprintf(`{"available":%d}`, available)}
	a := p.shop.send(p.ctx, p.a, r)
	p.out.exchange(p.a.name, "PUT  "+r.path+"  "+r.body, fmt.Sprint(a.status))
	if a.status != http.StatusOK {
		p.fail("the stock cannot be set: %s", a)
	}
}

// left checks how many there are.
func (p *show) left(sku string, want int) {
	a := p.shop.send(p.ctx, p.b, request{method: http.MethodGet, path: "/v1/stock/" + sku})
	var stock struct{ Available, Reserved int }
	p.must(json.Unmarshal(a.body, &stock))
	if stock.Available != want || stock.Reserved != 0 {
		p.fail("expected %d of %s and none reserved, got %s", want, sku, a.body)
	}
	p.out.result(true, fmt.Sprintf("In stock: %d, reserved: 0", want))
}

func aCheckoutIsUndone(p *show) {
	sku := p.key(cup)
	p.stocked(sku, 10)
	ok := p.settle(p.a, checkout(p.key("buy"), sku, 2, visa), "2 cups, visa")
	p.expect(ok, http.StatusCreated, "completed")
	p.charged(p.checkedOut(ok).OrderID, 1)
	p.left(sku, 8)

	r := checkout(p.key("buy2"), sku, 5, declined)
	no := p.settle(p.a, r, "5 cups")
	p.expect(no, http.StatusPaymentRequired, "payment-declined")
	p.out.result(true, p.checkedOut(no).steps())
	p.same(no, p.post(p.b, r, "5 cups"))
	p.charged(p.checkedOut(no).OrderID, 0)
	p.left(sku, 8)
}

func theLastThreeCups(p *show) {
	const buyers, cups = 12, 3
	sku := p.key(cup)
	p.stocked(sku, cups)
	requests := make([]request, buyers)
	for i := range requests {
		requests[i] = checkout(p.key(fmt.Sprintf("buyer%d", i+1)), sku, 1, visa)
	}
	sold := 0
	for i, a := range p.atOnce(requests, "POST /v1/checkouts  1 cup, visa, each with a key of its own") {
		if a.mayChange() {
			a = p.settle(p.a, requests[i], "1 cup")
		}
		switch {
		case a.status == http.StatusCreated:
			sold++
			p.expects(p.checkedOut(a).OrderID, 1)
		case a.object().Code == "out-of-stock":
			p.expects(p.checkedOut(a).OrderID, 0)
		default:
			p.fail("a buyer was answered %s %s", a, a.body)
		}
	}
	if sold != cups {
		p.fail("%d cups were sold %d times", cups, sold)
	}
	p.left(sku, 0)
}

// killedAt is where a checkout's process dies: right after it has written that
// it got there.
var killedAt = []string{"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded", "payment_made"}

func killedAtEveryStep(p *show) {
	sku := p.key(cup)
	p.stocked(sku, 50)
	victim := p.process(p.a)
	p.must(victim.Stop())
	var begun []request
	for _, at := range killedAt {
		r := checkout(p.key(at), sku, 1, visa)
		begun = append(begun, r)
		err := victim.start(p.ctx, "FAULT_AT=create_checkout/"+at+"=kill")
		if errors.Is(err, process.ErrEnded) {
			p.event("A took over from a dead one, and died of it at %s before it could do more.", at)
			continue
		}
		p.must(err)
		p.post(p.a, r, "1 cup")
		select {
		case <-victim.Exited():
		case <-time.After(2 * time.Second): // not even so far, on a busy machine
			p.must(victim.Kill())
		}
	}
	p.must(victim.start(p.ctx))
	p.event("Six processes were killed, each at a different place. The leases of the dead run out after %s.", lease)
	for _, r := range begun {
		a := p.settle(p.b, r, "1 cup")
		p.expect(a, http.StatusCreated, "completed")
		p.charged(p.checkedOut(a).OrderID, 1)
	}
	p.left(sku, 50-len(begun))
}
