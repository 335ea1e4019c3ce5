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
	maxActionRuns  = 40 // whose keys and orders a late fact may still name
	activeAfterEnd = 5 * time.Second
)

// story is what came of pressing a button: one card on the page.
type actionRun struct {
	*console
	ctx   context.Context
	id    int64
	title string
	order string
	pay   request

	mu     sync.Mutex
	ended  time.Time // zero: under way
	result entry
}

// run tells an action's story, from the press of the button to the verdict.
func (a action) run(ctx context.Context, c *console) {
	s := &actionRun{console: c, ctx: ctx, title: a.Title}
	s.id = c.board.add(entry{Kind: kindAction, Text: a.Title, Answer: a.Why})
	err := a.do(s)
	c.refresh()
	verdict := entry{Kind: kindResult, Answer: a.Reason, Tone: toneGood}
	switch {
	case err != nil && ctx.Err() != nil:
		verdict.Tone, verdict.Answer = toneWait, "It took too long, and was given up here. The service goes on with it."
	case err != nil:
		verdict.Tone, verdict.Answer = toneBad, "Not as it should be: "+err.Error()
	}
	s.mu.Lock()
	s.ended, s.result = time.Now(), verdict
	s.mu.Unlock()
	s.showResult(verdict)
}

// judge says how the story ended. About the number it asks Stripe's books alone.
func (s *actionRun) showResult(verdict entry) {
	n := s.board.chargesOf(s.order)
	verdict.Text, verdict.Charges = "Stripe's books: this order was "+times(n)+".", &n
	if n > 1 {
		verdict.Tone, verdict.Answer = toneBad, "This must never happen."
	}
	s.add(verdict)
}

// mend judges again, if the story has ended and was charged after that.
func (s *actionRun) updateResult() {
	s.mu.Lock()
	verdict, over := s.result, !s.ended.IsZero()
	s.mu.Unlock()
	if over {
		s.showResult(verdict)
	}
}

// say adds a line to the story.
func (s *actionRun) add(e entry) int64 {
	e.Story = s.id
	return s.board.add(e)
}

// fresh reports whether more can be expected of a story.
func (s *actionRun) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended.IsZero() || time.Since(s.ended) < activeAfterEnd
}

// buy makes an order, for which every request of the story asks to be charged.
func (s *actionRun) createOrder() error {
	r := request{
		method: http.MethodPost, path: "/v1/orders", key: "order-" + randomHex(4),
		body: fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":%d}]}`, consoleAmount),
	}
	a, err := s.sendUntilFinal(s.upEndpoint(), r, func(to *endpoint) response { return s.shop.send(s.ctx, to, r) })
	if err != nil {
		return fmt.Errorf("no order: %w", err)
	}
	s.order = a.object().ID
	s.pay = payment("pay-"+randomHex(3), s.order, visa)
	s.rememberRun(s)
	s.board.addPurchase(&purchase{Order: s.order, Title: s.title})
	return nil
}

// ask sends the payment once, and runs what came back.
func (s *actionRun) sendPayment(to *endpoint) response {
	e := entry{Kind: kindRequest, Who: "Shop → " + to.name, Text: "POST /v1/payments, key " + s.pay.key, Answer: "no answer yet", Tone: toneWait, At: time.Now()}
	e.ID = s.add(e)
	s.board.countRequests(s.order, 1, 0)
	a := s.shop.send(s.ctx, to, s.pay)
	s.countSuppressed(a)
	e.Answer, e.Tone = a.summary()+", "+ms(a.took), tone(a)
	if gloss := explain(a); gloss != "" {
		e.Answer += ": " + gloss
	}
	s.add(e)
	return a
}

// asking is ask, while something else is done.
func (s *actionRun) sendPaymentAsync(to *endpoint) <-chan response {
	came := make(chan response, 1)
	go func() { came <- s.sendPayment(to) }()
	return came
}

// suppressed counts the answers of those who changed nothing.
func (s *actionRun) countSuppressed(answers ...response) {
	n := 0
	for _, a := range answers {
		if a.replayed() || a.status == http.StatusConflict {
			n++
		}
	}
	s.board.countRequests(s.order, 0, n)
}

