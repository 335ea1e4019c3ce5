package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	firstWait   = 200 * time.Millisecond // before the first retry, at most
	longestWait = 10 * time.Second       // before any

	budgetMax = 100 // retries before all of them wait longestWait
	perCall   = 0.2 // retries that each call of Do gives back
)

// budget slows retries down once there are many for each call: clients that all retry keep a slow server from ever
// recovering (https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/).
type budget struct {
	mu    sync.Mutex
	spent float64
	scale float64 // of the waits, in tests; 1 if it is 0
}

func (b *budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-perCall)
}

func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spent+1 > budgetMax {
		return false
	}
	b.spent++
	return true
}

// wait is the time until the next attempt, n being the number of this one, from 0: a random part of a time that doubles
// from firstWait to longestWait (full jitter); after Retry-After, what the server wants and a random part on top.
func (b *budget) wait(n int, res *Response, now time.Time) time.Duration {
	most := longestWait
	if b.take() {
		most = min(longestWait, firstWait<<min(n, 10))
	}
	if b.scale > 0 {
		most = max(20, time.Duration(float64(most)*b.scale))
	}
	wait := most/20 + rand.N(most-most/20)
	if res == nil {
		return wait
	}
	if asked := retryAfter(res.Header, now); asked > 0 {
		return asked + wait/4 // or those that were refused together come back together
	}
	return wait
}

// longestRetryAfter is what a longer Retry-After is taken for: some 68 years, which can be added to.
const longestRetryAfter = (1<<31 - 1) * time.Second

// retryAfter reads Retry-After (RFC 9110, 10.2.3): seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err == nil {
		return time.Duration(seconds) * time.Second
	}
	if errors.Is(err, strconv.ErrRange) {
		return longestRetryAfter
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, at.Sub(now)), longestRetryAfter)
	}
	return 0
}

// sleep returns false at once if the context ends before d is over.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// turns lets the calls for one intent run one after another.
type turns struct {
	mu   sync.Mutex
	busy map[string]*turn
}

type turn struct {
	slot    chan struct{}
	callers int
}

// take waits for the calls before, and returns what ends this one's turn.
func (t *turns) take(ctx context.Context, intent string) (done func(), err error) {
	t.mu.Lock()
	if t.busy == nil {
		t.busy = map[string]*turn{}
	}
	one := t.busy[intent]
	if one == nil {
		one = &turn{slot: make(chan struct{}, 1)}
		t.busy[intent] = one
	}
	one.callers++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.callers--; one.callers == 0 {
			delete(t.busy, intent)
		}
	}
	select {
	case one.slot <- struct{}{}:
		return func() { <-one.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
