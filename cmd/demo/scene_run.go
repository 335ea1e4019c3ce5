package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// waitTimeout is many times what the API promises, because the demo must not
	// fail on a slow or busy machine.
	waitTimeout  = time.Minute
	pollInterval = 50 * time.Millisecond
)

// sceneRun is a scene being played, and what it did. Its methods print each step.
// A step that does not go as expected ends the scene by calling fail.
type sceneRun struct {
	*system
	scene   scene
	number  int
	ctx     context.Context
	out     *printer
	failure string // empty: everything went as expected

	requests  int // POSTs with a key, sent by this scene: only those could charge anybody
	responses []string
	orders    []*expected
}

// expected is an order with the number of charges that Stripe should have, and has
// at the end of the demo.
type expected struct {
	id       string
	want     int
	checked  bool // whether the scene has set want
	got      int
	currency string
	should   sums // as the scene expects
	did      sums // in Stripe's records at the end
}

// playAll plays the selected scenes one after the other.
func (s *system) playAll(ctx context.Context, selected func(scene) bool, out *printer) []*sceneRun {
	var runs []*sceneRun
	for _, scene := range scenes {
		if scene.localOnly && len(s.processes) == 0 || !selected(scene) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		p := &sceneRun{system: s, scene: scene, number: len(runs) + 1, ctx: ctx, out: out}
		out.scene(p.number, scene)
		if s.console != nil {
			s.console.showScene(p.number, scene.title)
		}
		p.run()
		runs = append(runs, p)
	}
	return runs
}

// sceneFailure is the value that fail panics with. It ends one scene, at whatever
// depth; the other scenes are still played.
type sceneFailure string

func (p *sceneRun) run() {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case sceneFailure:
			p.failure = string(why)
			if p.ctx.Err() == nil {
				p.out.result(false, "FAILED: "+p.failure)
			}
		default:
			panic(why)
		}
	}()
	p.scene.play(p)
}

func (p *sceneRun) fail(format string, args ...any) {
	panic(sceneFailure(fmt.Sprintf(format, args...)))
}

// must is for the demo's own actions: to kill a process, to ask the simulator.
func (p *sceneRun) must(err error) {
	if err != nil {
		p.fail("%v", err)
	}
}

// key returns the Idempotency-Key of one intent of this scene. The nonce is in it
// so that two demos with the same tenant do not share keys.
func (p *sceneRun) key(intent string) string {
	return fmt.Sprintf("%s-%d-%s", intent, p.number, p.nonce)
}

// ---- requests ------------------------------------------------------------------

