package http

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// tenantLimits is how much new work a tenant may ask of this process. Replays
// and resumed work are not counted; they are what retries are for.
type tenantLimits struct {
	perSecond float64
	mu        sync.Mutex
	tenants   map[string]*rate.Limiter
}

func newTenantLimits(perSecond float64) tenantLimits {
	return tenantLimits{perSecond: perSecond, tenants: map[string]*rate.Limiter{}}
}

// take admits one piece of new work, or refuses with the time to come back at.
func (l *tenantLimits) take(tenantID string) error {
	if l.perSecond == 0 {
		return nil
	}
	reservation := l.of(tenantID).Reserve()
	wait := reservation.Delay()
	if wait == 0 {
		return nil
	}
	reservation.Cancel()
	return &problem{code: codeRateLimited, detail: "Too many new requests a second. Send this one again with the same key.", retryAfter: max(wait, time.Second)}
}

func (l *tenantLimits) of(tenantID string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.tenants[tenantID]
	if !ok {
		burst := max(1, int(math.Ceil(2*l.perSecond)))
		limiter = rate.NewLimiter(rate.Limit(l.perSecond), burst)
		l.tenants[tenantID] = limiter
	}
	return limiter
}
