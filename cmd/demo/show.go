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
	patience = time.Minute // for what must become true without us: many times what the API promises, for a busy machine
	askAgain = 50 * time.Millisecond
)

// scene is a part of the story. One that is ours alone needs a system of our own:
// it kills processes, or says where Stripe's webhooks go.
type scene struct {
	title string
	why   string
	ours  bool
	play  func(*show)
}

// show is a scene being played: what it did, and what came of it. Its methods
// print what they do. One that finds something wrong ends the scene; see try.
type show struct {
	*system
	scene   scene
	number  int
	ctx     context.Context
	out     *printer
	failure string // empty: it went as it should

	requests int // that carry a key: those that could move money
	answers  []string
	orders   []*expected
}

// expected is an order, how often Stripe should have charged it and how often it
// did in the end.
type expected struct {
	id       string
	want     int
	counts   bool // want has been said
	got      int
	currency string
	refund   int64 // how much should have gone back
	back     int64
}

// playAll plays the scenes one after the other: those whose titles match, and
// that can be played here.
func (s *system) playAll(ctx context.Context, titles *regexp.Regexp, out *printer) []*show {
	var shows []*show
	for _, scene := range scenes {
		if scene.ours && len(s.processes) == 0 || !titles.MatchString(scene.title) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		p := &show{system: s, scene: scene, number: len(shows) + 1, ctx: ctx, out: out}
		out.scene(p.number, scene)
		if s.console != nil {
			s.console.playing(p.number, scene.title)
		}
		p.try()
		shows = append(shows, p)
	}
	return shows
}

// disappointment is what a scene panics with when something is not as expected:
// that scene ends, the others are still played.
type disappointment string

