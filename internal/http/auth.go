package http

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// keyCached is how long an authenticated key is trusted without a query. It saves one
// query per request, but a revoked key may work for that long.
const keyCached = time.Second

const (
	keyPrefix    = "payonce_"
	tenantPrefix = "ten_"
)

// NewAPIKey creates a key for the tenant: the key, which its owner sees once, the hash
// that is stored, and the last characters, by which people distinguish keys. The key
// contains the tenant's id, because the primary key of its row begins with that.
func NewAPIKey(tenantID string) (key string, hash []byte, hint string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	key = keyPrefix + strings.TrimPrefix(tenantID, tenantPrefix) + "_" + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(key))
	return key, sum[:], key[len(key)-4:]
}

// tenant is who sent a request. Handlers take it from here and never from the request's
// path or body.
type tenant struct {
	id   string
	macs *macs // of fingerprints
}

// A tenant's API key is checked before its Idempotency-Key is looked up. A replay needs a
// valid API key, too: a stored response contains the customer's data.

// authenticator finds a request's tenant by its API key.
type authenticator struct {
	pool   *postgres.Pool
	within time.Duration

	mu    sync.Mutex
	known map[[32]byte]knownKey
}

// knownKey is a key that was valid a moment ago. Keys that were refused are not cached:
// that would let strangers fill the cache, and a new key would not work at once.
type knownKey struct {
	tenant tenant
	until  time.Time
}

// errUnauthenticated is the same for a missing, an unknown and a revoked key, so that
// nothing can be learned from trying keys.
var errUnauthenticated = &problem{code: codeUnauthenticated, detail: "Send an API key: Authorization: Bearer <key>."}

// authenticate finds the tenant of a request. If the database is unavailable it returns
// that error and not errUnauthenticated, because a client may discard an API key that
// was refused.
func (a *authenticator) authenticate(r *http.Request) (tenant, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	owner, _, wellFormed := strings.Cut(strings.TrimPrefix(key, keyPrefix), "_")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, keyPrefix) || !wellFormed || len(key) > 256 ||
		len(r.Header.Values("Authorization")) > 1 {
		return tenant{}, errUnauthenticated
	}
	// A plain hash is enough: a key is 256 random bits and cannot be guessed, unlike a
	// password.
	hash := sha256.Sum256([]byte(key))
	if t, ok := a.cached(hash); ok {
		return t, nil
	}
	for _, c := range owner {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'v') {
			return tenant{}, errUnauthenticated
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.within)
	defer cancel()
	row, err := a.pool.APIKeyAuthenticate(ctx, db.APIKeyAuthenticateParams{
		TenantID: tenantPrefix + owner, KeyHash: hash[:],
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return tenant{}, errUnauthenticated
	}
	if err != nil {
		return tenant{}, err
	}
	t := tenant{id: row.ID, macs: newMACs(row.FingerprintSecret)}
	a.remember(hash, t)
	return t, nil
}

func (a *authenticator) cached(hash [32]byte) (tenant, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.known[hash]
	if !ok || time.Now().After(k.until) {
		return tenant{}, false
	}
	return k.tenant, true
}

func (a *authenticator) remember(hash [32]byte, t tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= 10_000 { // Only valid keys are cached, for a second, so most of these have expired.
		clear(a.known)
	}
	a.known[hash] = knownKey{tenant: t, until: time.Now().Add(keyCached)}
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
