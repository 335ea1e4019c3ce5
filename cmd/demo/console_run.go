package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/payonce/stripesim"
)

const (
	consoleAmount  = 1250
	maxActionRuns  = 40              // whose keys and orders are remembered, for facts that arrive late
	activeAfterEnd = 5 * time.Second // how long facts about a finished run are still expected
)

// actionRun is one press of a button: one card on the page, with its own order and key.
type actionRun struct {
	*console
	ctx   context.Context
	id    int64
	title string
	order string
	pay   request // the last that pays the order, or captures or releases its authorization

	mu     sync.Mutex
	ended  time.Time // zero while it is running
	result entry
}

// run runs an action from the press of the button to its result.
func (a action) run(ctx context.Context, c *console) {
	run := &actionRun{console: c, ctx: ctx, title: a.Button}
	run.id = c.board.add(entry{Kind: kindAction, Text: a.Button, Answer: a.Why, Code: codeOf[a.Name]})
	err := a.do(run)
	c.refresh()
	result := entry{Kind: kindResult, Answer: a.Reason, Tone: toneGood}
	switch {
	case err != nil && ctx.Err() != nil:
		result.Tone, result.Answer = toneWait, "The console stopped waiting. The service completes the payment later."
	case err != nil:
		result.Tone, result.Answer = toneBad, "Not as expected: "+err.Error()
	}
	run.mu.Lock()
	run.ended, run.result = time.Now(), result
	run.mu.Unlock()
	run.showResult(result)
}

// showResult shows how the run ended. The number of charges is Stripe's.
func (run *actionRun) showResult(result entry) {
	n := run.board.chargesOf(run.order)
	result.Text, result.Charges = "Stripe's records: this order was "+times(n)+".", &n
	if n > 1 {
		result.Tone, result.Answer = toneBad, "This must never happen."
	}
	run.add(result)
}

// updateResult shows the result again after a charge that came when the run had
// already ended: a late second charge must not go unnoticed.
func (run *actionRun) updateResult() {
	run.mu.Lock()
	result, ended := run.result, !run.ended.IsZero()
	run.mu.Unlock()
	if ended {
		run.showResult(result)
	}
}

// add adds a line to the run's card.
func (run *actionRun) add(e entry) int64 {
	e.Run = run.id
	return run.board.add(e)
}

// active reports whether more facts about the run can be expected.
func (run *actionRun) active() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.ended.IsZero() || time.Since(run.ended) < activeAfterEnd
}

// createOrder creates the order that the run's requests pay.
func (run *actionRun) createOrder() error {
	r := request{
		method: http.MethodPost, path: "/v1/orders", key: "order-" + randomHex(4),
		body: fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, consoleAmount),
	}
	send := func(to *endpoint) response { return run.shop.send(run.ctx, to, r) }
	a, err := run.sendUntilFinal(run.upEndpoint(), r, send)
	if err != nil {
		return fmt.Errorf("no order: %w", err)
	}
	run.order = a.object().ID
	run.pay = payment("pay-"+randomHex(3), run.order, visa)
	run.rememberRun(run)
	run.board.addPurchase(&purchase{Order: run.order, Title: run.title})
	return nil
}

// sendPayment sends the payment once. The request and the response are two lines,
// each at its own time: what happens in between stands between them.
func (run *actionRun) sendPayment(to *endpoint) response {
	run.add(entry{
		Kind: kindRequest, Who: "Shop → " + to.name, Text: "POST " + pathShown(run.pay.path) + ", key " + run.pay.key,
		Key: run.pay.key, Code: codeOf["request"],
	})
	run.board.countRequests(run.order, 1, 0)
	a := run.shop.send(run.ctx, to, run.pay)
	run.countSuppressed(a)
	e := entry{
		Kind: kindRequest, Who: to.name + " → Shop", Answer: a.summary() + ", " + ms(a.took),
		Tone: tone(a), Code: codeOf[codeStep(a)],
	}
	if text := explain(a); text != "" {
		e.Answer += ": " + text
	}
	run.add(e)
	return a
}

// sendPaymentAsync is for actions that break something before the response arrives.
func (run *actionRun) sendPaymentAsync(to *endpoint) <-chan response {
	done := make(chan response, 1)
	go func() { done <- run.sendPayment(to) }()
	return done
}

// countSuppressed counts the duplicates among responses: those that changed nothing.
func (run *actionRun) countSuppressed(responses ...response) {
	n := 0
	for _, a := range responses {
		if a.replayed() || a.status == http.StatusConflict {
			n++
		}
	}
	run.board.countRequests(run.order, 0, n)
}

