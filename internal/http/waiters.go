package http

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/payonce/internal/idempotency"
)

// tenantWaiters is how many requests of one tenant may wait at a time for others with their keys.
const tenantWaiters = 256

// waiters are the requests that wait until the first request with their key has finished. Of those with one key, one
// polls for all: however many clients wait, the database is asked as often as for one.
type waiters struct {
	mu      sync.Mutex
	keys    map[waiterKey]*keyWaiters
	tenants map[string]int
}

// waiterKey has the fingerprint, because another request with the key gets another response.
type waiterKey struct{ tenantID, key, operation, fingerprint string }

type keyWaiters struct {
	n     int
	turn  chan struct{} // holds one token: the waiter that has it polls
	done  chan struct{} // closed when the key is finished
	found idempotency.Found
}

func newWaiters() *waiters {
	return &waiters{keys: map[waiterKey]*keyWaiters{}, tenants: map[string]int{}}
}

// enter counts a waiter. Nil: the tenant has too many.
func (ws *waiters) enter(key waiterKey) *keyWaiters {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.tenants[key.tenantID] >= tenantWaiters {
		return nil
	}
	ws.tenants[key.tenantID]++
	k := ws.keys[key]
	if k == nil {
		k = &keyWaiters{turn: make(chan struct{}, 1), done: make(chan struct{})}
		k.turn <- struct{}{}
		ws.keys[key] = k
	}
	k.n++
	return k
}

func (ws *waiters) leave(key waiterKey, k *keyWaiters) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.tenants[key.tenantID]--; ws.tenants[key.tenantID] == 0 {
		delete(ws.tenants, key.tenantID)
	}
	if k.n--; k.n == 0 && ws.keys[key] == k {
		delete(ws.keys, key)
	}
}

// finish tells all that wait for the key. Who comes later looks it up.
func (ws *waiters) finish(key waiterKey, k *keyWaiters, found idempotency.Found) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.keys[key] == k {
		delete(ws.keys, key)
	}
	k.found = found
	close(k.done)
}

// waitFor waits until the first request with a key has finished, and reports whether the caller should go on: with what
// was found, or if that is nil by looking the key up again. It holds no database connection.
func (s *Server) waitFor(
	ctx context.Context, r idempotency.Request, until time.Time, gone <-chan struct{},
) (*idempotency.Found, bool) {
	left := time.Until(until)
	if left <= 0 {
		return nil, false
	}
	key := waiterKey{r.TenantID, r.Key, r.Operation, string(r.Fingerprint)}
	k := s.waiters.enter(key)
	if k == nil {
		return nil, false
	}
	defer s.waiters.leave(key, k)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-k.turn:
	case <-k.done:
		return &k.found, true
	case <-timer.C:
		return nil, false
	case <-ctx.Done():
		return nil, false
	case <-gone: // No client may be left to wait for; one that has closed only its sending side gets 409 at once.
		return nil, false
	}
	defer func() { k.turn <- struct{}{} }()
	select {
	case <-k.done: // It was finished together with the turn.
		return &k.found, true
	default:
	}
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		select {
		case <-time.After(pause + time.Duration(rand.Int64N(int64(pause/4)+1))):
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		case <-gone:
			return nil, false
		}
		found, err := s.o.Keys.Lookup(ctx, r)
		switch {
		case err != nil:
			return nil, true
		case found.State == idempotency.Replay:
			s.waiters.finish(key, k, found)
			return &found, true
		case found.State != idempotency.InFlight:
			return nil, true // This one takes the work over. The next one polls for the rest.
		}
	}
}
