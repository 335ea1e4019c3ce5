package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// keyLifetime is how long the provider knows an idempotency key, as Stripe does.
const keyLifetime = 24 * time.Hour

var (
	errNoAnswer    = errors.New("provider: the connection broke before an answer came") // it may have charged, or not
	errUnavailable = errors.New("provider: 503")                                        // it has not
)

// fault is what goes wrong with one call to the provider.
type fault int

const (
	nothing        fault = iota
	waitForAnother       // until a second call for the same order has come, too
	loseTheAnswer        // it charges, and the response is lost
	killAfter            // it charges, and the caller's process is killed
	killBefore           // the caller's process is killed before the charge
	answerLate           // it charges, and the answer waits until release
)

// provider charges cards, and keeps the log that everything is checked against: what it
// charged, whatever it responded.
type provider struct {
	meeting
	takes time.Duration // to charge

	mu      sync.Mutex
	log     []charge
	keys    map[string]known
	plan    map[string][]fault // by order: what happens to its next calls
	down    bool
	late    chan struct{} // closed when late answers may go
	waiting int           // late answers
}

type charge struct {
	ID, Order string
	Amount    int
}

type known struct {
	charge charge
	at     time.Time
}

func newProvider() *provider {
	return &provider{keys: map[string]known{}, plan: map[string][]fault{}, late: make(chan struct{})}
}

// next plans what happens to the next calls for an order. Those after go well.
func (p *provider) next(order string, faults ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan[order] = faults
}

// Charge charges the order's customer, unless it knows the key: then it gives
// the answer it gave before.
func (p *provider) Charge(ctx context.Context, key, order string, amount int) (string, error) {
	p.mu.Lock()
	f := nothing
	if plan := p.plan[order]; len(plan) > 0 {
		f, p.plan[order] = plan[0], plan[1:]
	}
	down := p.down
	p.mu.Unlock()
	switch {
	case down:
		return "", errUnavailable
	case f == waitForAnother:
		p.meet(order)
	case f == killBefore:
		die()
	}
	time.Sleep(p.takes)
	c := p.book(key, order, amount)
	switch f { //nolint:exhaustive // the others have had their turn
	case loseTheAnswer:
		return "", errNoAnswer
	case killAfter:
		die()
	case answerLate:
		p.mu.Lock()
		p.waiting++
		p.mu.Unlock()
		select {
		case <-p.late:
		case <-ctx.Done():
			return "", errNoAnswer
		}
	}
	return c.ID, nil
}

func (p *provider) book(key, order string, amount int) charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.keys[key]; ok && key != "" && time.Since(k.at) < keyLifetime {
		return k.charge
	}
	c := charge{ID: fmt.Sprintf("ch_%d", len(p.log)+1), Order: order, Amount: amount}
	p.log = append(p.log, c)
	p.keys[key] = known{c, time.Now()}
	return c
}

// find looks whether an order was charged.
func (p *provider) find(order string) (charge, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.log, func(c charge) bool { return c.Order == order })
	if i < 0 {
		return charge{}, false
	}
	return p.log[i], true
}

func (p *provider) outage(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// holds waits until so many answers are held back.
func (p *provider) holds(n int) {
	eventually("answers are held back", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waiting >= n
	})
}

// holdsWithin gives so many callers a moment to arrive, and returns how many did.
func (p *provider) holdsWithin(n int, moment time.Duration) (waiting int) {
	for end := time.Now().Add(moment); waiting < n && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		p.mu.Lock()
		waiting = p.waiting
		p.mu.Unlock()
	}
	return waiting
}

// release lets the late answers go.
func (p *provider) release() { close(p.late) }

func (p *provider) timePasses(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.keys {
		p.keys[key] = known{k.charge, k.at.Add(-d)}
	}
}

// eventually polls a condition that the scenario cannot go on without.
func eventually(what string, holds func() bool) {
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			panic("waited in vain until " + what)
		}
	}
}