// sendPayments sends the payment n times at once, alternately to the running processes.
func (run *actionRun) sendPayments(n int, text string) []response {
	endpoints := []*endpoint{run.b}
	if run.upEndpoint() == run.a {
		endpoints = []*endpoint{run.a, run.b}
	}
	var names []string
	for _, e := range endpoints {
		names = append(names, e.name)
	}
	who := strings.Join(names, ", ")
	run.add(entry{
		Kind: kindRequest, Who: "Shop → " + who, Text: text + ", key " + run.pay.key,
		Key: run.pay.key, Code: codeOf["request"],
	})
	run.board.countRequests(run.order, n, 0)
	responses := make([]response, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range responses {
		all.Go(func() {
			<-start
			responses[i] = run.shop.send(run.ctx, endpoints[i%len(endpoints)], run.pay)
		})
	}
	close(start)
	all.Wait()
	run.countSuppressed(responses...)
	e := entry{Kind: kindRequest, Who: who + " → Shop", Tone: toneGood, Code: codeOf["request"]}
	var texts []string
	for _, a := range responses {
		texts = append(texts, a.summary())
		e.Dots += dot(a)
		if tone(a) != toneGood {
			e.Tone = toneWait
		}
	}
	e.Answer = summarize(texts)
	run.add(e)
	return responses
}

// payUntilFinal retries the payment with the same key until the response is final.
func (run *actionRun) payUntilFinal(to *endpoint) error {
	a, err := run.sendUntilFinal(to, run.pay, run.sendPayment)
	return expectResponse(a, err, http.StatusCreated, "succeeded")
}

// sendUntilFinal retries as a client should: after Retry-After, and at the other
// process if there was no response.
func (run *actionRun) sendUntilFinal(to *endpoint, r request, send func(*endpoint) response) (response, error) {
	for {
		a := send(to)
		switch {
		case run.ctx.Err() != nil:
			return a, run.ctx.Err()
		case a.final():
			return a, nil
		case a.err != nil:
			to = run.otherEndpoint(to)
		case !a.retryable():
			return a, fmt.Errorf("the response to %s %s is %s", r.method, r.path, a)
		}
		pause, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			pause = 1
		}
		select {
		case <-time.After(time.Duration(pause) * time.Second):
		case <-run.ctx.Done():
			return a, run.ctx.Err()
		}
	}
}

// holdStripe has process A charge the card, and stops Stripe after the charge and
// before its response: the moment at which a failure is worst. Then it calls fail,
// with the response to come and a function that lets Stripe continue.
func (run *actionRun) holdStripe(fail func(pending <-chan response, release func() error) error) error {
	hold, err := run.stripe.hold(run.ctx, "intent.confirm", run.order, stripesim.AfterEffect)
	if err != nil {
		return err
	}
	release := sync.OnceValue(func() error { return run.stripe.release(context.WithoutCancel(run.ctx), hold) })
	pending := run.sendPaymentAsync(run.a)
	if err = run.stripe.waitForHold(run.ctx, hold); err == nil {
		err = fail(pending, release)
	}
	return errors.Join(err, release())
}

// ---- which run a fact belongs to ---------------------------------------------------

// rememberRun makes facts about the run's key and order appear on its card.
func (c *console) rememberRun(run *actionRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastRun = run
	c.remember(run, run.pay.key, run.order)
}

// use makes a request the run's, for what is sent and retried from now on.
func (run *actionRun) use(r request) {
	run.console.mu.Lock()
	defer run.console.mu.Unlock()
	known := r.key == run.pay.key
	run.pay = r
	if !known {
		run.remember(run, r.key)
	}
}

// remember keeps the newest keys and orders. Called with mu held.
func (c *console) remember(run *actionRun, ids ...string) {
	for _, id := range ids {
		c.runs[id] = run
		c.runKeys = append(c.runKeys, id)
	}
	for len(c.runKeys) > 2*maxActionRuns {
		oldest := c.runKeys[0]
		delete(c.runs, oldest)
		delete(c.historyRead, oldest)
		c.shop.dropRecorded(oldest)
		c.runKeys = slices.Delete(c.runKeys, 0, 1)
	}
}

// runOf returns the run with one of the keys or orders, or nil.
func (c *console) runOf(ids ...string) *actionRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if run := c.runs[id]; run != nil {
			return run
		}
	}
	return nil
}

// orderIn returns the order that an event is about.
func orderIn(event []byte) string {
	var e struct {
		Data struct {
			OrderID string `json:"order_id"`
		}
	}
	_ = json.Unmarshal(event, &e) // an event without an order belongs to no run
	return e.Data.OrderID
}

// ---- texts ---------------------------------------------------------------------------

// pathShown is a path without the payment's id, which its card shows by its order.
func pathShown(path string) string { return longID.ReplaceAllString(path, "{id}") }

func tone(a response) string {
	switch {
	case a.err != nil:
		return toneBad
	case a.final():
		return toneGood
	}
	return toneWait
}

// dot is one letter for one of many responses: n executed, r replayed, w in
// progress, x no response. console.js has their texts.
func dot(a response) string {
	switch {
	case a.err != nil:
		return "x"
	case a.replayed():
		return "r"
	case a.final():
		return "n"
	}
	return "w"
}

// explain says what a response means, for readers who do not know the status codes.
func explain(a response) string {
	switch {
	case a.err != nil:
		return "the shop cannot know whether the card was charged"
	case a.replayed():
		return "stored response replayed"
	case a.status == http.StatusAccepted:
		return "the result is not known yet; retry"
	case a.status == http.StatusConflict:
		return "a request with this key is in progress; retry"
	case a.status == http.StatusServiceUnavailable:
		return "this request started nothing; retry"
	case a.retryable():
		return "retry"
	}
	return ""
}

// codeStep names the step in codeOf that produced a response.
func codeStep(a response) string {
	switch {
	case a.err != nil:
		return ""
	case a.replayed(), a.status == http.StatusConflict:
		return "request"
	case a.final():
		return "finished"
	}
	return "request"
}
