package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Stripe's test evidence decides how a dispute ends, five seconds later.
const (
	winningEvidence = "winning_evidence"
	losingEvidence  = "losing_evidence"
)

func disputesWonAndLost(p *sceneRun) {
	const amount = 2100
	orders := []string{p.createOrder(p.a, amount, "usd"), p.createOrder(p.a, amount, "usd")}
	keys := []string{p.key("pay1"), p.key("pay2")}
	evidence, ends := []string{winningEvidence, losingEvidence}, []string{"won", "lost"}
	var disputes, payments []string
	for i, order := range orders {
		paid := p.payUntilFinal(p.a, keys[i], order, visa).object()
		payments = append(payments, paid.ID)
		p.must(p.stripe.openDispute(p.ctx, paid.Stripe.Charge))
	}
	p.event("Both customers ask their banks for their money. Stripe withdraws it, and tells the API with webhooks.")
	for i, order := range orders {
		p.orderRecord(order).should.disputed = amount
		p.waitForDisputed(p.b, order, amount)
		disputes = append(disputes, p.disputeOf(order, ends[i], evidence[i]))
	}
	p.expect(p.post(p.b, refund(p.key("refund"), payments[0], amount), money(amount, "usd")),
		http.StatusConflict, "payment-disputed")

	p.orderRecord(orders[0]).should.disputed = 0
	for i, left := range []int64{0, amount} {
		p.waitForStatus(p.b, "/v1/disputes/"+disputes[i], ends[i])
		p.waitForDisputed(p.b, orders[i], left)
		p.expectEvents(disputes[i], "dispute.created", "dispute."+ends[i])
		p.expectCharges(orders[i], 1)
	}
}

// disputeOf submits the evidence of an order's dispute, and returns the dispute's id.
func (p *sceneRun) disputeOf(order, end, evidence string) string {
	a := p.shop.send(p.ctx, p.b, request{method: http.MethodGet, path: "/v1/disputes?order_id=" + order})
	var list struct {
		Data []struct {
			ID     string
			Stripe struct{ Dispute string }
		}
	}
	p.must(json.Unmarshal(a.body, &list))
	if len(list.Data) != 1 {
		p.fail("expected one dispute of %s, got %s", order, a.body)
	}
	p.must(p.stripe.submitEvidence(p.ctx, list.Data[0].Stripe.Dispute, evidence))
	p.event("The shop submits evidence in Stripe's dashboard: this one will be %s.", end)
	return list.Data[0].ID
}

// waitForDisputed waits until an order says that so much of it is withdrawn by disputes.
func (p *sceneRun) waitForDisputed(from *endpoint, order string, want int64) {
	for began := time.Now(); ; time.Sleep(pollInterval) {
		a := p.shop.send(p.ctx, from, request{method: http.MethodGet, path: "/v1/orders/" + order})
		switch got := a.object().Disputed; {
		case a.status == http.StatusOK && got == want:
			p.out.result(true, "amount_disputed of the order: "+money(got, p.orderRecord(order).currency))
			return
		case p.ctx.Err() != nil:
			p.fail("interrupted")
		case time.Since(began) > waitTimeout:
			p.fail("amount_disputed of %s is %d after %s, expected %d", order, got, waitTimeout, want)
		}
	}
}

// expectEvents waits until the tenant's events have the end of a dispute, and checks which they are.
func (p *sceneRun) expectEvents(subject, first, last string) {
	var types []string
	ended := func() bool {
		return slices.Contains(types, "dispute.won") || slices.Contains(types, "dispute.lost")
	}
	after := ""
	for began := time.Now(); !ended(); {
		a := p.shop.send(p.ctx, p.a, request{method: http.MethodGet, path: "/v1/events?limit=100" + after})
		var list struct {
			Data []struct{ ID, Type, Subject string }
		}
		p.must(json.Unmarshal(a.body, &list))
		for _, e := range list.Data {
			after = "&after=" + e.ID
			if e.Subject == subject {
				types = append(types, e.Type)
			}
		}
		switch {
		case p.ctx.Err() != nil:
			p.fail("interrupted")
		case time.Since(began) > waitTimeout:
			p.fail("the events of %s are %s, without %s", subject, strings.Join(types, ", "), last)
		case len(list.Data) == 0:
			time.Sleep(pollInterval)
		}
	}
	switch n := len(types); {
	case types[0] != first:
		p.fail("the events of %s begin with %s, expected %s", subject, types[0], first)
	case types[n-1] != last:
		p.fail("the events of %s end with %s, expected %s", subject, types[n-1], last)
	}
	p.out.result(true, "Events: "+strings.Join(types, ", "))
}