// together sends the payment n times at once, alternating between both processes if
// both are there.
func (s *actionRun) sendPayments(n int, text string) []response {
	doors := []*endpoint{s.b}
	if s.upEndpoint() == s.a {
		doors = []*endpoint{s.a, s.b}
	}
	var names []string
	for _, d := range doors {
		names = append(names, d.name)
	}
	e := entry{Kind: kindRequest, Who: "Shop → " + strings.Join(names, ", "), Text: text, Answer: "no answer yet", Tone: toneWait, At: time.Now()}
	e.ID = s.add(e)
	s.board.countRequests(s.order, n, 0)
	answers := make([]response, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-start
			answers[i] = s.shop.send(s.ctx, doors[i%len(doors)], s.pay)
		})
	}
	close(start)
	all.Wait()
	s.countSuppressed(answers...)
	var words []string
	e.Tone = toneGood
	for _, a := range answers {
		words = append(words, a.summary())
		e.Dots += dot(a)
		if tone(a) != toneGood {
			e.Tone = toneWait
		}
	}
	e.Answer = summarize(words)
	s.add(e)
	return answers
}

// paid asks until the answer is final, as a good client does: the same request
// under the same key, and at the other door if nobody answers at this one.
func (s *actionRun) payUntilFinal(to *endpoint) error {
	a, err := s.sendUntilFinal(to, s.pay, s.sendPayment)
	if err == nil && (a.status != http.StatusCreated || a.object().Status != "succeeded") {
		err = fmt.Errorf("the answer is %s", a)
	}
	return err
}

func (s *actionRun) sendUntilFinal(to *endpoint, r request, ask func(*endpoint) response) (response, error) {
	for {
		a := ask(to)
		switch {
		case s.ctx.Err() != nil:
			return a, s.ctx.Err()
		case a.final():
			return a, nil
		case a.err != nil:
			to = s.otherEndpoint(to)
		case !a.retryable():
			return a, fmt.Errorf("%s %s was answered %s", r.method, r.path, a)
		}
		pause, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			pause = 1
		}
		select {
		case <-time.After(time.Duration(pause) * time.Second):
		case <-s.ctx.Done():
			return a, s.ctx.Err()
		}
	}
}

// held has process A ask Stripe for the money, and stops Stripe right after it has
// taken it and before A can know. In this moment worst is called, with the answer
// to come and what lets Stripe go on.
func (s *actionRun) holdStripe(worst func(answered <-chan response, release func() error) error) error {
	hold, err := s.stripe.hold(s.ctx, "intent.confirm", s.order, stripesim.AfterEffect)
	if err != nil {
		return err
	}
	release := sync.OnceValue(func() error { return s.stripe.release(context.WithoutCancel(s.ctx), hold) })
	answered := s.sendPaymentAsync(s.a)
	if err = s.stripe.waitForHold(s.ctx, hold); err == nil {
		err = worst(answered, release)
	}
	return errors.Join(err, release())
}

// ---- whose story a fact belongs to ------------------------------------------------

// remember has facts about the story's key and order told in it.
func (c *console) rememberRun(s *actionRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[s.pay.key], c.runs[s.order] = s, s
	c.lastRun = s
	if c.runKeys = append(c.runKeys, s.pay.key, s.order); len(c.runKeys) > 2*maxActionRuns {
		for _, id := range c.runKeys[:2] {
			delete(c.runs, id)
			delete(c.historyRead, id)
		}
		c.shop.dropRecorded(c.runKeys[0])
		c.runKeys = slices.Delete(c.runKeys, 0, 2)
	}
}

// storyOf is the story of one of the ids, or nil.
func (c *console) runOf(ids ...string) *actionRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.runs[id]; s != nil {
			return s
		}
	}
	return nil
}

// orderIn finds the order that an event is about.
func orderIn(event []byte) string {
	var e struct {
		Data struct {
			OrderID string `json:"order_id"`
		}
	}
	_ = json.Unmarshal(event, &e) // what names no order is in nobody's story
	return e.Data.OrderID
}

// ---- words ---------------------------------------------------------------------------

func tone(a response) string {
	switch {
	case a.err != nil:
		return toneBad
	case a.final():
		return toneGood
	}
	return toneWait
}

// dot is the letter for an answer of many: n for what was done now, r for what was
// repeated from memory, w for told to wait, x for no answer.
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

// gloss puts an answer into words, for those who do not read HTTP.
func explain(a response) string {
	switch {
	case a.err != nil:
		return "the shop cannot know whether it was charged"
	case a.replayed():
		return "the stored answer, byte for byte"
	case a.status == http.StatusAccepted:
		return "not known yet, ask again"
	case a.status == http.StatusConflict:
		return "somebody is on it, ask again"
	case a.retryable():
		return "nothing was done, ask again"
	}
	return ""
}
