package http

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// Any client can have the service look up API keys that it made up, as many as it likes. So keys are looked up on
// connections that nothing else uses, many with one statement, and those that wait are limited and wait in a fair order:
// no client without a valid key can use up what the requests with one need (I30).

const (
	keyLanes     = 2   // statements at a time; made-up keys get one of them
	keyBatch     = 64  // keys that share a statement
	keyQueueMax  = 256 // keys that wait, of those known and of those unknown; four statements
	keyQueueWait = time.Second
)

// errKeyQueueFull says nothing about the key.
var errKeyQueueFull = unavailable(reasonAnonymous, keyQueueWait,
	"Too many API keys are being checked. Retry the request unchanged.")

// findKeys is the statement.
type findKeys func(context.Context, db.APIKeyAuthenticateParams) ([]db.APIKeyAuthenticateRow, error)

// keyLookups is the queue of API keys that are not in the cache. Those that were valid before go first. The others take
// turns by client network, so that one client's made-up keys delay its own only; if too many wait, the newest of the
// network that has the most is refused.
type keyLookups struct {
	findKeys findKeys
	within   time.Duration // bounds one statement

	mu      sync.Mutex
	busy    int                      // lanes
	pending map[keyDigest]*keyLookup // waiting or sent; a second request with the key joins
	known   []*keyLookup
	unknown map[netip.Prefix][]*keyLookup
	turns   []netip.Prefix // the keys of unknown, in the order of their turns
	waiting int            // in unknown
}

type keyLookup struct {
	tenantID string
	hash     keyDigest
	done     chan struct{}
	row      *db.APIKeyAuthenticateRow // nil: not valid
	err      error
}

func newKeyLookups(find findKeys, within time.Duration) *keyLookups {
	return &keyLookups{
		findKeys: find, within: within,
		pending: map[keyDigest]*keyLookup{}, unknown: map[netip.Prefix][]*keyLookup{},
	}
}

// find looks a key up. A nil row: the key is not valid.
func (l *keyLookups) find(
	ctx context.Context, tenantID string, hash keyDigest, known bool, from netip.Prefix,
) (*db.APIKeyAuthenticateRow, error) {
	k, err := l.enter(tenantID, hash, known, from)
	if err != nil {
		return nil, err
	}
	select {
	case <-k.done:
		return k.row, k.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *keyLookups) enter(tenantID string, hash keyDigest, known bool, from netip.Prefix) (*keyLookup, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.pending[hash]; k != nil {
		return k, nil
	}
	switch {
	case known && len(l.known) >= keyQueueMax:
		return nil, errOverloaded
	case !known && !l.makeRoom(from):
		return nil, errKeyQueueFull
	}
	k := &keyLookup{tenantID: tenantID, hash: hash, done: make(chan struct{})}
	l.pending[hash] = k
	if known {
		l.known = append(l.known, k)
	} else {
		if len(l.unknown[from]) == 0 {
			l.turns = append(l.turns, from)
		}
		l.unknown[from] = append(l.unknown[from], k)
		l.waiting++
	}
	if l.busy == 0 || known && l.busy < keyLanes {
		l.busy++
		go l.work()
	}
	return k, nil
}

// makeRoom reports whether another unknown key of this network may wait. If the queue is full, it takes the place of one
// of the network that has the most, unless that is its own.
func (l *keyLookups) makeRoom(from netip.Prefix) bool {
	if l.waiting < keyQueueMax {
		return true
	}
	most := slices.MaxFunc(l.turns, func(a, b netip.Prefix) int { return len(l.unknown[a]) - len(l.unknown[b]) })
	if len(l.unknown[from])+1 >= len(l.unknown[most]) {
		return false
	}
	last := len(l.unknown[most]) - 1
	evicted := l.unknown[most][last]
	l.unknown[most] = l.unknown[most][:last]
	l.waiting--
	l.end(evicted, nil, errKeyQueueFull)
	return true
}

// work is one lane: it sends batches while keys wait.
func (l *keyLookups) work() {
	for {
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		arg := db.APIKeyAuthenticateParams{}
		for _, k := range batch {
			arg.TenantIds = append(arg.TenantIds, k.tenantID)
			arg.KeyHashes = append(arg.KeyHashes, k.hash[:])
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.within)
		rows, err := l.findKeys(postgres.ForTenants(ctx, slices.Clone(arg.TenantIds)), arg)
		cancel()
		found := make([]*db.APIKeyAuthenticateRow, len(batch))
		for i := range rows {
			found[rows[i].Ordinal-1] = &rows[i]
		}
		l.mu.Lock()
		for i, k := range batch {
			l.end(k, found[i], err)
		}
		l.mu.Unlock()
	}
}

// take removes the next batch from the queues. Empty: the lane is given back. While both lanes are busy the second one
// sends known keys only.
func (l *keyLookups) take() (batch []*keyLookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(keyBatch, len(l.known))
	batch = append(batch, l.known[:n]...)
	l.known = slices.Delete(l.known, 0, n)
	for l.busy == 1 && len(batch) < keyBatch && len(l.turns) > 0 {
		from := l.turns[0]
		l.turns = l.turns[1:]
		batch = append(batch, l.unknown[from][0])
		l.waiting--
		if l.unknown[from] = l.unknown[from][1:]; len(l.unknown[from]) > 0 {
			l.turns = append(l.turns, from)
		} else {
			delete(l.unknown, from)
		}
	}
	if len(batch) == 0 {
		l.busy--
	}
	return batch
}

func (l *keyLookups) end(k *keyLookup, row *db.APIKeyAuthenticateRow, err error) {
	delete(l.pending, k.hash)
	k.row, k.err = row, err
	close(k.done)
}
