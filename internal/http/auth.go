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

// keyCached is how long an authenticated key is trusted without asking the database
// again. It saves a query per request, and is how long a revoked key may still work.
const keyCached = time.Second

const (
	keyPrefix    = "payonce_"
	tenantPrefix = "ten_"
)

// NewAPIKey makes a key for the tenant: what its owner is shown once, what the
// database keeps, and the last characters by which people tell keys apart. The
// key names its tenant, so that looking it up begins with the tenant too.
func NewAPIKey(tenantID string) (key string, hash []byte, hint string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	key = keyPrefix + strings.TrimPrefix(tenantID, tenantPrefix) + "_" + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(key))
	return key, sum[:], key[len(key)-4:]
}

// tenant is the tenant that a request belongs to.
type tenant struct {
	id                string
	fingerprintSecret []byte
}

// authenticator knows tenants by their keys.
type authenticator struct {
	pool   *postgres.Pool
	within time.Duration

	mu    sync.Mutex
	known map[[32]byte]knownKey
}

type knownKey struct {
	tenant tenant
	until  time.Time
}

var errUnauthenticated = &problem{code: codeUnauthenticated, detail: "Send an API key: Authorization: Bearer <key>."}

// authenticate finds the tenant of a request. If the database cannot be asked, the
// answer is an error, never yes or no.
func (a *authenticator) authenticate(r *http.Request) (tenant, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	owner, _, wellFormed := strings.Cut(strings.TrimPrefix(key, keyPrefix), "_")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, keyPrefix) || !wellFormed || len(key) > 256 || len(r.Header.Values("Authorization")) > 1 {
		return tenant{}, errUnauthenticated
	}
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
	row, err := a.pool.APIKeyAuthenticate(ctx, db.APIKeyAuthenticateParams{TenantID: tenantPrefix + owner, KeyHash: hash[:]})
	if errors.Is(err, postgres.ErrNoRows) {
		return tenant{}, errUnauthenticated
	}
	if err != nil {
		return tenant{}, err
	}
	t := tenant{id: row.ID, fingerprintSecret: row.FingerprintSecret}
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
	if len(a.known) >= 10_000 { // Only valid keys are cached; with this many, most have expired.
		clear(a.known)
	}
	a.known[hash] = knownKey{tenant: t, until: time.Now().Add(keyCached)}
}

// tenantOf is the tenant of a request, on a route that is not open.
func tenantOf(r *http.Request) tenant {
	t := visitOf(r).tenant
	if t.id == "" {
		panic("bug: the request was not authenticated")
	}
	return t
}
