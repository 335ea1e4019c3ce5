package http

import (
	"io"
	"net/netip"
	"sync"
)

// Anybody can send a webhook, and its signature can be checked only when its whole body is there. So until then all
// bodies together have a limit. It must not be first come, first served: a few connections that send a large body and
// never its end would then keep Stripe's out. When the limit is exceeded, the network that has the most bytes gives its
// largest body up. Stripe's events are small and arrive at once, so they get through even if they share a network with
// a flood, as all do behind a proxy.

const (
	webhookMax  = 1 << 20
	unsignedMax = 32 << 20 // of all bodies whose signature is not checked yet
)

// errTooManyBodies is for a webhook that was given up so that others have room.
var errTooManyBodies = unavailable(reasonWebhookBodies, webhookRetry,
	"Too many webhooks are being received. This one was not stored.")

// unsignedBodies are the bodies of webhooks whose signature is not checked yet.
type unsignedBodies struct {
	mu       sync.Mutex
	bytes    int64
	networks map[netip.Prefix]int64 // bytes of each
	bodies   map[*unsignedBody]struct{}
}

// unsignedBody counts what it has read.
type unsignedBody struct {
	io.ReadCloser
	all     *unsignedBodies
	network netip.Prefix
	bytes   int64
	giveUp  func() // ends what its request waits for; it must not block
}

func newUnsignedBodies() *unsignedBodies {
	return &unsignedBodies{networks: map[netip.Prefix]int64{}, bodies: map[*unsignedBody]struct{}{}}
}

// add begins to count a body, until it is removed.
func (u *unsignedBodies) add(body io.ReadCloser, network netip.Prefix, giveUp func()) *unsignedBody {
	b := &unsignedBody{ReadCloser: body, all: u, network: network, giveUp: giveUp}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bodies[b] = struct{}{}
	return b
}

// remove reports whether the body was still counted: it was not given up.
func (u *unsignedBodies) remove(b *unsignedBody) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.drop(b)
}

func (u *unsignedBodies) drop(b *unsignedBody) bool {
	if _, ok := u.bodies[b]; !ok {
		return false
	}
	delete(u.bodies, b)
	u.bytes -= b.bytes
	if u.networks[b.network] -= b.bytes; u.networks[b.network] == 0 {
		delete(u.networks, b.network)
	}
	return true
}

// grow counts bytes of a body, and makes room for them. False: the body is given up.
func (u *unsignedBodies) grow(b *unsignedBody, n int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.bodies[b]; !ok {
		return false
	}
	b.bytes += n
	u.bytes += n
	u.networks[b.network] += n
	for u.bytes > unsignedMax {
		largest := u.largest()
		u.drop(largest)
		largest.giveUp()
	}
	_, ok := u.bodies[b]
	return ok
}

// largest is the body to give up. It is looked for only when there is no room, and then the request that it costs is
// more work.
func (u *unsignedBodies) largest() (largest *unsignedBody) {
	for b := range u.bodies {
		if largest == nil || u.networks[b.network] > u.networks[largest.network] ||
			u.networks[b.network] == u.networks[largest.network] && b.bytes > largest.bytes {
			largest = b
		}
	}
	return largest
}

// held is the bytes of all bodies.
func (u *unsignedBodies) held() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bytes
}

// Read implements io.Reader.
func (b *unsignedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.all.grow(b, int64(n)) {
		return 0, errTooManyBodies
	}
	return n, err
}
