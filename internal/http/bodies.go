package http

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// A client can send all of a body but its end, over any number of connections. So all bodies that are being received together
// have a limit. The webhooks whose signature is not checked yet, which anybody can send, have one limit, and the bodies of
// the tenants have another. A limit must not be first come, first served: a few connections that send a large body and never
// its end would then keep others out. When a limit is exceeded, the network, or the tenant, that has the most bytes gives its largest body up.
// Stripe's events and most requests are small and arrive at once, so they get through even if they share a network or a
// tenant with a flood.

const (
	webhookMax  = 1 << 20
	unsignedMax = 32 << 20 // of all webhooks whose signature is not checked yet
	receivedMax = 32 << 20 // of all bodies of tenants
)

// errTooManyBodies is for a webhook that was given up so that others have room, errTooManyOfTenant for a tenant's body.
var (
	errTooManyBodies = unavailable(reasonWebhookBodies, webhookRetry,
		"Too many webhooks are being received. This one was not stored.")
	errTooManyOfTenant = unavailable(reasonTenantQueue, time.Second,
		"Too many bodies of this tenant are being received. Retry the request unchanged.")
)

// bodies are the bodies that are being received and share a limit.
type bodies struct {
	most   int64
	tooFew error // for a body that was given up

	mu     sync.Mutex
	bytes  int64
	owners map[string]int64 // bytes of each
	open   map[*pendingBody]struct{}
}

// pendingBody counts what it has read.
type pendingBody struct {
	io.ReadCloser
	all    *bodies
	owner  string // the network of a webhook, or the tenant
	bytes  int64
	giveUp func() // ends what its request waits for; it must not block
}

func newBodies(most int64, tooFew error) *bodies {
	return &bodies{most: most, tooFew: tooFew, owners: map[string]int64{}, open: map[*pendingBody]struct{}{}}
}

// add begins to count a body, until it is removed.
func (a *bodies) add(body io.ReadCloser, owner string, giveUp func()) *pendingBody {
	b := &pendingBody{ReadCloser: body, all: a, owner: owner, giveUp: giveUp}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[b] = struct{}{}
	return b
}

// remove reports whether the body was still counted: it was not given up.
func (a *bodies) remove(b *pendingBody) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drop(b)
}

func (a *bodies) drop(b *pendingBody) bool {
	if _, ok := a.open[b]; !ok {
		return false
	}
	delete(a.open, b)
	a.bytes -= b.bytes
	if a.owners[b.owner] -= b.bytes; a.owners[b.owner] == 0 {
		delete(a.owners, b.owner)
	}
	return true
}

// grow counts bytes of a body, and makes room for the bytes. grow reports false if the body was given up.
func (a *bodies) grow(b *pendingBody, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.open[b]; !ok {
		return false
	}
	b.bytes += n
	a.bytes += n
	a.owners[b.owner] += n
	for a.bytes > a.most {
		largest := a.largest()
		a.drop(largest)
		largest.giveUp()
	}
	_, ok := a.open[b]
	return ok
}

// largest is the body to give up. The search runs only when there is no room, and the request that is then given up costs
// more work than the search.
func (a *bodies) largest() (largest *pendingBody) {
	for b := range a.open {
		if largest == nil || a.owners[b.owner] > a.owners[largest.owner] ||
			a.owners[b.owner] == a.owners[largest.owner] && b.bytes > largest.bytes {
			largest = b
		}
	}
	return largest
}

// held is the bytes of all bodies.
func (a *bodies) held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// Read implements io.Reader.
func (b *pendingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.all.grow(b, int64(n)) {
		return 0, b.all.tooFew
	}
	return n, err
}

// readTenantBody is readBody for a request with an API key.
func (s *Server) readTenantBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control, unread := http.NewResponseController(w), r.Body // A recorder in a test has no deadlines.
	pending := s.received.add(unread, tenantOf(r).id, func() { _ = control.SetReadDeadline(time.Now()) })
	r.Body = pending
	defer func() {
		r.Body = unread // What the client still sends is dropped (linger), and counts no more.
		s.received.remove(pending)
	}()
	body, err := readBody(w, r, bodyMax)
	s.received.mu.Lock()
	_, open := s.received.open[pending]
	s.received.mu.Unlock()
	if err != nil && !open {
		return nil, errTooManyOfTenant // whatever the deadline has made of it
	}
	return body, err
}
