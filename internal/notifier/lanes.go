package notifier

import (
	"sync"
	"time"

	"example.com/payonce/db"
)

// lanes decides which endpoints are sent to next. Those that respond and those that are slow have connections of their
// own, so that endpoints that hang, however many they are, do not take those of the others. An endpoint is slow once an attempt has lasted slowAfter, and until one has ended sooner. No more than inFlightMax attempts a second
// turn slow, so a process has a bounded number of them.
type lanes struct {
	mu      sync.Mutex
	sending map[string]int // attempts in progress, by endpoint
	turned  int            // of these, attempts that are slow
	slow    map[string]bool
	left    map[string]time.Time // endpoints whose deliveries this process leaves to others, and until when
}

func newLanes() lanes {
	return lanes{sending: map[string]int{}, slow: map[string]bool{}, left: map[string]time.Time{}}
}

// leave has no deliveries to the endpoint leased for some time. It reports whether that is new.
func (l *lanes) leave(endpointID string, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	already := l.isLeft(endpointID)
	if !already {
		l.left[endpointID] = time.Now().Add(d)
	}
	return !already
}

// isLeft reports whether the endpoint is left to others, and drops it when the time is over.
func (l *lanes) isLeft(endpointID string) bool {
	until, is := l.left[endpointID]
	if is && time.Now().After(until) {
		delete(l.left, endpointID)
		return false
	}
	return is
}

// prompt leases deliveries to endpoints that are not slow. No rows: all connections are in use.
func (l *lanes) prompt() db.DeliveryLeaseParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := db.DeliveryLeaseParams{Lease: leaseDefault, Busy: []string{}, Among: []string{}, PerEndpoint: perEndpointMax}
	room := inFlightMax + l.turned
	for endpointID, sending := range l.sending {
		room -= sending
		p.Busy = append(p.Busy, endpointID)
	}
	for endpointID := range l.slow {
		if l.sending[endpointID] == 0 {
			p.Busy = append(p.Busy, endpointID)
		}
	}
	for endpointID := range l.left {
		if l.isLeft(endpointID) {
			p.Busy = append(p.Busy, endpointID)
		}
	}
	p.LimitRows = int32(max(0, room)) //nolint:gosec // tens
	return p
}

// slowOnes leases one delivery for each slow endpoint. No rows: there is no such endpoint, or their connections are in use.
func (l *lanes) slowOnes() db.DeliveryLeaseParams {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := db.DeliveryLeaseParams{Lease: leaseDefault, Busy: []string{}, PerEndpoint: 1}
	for endpointID := range l.slow {
		if l.sending[endpointID] == 0 && !l.isLeft(endpointID) {
			p.Among = append(p.Among, endpointID)
		}
	}
	if len(p.Among) > 0 {
		p.LimitRows = int32(max(0, slowMax-l.turned)) //nolint:gosec // tens
	}
	return p
}

// started counts an attempt until the function that it returns is called.
func (l *lanes) started(endpointID string) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending[endpointID]++
	late, turned, over := false, l.slow[endpointID], false
	if turned {
		l.turned++
	}
	timer := time.AfterFunc(slowAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if over {
			return
		}
		late, l.slow[endpointID] = true, true
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
			delete(l.slow, endpointID)
		}
		if l.sending[endpointID]--; l.sending[endpointID] == 0 {
			delete(l.sending, endpointID)
		}
	}
}
