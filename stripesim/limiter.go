package stripesim

import (
	"sync"
	"time"
)

// Limits are the requests a second Stripe lets pass. Zero is no limit. Stripe's
// own are 25 for each endpoint and, in a sandbox, 25 for the account.
type Limits struct {
	PerEndpoint float64 `json:"per_endpoint"`
	Global      float64 `json:"global"`
}

// SetLimits switches the rate limiter on or off. A full bucket holds one
// second's worth.
func (s *Sim) SetLimits(l Limits) {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	s.limits.set = l
	s.limits.buckets = map[string]*bucket{}
}

type limiter struct {
	mu      sync.Mutex
	set     Limits
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// exceeded takes a token from each bucket, or names the one that is empty.
func (l *limiter) exceeded(endpoint string, now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.set.Global > 0 && !l.take("", l.set.Global, now):
		return "global-rate"
	case l.set.PerEndpoint > 0 && !l.take(endpoint, l.set.PerEndpoint, now):
		return "endpoint-rate"
	}
	return ""
}

func (l *limiter) take(name string, rate float64, now time.Time) bool {
	b := l.buckets[name]
	if b == nil {
		b = &bucket{tokens: max(rate, 1), at: now}
		l.buckets[name] = b
	}
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*rate, max(rate, 1))
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
