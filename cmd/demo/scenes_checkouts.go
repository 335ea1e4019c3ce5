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

const cup = "cup" // what the checkouts sell; unlike the orders' tea it is counted in stock

// checkout returns the request that buys some cups.
func checkout(key, sku string, quantity int, method string) request {
	return request{
		method: http.MethodPost, path: "/v1/checkouts", key: key,
		body: fmt.Sprintf(`{"currency":"usd","items":[{"sku":%q,"quantity":%d,"unit_amount":900}],"payment_method":%q}`,
			sku, quantity, method),
	}
}

// checkoutBody is a checkout as a response body, or as the member "checkout" of a problem.
type checkoutBody struct {
	ID      string
	Status  any
	OrderID string `json:"order_id"`
	Steps   []struct{ Name, Status string }
	Inner   *checkoutBody `json:"checkout"`
}

// checkoutOf parses a response, and adds its order to the scene's orders.
func (p *sceneRun) checkoutOf(a response) checkoutBody {
	var b checkoutBody
	_ = json.Unmarshal(a.body, &b) // a body that is no checkout has no order, which fails below
	if b.Inner != nil {
		b = *b.Inner
	}
	if b.OrderID == "" {
		p.fail("expected a checkout with an order, got %s %s", a, a.body)
	}
	if !slices.ContainsFunc(p.orders, func(o *expected) bool { return o.id == b.OrderID }) {
		p.orders = append(p.orders, &expected{id: b.OrderID, currency: "usd"})
	}
	return b
}

// steps lists the steps that were executed: "create_order done, pay failed, …".
func (b checkoutBody) steps() string {
	var out []string
	for _, s := range b.Steps {
		if s.Status != "skipped" && s.Status != "pending" {
			out = append(out, s.Name+" "+s.Status)
		}
	}
	return strings.Join(out, ", ")
}

func (p *sceneRun) setStock(sku string, available int) {
	r := request{method: http.MethodPut, path: "/v1/stock/" + sku, body: fmt.Sprintf(`{"available":%d}`, available)}
	a := p.shop.send(p.ctx, p.a, r)
	p.out.exchange(p.a.name, "PUT  "+r.path+"  "+r.body, fmt.Sprint(a.status))
	if a.status != http.StatusOK {
		p.fail("the stock cannot be set: %s", a)
	}
}

// expectStock also checks that no reservation is left behind.
func (p *sceneRun) expectStock(sku string, want int) {
	a := p.shop.send(p.ctx, p.b, request{method: http.MethodGet, path: "/v1/stock/" + sku})
	var stock struct{ Available, Reserved int }
	p.must(json.Unmarshal(a.body, &stock))
	if stock.Available != want || stock.Reserved != 0 {
		p.fail("expected %d of %s and none reserved, got %s", want, sku, a.body)
	}
	p.out.result(true, fmt.Sprintf("In stock: %d, reserved: 0", want))
}

func checkoutCompensated(p *sceneRun) {
	sku := p.key(cup)
	p.setStock(sku, 10)
	ok := p.sendUntilFinal(p.a, checkout(p.key("buy"), sku, 2, visa), "2 cups, visa")
	p.expect(ok, http.StatusCreated, "completed")
	p.expectCharges(p.checkoutOf(ok).OrderID, 1)
	p.expectStock(sku, 8)

	r := checkout(p.key("buy2"), sku, 5, declined)
	no := p.sendUntilFinal(p.a, r, "5 cups")
	p.expect(no, http.StatusPaymentRequired, "payment-declined")
	p.out.result(true, p.checkoutOf(no).steps())
	p.expectReplay(no, p.post(p.b, r, "5 cups"))
	p.expectCharges(p.checkoutOf(no).OrderID, 0)
	p.expectStock(sku, 8)
}

func limitedStock(p *sceneRun) {
	const buyers, cups = 12, 3
	sku := p.key(cup)
	p.setStock(sku, cups)
	requests := make([]request, buyers)
	for i := range requests {
		requests[i] = checkout(p.key(fmt.Sprintf("buyer%d", i+1)), sku, 1, visa)
	}
	sold := 0
	for i, a := range p.sendConcurrently(requests, "POST /v1/checkouts  1 cup, visa, each with its own key") {
		if a.retryable() {
			a = p.sendUntilFinal(p.a, requests[i], "1 cup")
		}
		switch {
		case a.status == http.StatusCreated:
			sold++
			p.setExpectedCharges(p.checkoutOf(a).OrderID, 1)
		case a.object().Code == "out-of-stock":
			p.setExpectedCharges(p.checkoutOf(a).OrderID, 0)
		default:
			p.fail("the response to a buyer is %s %s", a, a.body)
		}
	}
	if sold != cups {
		p.fail("%d cups were sold %d times", cups, sold)
	}
	p.expectStock(sku, 0)
}

// killPoints are the recovery points of a checkout. The process is killed right
// after it has committed one.
var killPoints = []string{
	"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded", "payment_made",
}

func checkoutKilledAtEveryStep(p *sceneRun) {
	sku := p.key(cup)
	p.setStock(sku, 50)
	victim := p.processAt(p.a)
	p.must(victim.Stop())
	var requests []request
	for _, at := range killPoints {
		r := checkout(p.key(at), sku, 1, visa)
		requests = append(requests, r)
		err := victim.start(p.ctx, "FAULT_AT=create_checkout/"+at+"=kill")
		if errors.Is(err, process.ErrEnded) {
			// Its completer took over an earlier checkout and reached the same point.
			p.event("A takes over a checkout of a killed process, and is killed at %s itself.", at)
			continue
		}
		p.must(err)
		p.post(p.a, r, "1 cup")
		select {
		case <-victim.Exited():
		case <-time.After(2 * time.Second): // on a busy machine it may not reach the point in time
			p.must(victim.Kill())
		}
	}
	p.must(victim.start(p.ctx))
	p.event("Six processes were killed, each at a different step. Their leases expire after %s.", lease)
	for _, r := range requests {
		a := p.sendUntilFinal(p.b, r, "1 cup")
		p.expect(a, http.StatusCreated, "completed")
		p.expectCharges(p.checkoutOf(a).OrderID, 1)
	}
	p.expectStock(sku, 50-len(requests))
}
