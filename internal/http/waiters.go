package http

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"example.com/payonce/internal/idempotency"
)

// How many requests of one tenant may wait at a time. One that waits for an object costs less: what it waits for is
// read in batches, at most twice a second or so.
const (
	tenantWaiters       = 256  // for others with their keys
	tenantObjectWaiters = 2048 // for objects to become final
)

// The pauses of who polls grow up to these.
const (
	keyPauseMax    = 250 * time.Millisecond
	objectPauseMax = 600 * time.Millisecond
	// Those that have waited for long look together, so that their look-ups share statements. A server that has nothing
	// else to do would get one for each.
	lookTogether = 50 * time.Millisecond
)

// waiters are the requests that wait until the first request with their key has finished, or until an object is final.
// Of those that wait for the same, one polls for all: however many clients wait, the database is asked as often as for
// one.
type waiters[Found any] struct {
	most     int // of one tenant
	pauseMax time.Duration

	mu      sync.Mutex
	keys    map[waiterKey]*keyWaiters[Found]
	tenants map[string]int
}

// waiterKey names what is waited for: a key, or the id of an object. A key has the fingerprint, because another request
// with the key gets another response.
type waiterKey struct{ tenantID, key, operation, fingerprint string }

type keyWaiters[Found any] struct {
	n     int
	turn  chan struct{} // holds one token: the waiter that has it polls
	done  chan struct{} // closed when the wait is over for all
	found Found
}

// polled is what one look has shown.
type polled int

const (
	notYet    polled = iota
	doneAlone        // for the one that has polled; the next one polls for the rest
	doneForAll
)

func newWaiters[Found any](most int, pauseMax time.Duration) *waiters[Found] {
	return &waiters[Found]{
		most: most, pauseMax: pauseMax, keys: map[waiterKey]*keyWaiters[Found]{}, tenants: map[string]int{},
	}
}

// enter counts a waiter. Nil: the tenant has too many.
func (ws *waiters[Found]) enter(key waiterKey) *keyWaiters[Found] {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.tenants[key.tenantID] >= ws.most {
		return nil
	}
	ws.tenants[key.tenantID]++
	k := ws.keys[key]
	if k == nil {
		k = &keyWaiters[Found]{turn: make(chan struct{}, 1), done: make(chan struct{})}
		k.turn <- struct{}{}
		ws.keys[key] = k
	}
	k.n++
	return k
}

func (ws *waiters[Found]) leave(key waiterKey, k *keyWaiters[Found]) {
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
func (ws *waiters[Found]) finish(key waiterKey, k *keyWaiters[Found], found Found) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.keys[key] == k {
		delete(ws.keys, key)
	}
	k.found = found
	close(k.done)
}

// wait returns when a poll has ended the wait, with what was found, which is nil if that was not for all. False: it has
// not ended in time, or the tenant has too many waiters. It holds no database connection.
func (ws *waiters[Found]) wait(
	ctx context.Context, key waiterKey, until time.Time, gone <-chan struct{}, poll func() (Found, polled),
) (*Found, bool) {
	left := time.Until(until)
	if left <= 0 {
		return nil, false
	}
	k := ws.enter(key)
	if k == nil {
		return nil, false
	}
	defer ws.leave(key, k)
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
	case <-gone: // No client may be left to wait for; one that has closed only its sending side is answered at once.
		return nil, false
	}
	defer func() { k.turn <- struct{}{} }()
	select {
	case <-k.done: // It was finished together with the turn.
		return &k.found, true
	default:
	}
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, ws.pauseMax) {
		select {
		case <-time.After(untilLook(time.Now(), pause)):
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		case <-gone:
			return nil, false
		}
		switch found, state := poll(); state {
		case notYet:
		case doneForAll:
			ws.finish(key, k, found)
			return &found, true
		case doneAlone:
			return nil, true
		}
	}
}

// untilLook is how long a pause lasts: a little longer than asked for, so that few end at the same time, and a long one
// until the next look of all.
func untilLook(now time.Time, pause time.Duration) time.Duration {
	if pause < objectPauseMax {
		return pause + time.Duration(rand.Int64N(int64(pause/4)+1))
	}
	return now.Add(pause).Truncate(lookTogether).Add(lookTogether).Sub(now)
}

// waitFor waits until the first request with a key has finished, and reports whether the caller should go on: with what
// was found, or if that is nil by looking the key up again.
func (s *Server) waitFor(
	ctx context.Context, r idempotency.Request, until time.Time, gone <-chan struct{},
) (*idempotency.Found, bool) {
	key := waiterKey{r.TenantID, r.Key, r.Operation, string(r.Fingerprint)}
	return s.waiters.wait(ctx, key, until, gone, func() (idempotency.Found, polled) {
		found, err := s.o.Keys.Lookup(ctx, r)
		switch {
		case err != nil:
			return found, doneAlone
		case found.State == idempotency.Replay:
			return found, doneForAll
		case found.State != idempotency.InFlight:
			return found, doneAlone // This one takes the work over.
		}
		return found, notYet
	})
}

// whenFinal gets the object in the path of a request, with Prefer: wait=N once look shows it to be final, or after N
// seconds. Another process may make it final, so it is looked at again and again; look reads in a batch.
func whenFinal[Object, State any](
	s *Server, r *http.Request, get func(ctx context.Context, tenantID, id string) (Object, error),
	look func(ctx context.Context, tenantID, id string) (State, error), final func(State) bool,
) (object Object, err error) {
	ctx, began, wait := r.Context(), time.Now(), preferredWait(r.Header)
	key := waiterKey{tenantID: tenantOf(r).id, key: r.PathValue("id")}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = s.bounded(context.WithoutCancel(ctx), wait)
		defer cancel()
		poll := func() (none struct{}, _ polled) {
			state, err := look(ctx, key.tenantID, key.key)
			switch {
			case err != nil:
				return none, doneAlone // Getting it has the same error, or none.
			case final(state):
				return none, doneForAll
			}
			return none, notYet
		}
		if _, state := poll(); state == notYet {
			visit := visitOf(r)
			visit.slot.release()
			s.objects.wait(ctx, key, began.Add(wait), visit.gone, poll)
			if err := s.admit(ctx, r, classRead); err != nil {
				return object, err
			}
		}
	}
	return get(ctx, key.tenantID, key.key)
}