// createOrder creates an order and returns its id.
func (p *sceneRun) createOrder(to *endpoint, amount int64, currency string) string {
	intent := "order"
	if n := len(p.orders); n > 0 {
		intent = fmt.Sprint("order", n+1)
	}
	r := request{
		method: http.MethodPost, path: "/v1/orders", key: p.key(intent),
		body: fmt.Sprintf(`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, amount),
	}
	a := p.send(to, r)
	o := a.object()
	text := a.String()
	if o.ID != "" {
		text += "  " + o.ID
	}
	p.out.exchange(to.name, requestLine(r, money(amount, currency)), text)
	p.expect(a, http.StatusCreated, "open")
	p.orders = append(p.orders, &expected{id: o.ID, currency: currency})
	return o.ID
}

// payment returns the request that pays an order.
func payment(key, order, method string) request {
	return request{
		method: http.MethodPost, path: "/v1/payments", key: key,
		body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, method),
	}
}

// card is the short name that the printed line has for a payment method.
func card(method string) string {
	switch method {
	case declined:
		return "visa, declined"
	case secured:
		return "3-D Secure"
	}
	return strings.TrimPrefix(method, "pm_card_")
}

// pay sends a payment once and prints the response, which may be 202: on a busy
// machine even the simulator can be late. Most scenes need payUntilFinal.
func (p *sceneRun) pay(to *endpoint, key, order, method string) response {
	return p.post(to, payment(key, order, method), card(method))
}

// payUntilFinal sends a payment until it has succeeded.
func (p *sceneRun) payUntilFinal(to *endpoint, key, order, method string) response {
	a := p.sendUntilFinal(to, payment(key, order, method), card(method))
	p.expect(a, http.StatusCreated, "succeeded")
	return a
}

// post sends a request with a key and prints it; detail is what to print of its body.
func (p *sceneRun) post(to *endpoint, r request, detail string) response {
	return p.printResponse(to, r, detail, p.shop.send(p.ctx, to, r))
}

// sendUntilFinal retries a request with the same key until the response is final,
// as a client should: it sends Prefer: wait and respects Retry-After.
func (p *sceneRun) sendUntilFinal(to *endpoint, r request, detail string) response {
	r.preferWait = true
	for began := time.Now(); ; {
		a := p.post(to, r, detail)
		if a.final() || !a.retryable() || time.Since(began) > waitTimeout {
			return a
		}
		pause, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			p.fail("a response that is not final has no Retry-After: %s", a)
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
}

// sendAsync sends a request and does not wait for the response. The scene prints it
// with printResponse at the moment when it belongs into the output.
func (p *sceneRun) sendAsync(to *endpoint, r request) <-chan response {
	done := make(chan response, 1)
	go func() { done <- p.shop.send(p.ctx, to, r) }()
	return done
}

func (p *sceneRun) printResponse(from *endpoint, r request, detail string, a response) response {
	p.countResponse(a)
	p.out.exchange(from.name, requestLine(r, detail), fmt.Sprintf("%s, %s", a, ms(a.took)))
	return a
}

// sendCopies sends the same request n times at once, alternately to both processes.
func (p *sceneRun) sendCopies(n int, r request, detail string) []response {
	return p.sendConcurrently(slices.Repeat([]request{r}, n), requestLine(r, detail))
}

// sendConcurrently sends all requests at once; line describes them in the output.
func (p *sceneRun) sendConcurrently(requests []request, line string) []response {
	responses := make([]response, len(requests))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, r := range requests {
		to := p.a
		if i%2 == 1 {
			to = p.b
		}
		all.Go(func() {
			<-start // so that no request is done before the last goroutine exists
			responses[i] = p.shop.send(p.ctx, to, r)
		})
	}
	close(start)
	all.Wait()
	var texts []string
	for _, a := range responses {
		p.countResponse(a)
		texts = append(texts, a.summary())
	}
	who := p.a.name
	if p.b.url != p.a.url {
		who += "," + p.b.name
	}
	p.out.exchange(who, fmt.Sprintf("%d × %s", len(requests), line), summarize(texts))
	return responses
}

func (p *sceneRun) send(to *endpoint, r request) response {
	a := p.shop.send(p.ctx, to, r)
	p.countResponse(a)
	return a
}

// countResponse adds a request and its response to the scene's row in the table.
func (p *sceneRun) countResponse(a response) {
	p.requests++
	text := fmt.Sprint(a.status)
	switch {
	case a.err != nil:
		text = "none"
	case a.replayed():
		text += " replayed"
	}
	p.responses = append(p.responses, text)
}

// waitForStatus reads an object until it has a status.
func (p *sceneRun) waitForStatus(from *endpoint, path, status string) response {
	began := time.Now()
	for {
		a := p.shop.send(p.ctx, from, request{method: http.MethodGet, path: path})
		now := a.object().Status
		switch {
		case now == status:
			p.out.exchange(from.name, "GET "+shortenIDs(path)+", until it is "+status,
				fmt.Sprintf("%s, after %.1f s", a, time.Since(began).Seconds()))
			return a
		case p.ctx.Err() != nil:
			p.fail("interrupted")
		case time.Since(began) > waitTimeout:
			p.fail("%s is %v after %s, not %s", path, now, waitTimeout, status)
		}
		time.Sleep(pollInterval)
	}
}

// event prints what happens apart from requests.
func (p *sceneRun) event(format string, args ...any) { p.out.event(fmt.Sprintf(format, args...)) }

// ---- expectations --------------------------------------------------------------

// expect checks the HTTP status of a response, and the status or code in its body.
func (p *sceneRun) expect(a response, status int, word string) {
	o := a.object()
	got := o.Code
	if got == "" {
		got = fmt.Sprint(o.Status)
	}
	if a.status != status || got != word {
		p.fail("expected %d %s, got %s %s", status, word, a, bytes.TrimSpace(a.body))
	}
}

// expectReplay checks that a response is the first one again, byte for byte.
func (p *sceneRun) expectReplay(first, again response) {
	switch {
	case !again.replayed():
		p.fail("the response has no Idempotent-Replayed header: %s", again)
	case first.status != again.status || !bytes.Equal(first.body, again.body):
		p.fail("the second response differs from the first: %d %s, then %d %s",
			first.status, first.body, again.status, again.body)
	}
}

// expectCharges counts an order's charges in Stripe's records. The API's own view
// is no evidence here: it may be what is wrong.
func (p *sceneRun) expectCharges(order string, want int) {
	p.setExpectedCharges(order, want)
	got, err := p.stripe.charges(p.ctx, order)
	p.must(err)
	if got != want {
		p.fail("at Stripe %s was %s, expected %s", order, times(got), times(want))
	}
	p.out.result(true, "Stripe's records: this order was "+times(got))
}

// setExpectedCharges sets what checkInvariants compares with Stripe's records at
// the end, when a late second charge would be visible too.
func (p *sceneRun) setExpectedCharges(order string, want int) {
	o := p.orderRecord(order)
	o.want, o.checked = want, true
}

// expectRefunded checks the sum of an order's refunds in Stripe's records.
func (p *sceneRun) expectRefunded(order string, want int64) {
	o := p.orderRecord(order)
	o.should.refunded = want
	got := p.sumsAtStripe(order).refunded
	if got != want {
		p.fail("%s was refunded for %s, expected %s", money(got, o.currency), order, money(want, o.currency))
	}
	p.out.result(true, "Stripe's records: "+money(got, o.currency)+" of this order was refunded")
}

func (p *sceneRun) sumsAtStripe(order string) sums {
	effects, err := p.stripe.effects(p.ctx)
	p.must(err)
	return sumsOf(effects, order)
}

func (p *sceneRun) orderRecord(order string) *expected {
	for _, o := range p.orders {
		if o.id == order {
			return o
		}
	}
	panic("bug: no order of this scene: " + order)
}

// chargesColumn is the table's last column: the charges of each order of the scene.
func (p *sceneRun) chargesColumn() string {
	var out []string
	for _, o := range p.orders {
		count := fmt.Sprint(o.got)
		out = append(out, count+o.did.text(o.currency))
	}
	return summarize(out)
}

func (p *sceneRun) responseCounts() string { return summarize(p.responses) }

// ---- formats -------------------------------------------------------------------

// requestLine is a request in one line.
func requestLine(r request, detail string) string {
	return pad(r.method+" "+shortenIDs(r.path), 18) + "  " + pad(detail, 14) + "  key " + r.key
}

var longID = regexp.MustCompile(`\b([a-z]{3})_[0-9a-v]{26}\b`)

// shortenIDs removes the random part of the API's ids, which would not fit the line.
func shortenIDs(text string) string { return longID.ReplaceAllString(text, "${1}_…") }

func money(minor int64, currency string) string {
	return fmt.Sprintf("%d.%02d %s", minor/100, minor%100, strings.ToUpper(currency))
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func times(n int) string {
	switch n {
	case 0:
		return "not charged"
	case 1:
		return "charged once"
	case 2:
		return "charged TWICE"
	}
	return fmt.Sprintf("charged %d TIMES", n)
}