func (p *show) try() {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case disappointment:
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

func (p *show) fail(format string, args ...any) {
	panic(disappointment(fmt.Sprintf(format, args...)))
}

// must is for what we do to the system ourselves.
func (p *show) must(err error) {
	if err != nil {
		p.fail("%v", err)
	}
}

// key names an intent of this scene.
func (p *show) key(intent string) string { return fmt.Sprintf("%s-%d-%s", intent, p.number, p.nonce) }

// ---- what a shop does --------------------------------------------------------

// order makes an order and returns its id.
func (p *show) order(to *door, amount int64, currency string) string {
	r := request{
		method: http.MethodPost, path: "/v1/orders", key: p.key(strings.TrimSuffix(fmt.Sprint("order", len(p.orders)+1), "1")),
		body: fmt.Sprintf(`{"currency":%q,"items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, currency, amount),
	}
	a := p.send(to, r)
	o := a.object()
	came := a.String()
	if o.ID != "" {
		came += "  " + o.ID
	}
	p.out.exchange(to.name, sent(r, money(amount, currency)), came)
	p.expect(a, http.StatusCreated, "open")
	p.orders = append(p.orders, &expected{id: o.ID, currency: currency})
	return o.ID
}

// payment is the request for a payment, and card how its line names the card.
func payment(key, order, method string) request {
	return request{method: http.MethodPost, path: "/v1/payments", key: key, body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, method)}
}

func card(method string) string {
	switch method {
	case declined:
		return "visa, declined"
	case secured:
		return "3-D Secure"
	}
	return strings.TrimPrefix(method, "pm_card_")
}

// pay sends a payment and prints it. Few scenes end with that: see paid.
func (p *show) pay(to *door, key, order, method string) answer {
	return p.post(to, payment(key, order, method), card(method))
}

// paid sends a payment and, on a machine so busy that even the simulator is late
// with its answer, repeats it until it is final.
func (p *show) paid(to *door, key, order, method string) answer {
	a := p.settle(to, payment(key, order, method), card(method))
	p.expect(a, http.StatusCreated, "succeeded")
	return a
}

// post sends a request with a key and prints it; detail is what to show of its body.
func (p *show) post(to *door, r request, detail string) answer {
	return p.received(to, r, detail, p.shop.send(p.ctx, to, r))
}

// settle repeats a request under its key until the answer is final, as a good
// client does: it prefers to wait, and is told to come back.
func (p *show) settle(to *door, r request, detail string) answer {
	r.patient = true
	for began := time.Now(); ; {
		a := p.post(to, r, detail)
		if a.final() || !a.mayChange() || time.Since(began) > patience {
			return a
		}
		pause, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			p.fail("an answer that is not final without Retry-After: %s", a)
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
}

// meanwhile sends without waiting for the answer, which received prints.
func (p *show) meanwhile(to *door, r request) <-chan answer {
	came := make(chan answer, 1)
	go func() { came <- p.shop.send(p.ctx, to, r) }()
	return came
}

func (p *show) received(from *door, r request, detail string, a answer) answer {
	p.note(a)
	p.out.exchange(from.name, sent(r, detail), fmt.Sprintf("%s, %s", a, ms(a.took)))
	return a
}

// together sends the same request n times at once, alternating between both doors.
func (p *show) together(n int, r request, detail string) []answer {
	return p.atOnce(slices.Repeat([]request{r}, n), sent(r, detail))
}

// atOnce does that with different requests; what is their line on the terminal.
func (p *show) atOnce(requests []request, what string) []answer {
	answers := make([]answer, len(requests))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, r := range requests {
		to := p.a
		if i%2 == 1 {
			to = p.b
		}
		all.Go(func() {
			<-start
			answers[i] = p.shop.send(p.ctx, to, r)
		})
	}
	close(start)
	all.Wait()
	var words []string
	for _, a := range answers {
		p.note(a)
		words = append(words, a.gist())
	}
	who := p.a.name
	if p.b.url != p.a.url {
		who += "," + p.b.name
	}
	p.out.exchange(who, fmt.Sprintf("%d × %s", len(requests), what), tallied(words))
	return answers
}

func (p *show) send(to *door, r request) answer {
	a := p.shop.send(p.ctx, to, r)
	p.note(a)
	return a
}

// note keeps a request and its answer for the table.
func (p *show) note(a answer) {
	p.requests++
	word := fmt.Sprint(a.status)
	switch {
	case a.err != nil:
		word = "none"
	case a.replayed():
		word += " replayed"
	}
	p.answers = append(p.answers, word)
}

// until asks for an object until its status is as wanted.
func (p *show) until(to *door, path, status string) answer {
	began := time.Now()
	for {
		a := p.shop.send(p.ctx, to, request{method: http.MethodGet, path: path})
		now := a.object().Status
		switch {
		case now == status:
			p.out.exchange(to.name, "GET "+short(path)+", until it is final", fmt.Sprintf("%s, after %.1f s", a, time.Since(began).Seconds()))
			return a
		case p.ctx.Err() != nil:
			p.fail("called off")
		case time.Since(began) > patience:
			p.fail("%s is %v after %s, not %s", path, now, patience, status)
		}
		time.Sleep(askAgain)
	}
}

// event tells what happens outside of requests.
func (p *show) event(format string, args ...any) { p.out.event(fmt.Sprintf(format, args...)) }

// ---- what must be so -----------------------------------------------------------

// expect checks an answer: its HTTP status, and the status or code in its body.
func (p *show) expect(a answer, status int, word string) {
	o := a.object()
	got := o.Code
	if got == "" {
		got = fmt.Sprint(o.Status)
	}
	if a.status != status || got != word {
		p.fail("expected %d %s, got %s %s", status, word, a, bytes.TrimSpace(a.body))
	}
}

// same checks that an answer is a replay of the first, byte for byte.
func (p *show) same(first, again answer) {
	switch {
	case !again.replayed():
		p.fail("the answer is not marked Idempotent-Replayed: %s", again)
	case first.status != again.status || !bytes.Equal(first.body, again.body):
		p.fail("the second answer differs from the first: %d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
}

// charged asks Stripe how often it took money for an order. Nobody else is asked.
func (p *show) charged(order string, want int) {
	p.expects(order, want)
	got, err := p.stripe.charges(p.ctx, order)
	p.must(err)
	if got != want {
		p.fail("at Stripe %s was %s, and should have been %s", order, times(got), times(want))
	}
	p.out.result(true, "Stripe's books: this order was "+times(got))
}

// expects notes how often an order should be charged, for the end.
func (p *show) expects(order string, want int) {
	o := p.expected(order)
	o.want, o.counts = want, true
}

// refunded asks Stripe how much of an order's money went back.
func (p *show) refunded(order string, want int64) {
	o := p.expected(order)
	o.refund = want
	effects, err := p.stripe.effects(p.ctx)
	p.must(err)
	got := refundedAtStripe(effects, order)
	if got != want {
		p.fail("of %s %s went back, and should have been %s", order, money(got, o.currency), money(want, o.currency))
	}
	p.out.result(true, "Stripe's books: "+money(got, o.currency)+" of this order went back")
}

func (p *show) expected(order string) *expected {
	for _, o := range p.orders {
		if o.id == order {
			return o
		}
	}
	panic("bug: no order of this scene: " + order)
}

// charges is the cell of the table: the count, for each order of the scene.
func (p *show) charges() string {
	var out []string
	for _, o := range p.orders {
		count := fmt.Sprint(o.got)
		if o.back > 0 {
			count += " (" + money(o.back, o.currency) + " refunded)"
		}
		out = append(out, count)
	}
	return tallied(out)
}

func (p *show) tally() string { return tallied(p.answers) }

// ---- words ---------------------------------------------------------------------

// sent is a request in one line.
func sent(r request, detail string) string {
	return pad(r.method+" "+short(r.path), 18) + "  " + pad(detail, 14) + "  key " + r.key
}

var longID = regexp.MustCompile(`\b([a-z]{3})_[0-9a-v]{26}\b`)

// short leaves ids of ours out: they are long, and stand on other lines.
func short(text string) string { return longID.ReplaceAllString(text, "${1}_…") }

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
