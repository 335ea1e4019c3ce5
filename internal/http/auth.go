package http

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

const (
	// keyCached is how long the result for a key is trusted without a query, whether it is
	// valid or not. It saves one query per request, but a revoked key may work for that long.
	keyCached = time.Second

	// Valid keys stay in memory for longer: a key that was valid here before is looked up
	// before those that may be made up.
	keysKnownMax   = 10_000
	keysRefusedMax = 4096

	keyCheckTimeout = 5 * time.Second // of one query
)

const (
	keyPrefix    = "payonce_"
	tenantPrefix = "ten_"
)

// NewAPIKey creates a key for the tenant: the key, which its owner sees once, the hash
// that is stored, and the last characters, by which people distinguish keys. The key
// contains the tenant's id, because the primary key of its row begins with that.
func NewAPIKey(tenantID string) (key string, hash []byte, hint string) {
	return NewCellAPIKey("", tenantID)
}

// NewCellAPIKey is NewAPIKey for a tenant of a cell, which the key names. An empty cell is none.
func NewCellAPIKey(cell, tenantID string) (key string, hash []byte, hint string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	key = keyPrefix
	if cell != "" {
		key += cell + "_"
	}
	key += strings.TrimPrefix(tenantID, tenantPrefix) + "_" + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(key))
	return key, sum[:], key[len(key)-4:]
}

// tenant is who sent a request. Handlers take it from here and never from the request's
// path or body.
type tenant struct {
	id       string
	macs     *macs // of fingerprints
	readOnly bool  // the API key may read only
}

// A tenant's API key is checked before its Idempotency-Key is looked up. A replay needs a
// valid API key, too: a stored response contains the customer's data.

// authenticator finds a request's tenant by its API key.
type authenticator struct {
	lookups  *keyLookups
	networks *networks
	within   time.Duration
	cell     string      // of this process; empty: none
	box      *sealed.Box // of the tenants' secrets

	mu      sync.Mutex
	known   map[keyDigest]knownKey
	refused map[keyDigest]time.Time // until when
	uses    map[keyDigest]string    // keys whose use in this hour is not stored yet, with their tenants
	used    chan struct{}           // has an element when uses has
}

// keyDigest is the SHA-256 of an API key.
type keyDigest [32]byte

// knownKey is a key that was valid when it was last looked up.
type knownKey struct {
	tenant tenant
	until  time.Time // after that it must be looked up again
}

func newAuthenticator(pool *postgres.Pool, cell string, networks *networks, within time.Duration) *authenticator {
	queries := pool.ForAPIKeys()
	return &authenticator{
		lookups:  newKeyLookups(queries.APIKeyAuthenticate, min(within, keyCheckTimeout)),
		networks: networks, within: within, cell: cell, box: pool.Box(),
		known: map[keyDigest]knownKey{}, refused: map[keyDigest]time.Time{}, uses: map[keyDigest]string{},
		used: make(chan struct{}, 1),
	}
}

// errUnauthenticated is the same for a missing, an unknown, an expired and a revoked key and for one of a disabled
// tenant, so that nothing can be learned from trying keys.
var errUnauthenticated = &problem{code: codeUnauthenticated, detail: "Send an API key: Authorization: Bearer <key>."}

// errForbidden is for a valid key that may not do what the request asks for.
var errForbidden = &problem{code: codeForbidden, detail: "The API key is read-only. Use one that may write."}

