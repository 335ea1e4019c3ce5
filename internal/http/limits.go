package http

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// readsPerNew is how many times as many reads are allowed as new requests: they are cheaper, and a client that polls is no
// flood. What one tenant's reads cost another is bounded by its share of the slots (admission).
const readsPerNew = 100

// tenantLimits limits what a tenant may start in this process: new work, and with another
// limit reads, among which work that is resumed counts. Replays do not count, because a client
// that is discouraged from retrying may make a second payment instead.
type tenantLimits struct {
	perSecond float64
	detail    string
	mu        sync.Mutex
	tenants   map[string]*rate.Limiter
}

// newTenantLimits limits in memory, so each process allows the whole rate. A shared counter
// would add a write to each request.
func newTenantLimits(perSecond float64, detail string) tenantLimits {
	return tenantLimits{perSecond: perSecond, detail: detail, tenants: map[string]*rate.Limiter{}}
}

func newReadLimits(newPerSecond float64) tenantLimits {
	return newTenantLimits(readsPerNew*newPerSecond, "Too many reads per second. Retry more slowly.")
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
	return rateLimited(reasonTenantRate, max(wait, time.Second), l.detail)
}

func (l *tenantLimits) of(tenantID string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.tenants[tenantID]
	if !ok {
		// Two seconds' worth at once: clients send in bursts, for example after a pause.
		burst := max(1, int(math.Ceil(2*l.perSecond)))
		limiter = rate.NewLimiter(rate.Limit(l.perSecond), burst)
		l.tenants[tenantID] = limiter
	}
	return limiter
}
