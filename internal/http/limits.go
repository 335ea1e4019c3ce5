package http

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// tenantLimits limits the new work that a tenant may start in this process. Replays and
// resumed work do not count, because a client that is discouraged from retrying may make
// a second payment instead.
type tenantLimits struct {
	perSecond float64
	mu        sync.Mutex
	tenants   map[string]*rate.Limiter
}

func newTenantLimits(perSecond float64) tenantLimits {
	return tenantLimits{perSecond: perSecond, tenants: map[string]*rate.Limiter{}}
}

// take admits one request, or returns a problem with the time to wait. A refused request
// does not use up the limit, or a client that retries too early would never get through.
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
	return &problem{
		code: codeRateLimited, detail: "Too many new requests per second. Retry with the same key.",
		retryAfter: max(wait, time.Second),
	}
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