// authenticate finds the tenant of a request. If the database is unavailable it returns
// that error and not errUnauthenticated, because a client may discard an API key that
// was refused.
func (a *authenticator) authenticate(r *http.Request) (tenant, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	cell, owner, wellFormed := splitAPIKey(key)
	if !strings.EqualFold(scheme, "Bearer") || !wellFormed || len(key) > 256 || len(r.Header.Values("Authorization")) > 1 {
		return tenant{}, errUnauthenticated
	}
	if cell != "" && cell != a.cell {
		return tenant{}, errOtherCell
	}
	// A plain hash is enough: a key is 256 random bits and cannot be guessed, unlike a
	// password.
	hash := keyDigest(sha256.Sum256([]byte(key)))
	k, state := a.cached(hash)
	switch state {
	case keyFresh:
		return k.tenant, nil
	case keyRefused:
		return tenant{}, errUnauthenticated
	case keyUnknown, keyStale:
	}
	if !isTenant(owner) {
		return tenant{}, errUnauthenticated
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.within)
	defer cancel()
	row, err := a.lookups.find(ctx, tenantPrefix+owner, hash, state == keyStale, a.networks.of(r.RemoteAddr))
	if err == nil && row == nil {
		a.refuse(hash)
		return tenant{}, errUnauthenticated
	}
	if err != nil {
		return tenant{}, err
	}
	return a.remember(hash, row)
}

// keyState is what is known of a key without a query.
type keyState int

const (
	keyUnknown keyState = iota
	keyFresh            // valid
	keyStale            // was valid
	keyRefused
)

func (a *authenticator) cached(hash keyDigest) (knownKey, keyState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if k, ok := a.known[hash]; ok {
		if now.Before(k.until) {
			return k, keyFresh
		}
		return k, keyStale
	}
	if now.Before(a.refused[hash]) {
		return knownKey{}, keyRefused
	}
	return knownKey{}, keyUnknown
}

// refuse remembers for a moment that a key is not valid: a client with a wrong key may send
// it very often. What strangers can fill is small, and is emptied when it is full.
func (a *authenticator) refuse(hash keyDigest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, hash)
	if len(a.refused) >= keysRefusedMax {
		clear(a.refused)
	}
	a.refused[hash] = time.Now().Add(keyCached)
}

// remember keeps a valid key in memory. It fails if the tenant's secret cannot be opened: with another one every retry
// would be taken for another request.
func (a *authenticator) remember(hash keyDigest, row *db.APIKeyAuthenticateRow) (tenant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !row.UseNoted && len(a.uses) < keysKnownMax {
		a.uses[hash] = row.ID
		select {
		case a.used <- struct{}{}:
		default:
		}
	}
	k, ok := a.known[hash]
	if !ok {
		if len(a.known) >= keysKnownMax {
			a.forgetStale()
		}
		secret, err := a.box.Open(sealed.FingerprintSecret(row.ID), row.FingerprintSecret)
		if err != nil {
			return tenant{}, err
		}
		k.tenant = tenant{id: row.ID, macs: newMACs(secret)} // of a secret that never changes
	}
	k.tenant.readOnly, k.until = row.ReadOnly, time.Now().Add(keyCached)
	a.known[hash] = k
	return k.tenant, nil
}

// forgetStale makes room for keys that are in use.
func (a *authenticator) forgetStale() {
	now := time.Now()
	for hash, k := range a.known {
		if len(a.known) < keysKnownMax/2 {
			return
		}
		if now.After(k.until) {
			delete(a.known, hash)
		}
	}
	if len(a.known) >= keysKnownMax {
		clear(a.known)
	}
}

// noteUses stores in which hour the keys were last used, and returns how many it has written.
func (a *authenticator) noteUses(ctx context.Context, q *db.Queries) (n int, err error) {
	a.mu.Lock()
	uses := maps.Clone(a.uses)
	a.mu.Unlock()
	for hash, tenantID := range uses {
		rows, err := q.APIKeyNoteUse(ctx, db.APIKeyNoteUseParams{TenantID: tenantID, KeyHash: hash[:]})
		if err != nil {
			return n, fmt.Errorf("note the use of an API key of %s: %w", tenantID, err)
		}
		n += int(rows)
		a.mu.Lock()
		delete(a.uses, hash)
		a.mu.Unlock()
	}
	return n, nil
}

// tenantOf is the tenant of a request. On an open route it panics: a handler that works
// without a tenant could mix up the data of all.
func tenantOf(r *http.Request) tenant {
	t := visitOf(r).tenant
	if t.id == "" {
		panic("bug: the request was not authenticated")
	}
	return t
}
