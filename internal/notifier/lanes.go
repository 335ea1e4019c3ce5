package notifier

import (
	"sync"
	"time"

	"example.com/payonce/db"
)

// lanes decides which tenants are sent to next. Endpoints that respond and those that are slow have connections of
// their own, so that tenants whose endpoints hang, however many they are, do not take those of the others. A tenant is
// slow once an attempt has lasted slowAfter, and until one has ended sooner. No more than inFlightMax attempts a second
// turn slow, so a process has a bounded number of them.
type lanes struct {
	mu      sync.Mutex
	sending map[string]int // attempts in progress, by tenant
	turned  int            // of these, attempts that are slow
	slow    map[string]bool
	left    map[string]time.Time // tenants whose deliveries this process leaves to others, and until when
}

func newLanes() lanes {
	return lanes{sending: map[string]int{}, slow: map[string]bool{}, left: map[string]time.Time{}}
}

// leave has no deliveries of the tenant leased for some time. It reports whether that is new.
func (l *lanes) leave(tenantID string, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	already := l.isLeft(tenantID)
	if !already {
		l.left[tenantID] = time.Now().Add(d)
	}
	return !already
}

// isLeft reports whether the tenant is left to others, and drops it when the time is over.
func (l *lanes) isLeft(tenantID string) bool {
	until, is := l.left[tenantID]
	if is && time.Now().After(until) {
		delete(l.left, tenantID)
		return false
	}
	return is
}

// prompt leases deliveries for tenants that are not slow. No rows: all connections are in use.
func (l *lanes) prompt() db.DeliveryLeaseParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := db.DeliveryLeaseParams{Lease: leaseDefault, Busy: []string{}, Among: []string{}, PerTenant: perTenantMax}
	room := inFlightMax + l.turned
	for tenantID, sending := range l.sending {
		room -= sending
		p.Busy = append(p.Busy, tenantID)
	}
	for tenantID := range l.slow {
		if l.sending[tenantID] == 0 {
			p.Busy = append(p.Busy, tenantID)
		}
	}
	for tenantID := range l.left {
		if l.isLeft(tenantID) {
			p.Busy = append(p.Busy, tenantID)
		}
	}
	p.LimitRows = int32(max(0, room)) //nolint:gosec // tens
	return p
}

// slowOnes leases one delivery for each slow tenant. No rows: there is no such tenant, or their connections are in use.
func (l *lanes) slowOnes() db.DeliveryLeaseParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := db.DeliveryLeaseParams{Lease: leaseDefault, Busy: []string{}, PerTenant: 1}
	for tenantID := range l.slow {
		if l.sending[tenantID] == 0 && !l.isLeft(tenantID) {
			p.Among = append(p.Among, tenantID)
		}
	}
	if len(p.Among) > 0 {
		p.LimitRows = int32(max(0, slowMax-l.turned)) //nolint:gosec // tens
	}
	return p
}

// started counts an attempt until the function that it returns is called.
func (l *lanes) started(tenantID string) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending[tenantID]++
	late, turned, over := false, l.slow[tenantID], false
	if turned {
		l.turned++
	}
	timer := time.AfterFunc(slowAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if over {
			return
		}
		late, l.slow[tenantID] = true, true
		if !turned {
			turned = true
			l.turned++
		}
	})
	return func() {
		timer.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		over = true
		if turned {
			l.turned--
		}
		if !late {
			delete(l.slow, tenantID)
		}
		if l.sending[tenantID]--; l.sending[tenantID] == 0 {
			delete(l.sending, tenantID)
		}
	}
}
