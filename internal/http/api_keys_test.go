package http_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
)

// newKey makes another API key of the bundle's tenant.
func (b *bundle) newKey(p db.APIKeyCreateParams) string {
	b.t.Helper()
	owner, _, _ := strings.Cut(strings.TrimPrefix(b.apiKey, "payonce_"), "_")
	p.TenantID = "ten_" + owner
	var key string
	key, p.KeyHash, p.Hint = httpapi.NewAPIKey(p.TenantID)
	require.NoError(b.t, b.pool.APIKeyCreate(b.t.Context(), p))
	return key
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Raw().Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// becomes waits for the status of a GET with the key: results are trusted for a second.
func (b *bundle) becomes(key string, status int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		a, err := b.try(b.t.Context(), "GET", "/v1/orders", "", "Authorization", "Bearer "+key)
		return err == nil && a.status == status
	}, 20*time.Second, 50*time.Millisecond)
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("ExpiredKeyIsRefused", func(t *testing.T) {
		b := b.of(t)
		key := b.newKey(db.APIKeyCreateParams{ExpiresIn: time.Hour})
		b.becomes(key, http.StatusOK)
		b.exec(`UPDATE api_keys SET created_at = created_at - interval '2 hours', expires_at = clock_timestamp()
			WHERE expires_at IS NOT NULL`)
		b.becomes(key, http.StatusUnauthorized)
		b.becomes(b.apiKey, http.StatusOK)
	})

	t.Run("ReadOnlyKeyChangesNothing", func(t *testing.T) {
		b := b.of(t)
		order := b.order("of-the-writing-key")
		key := "Bearer " + b.newKey(db.APIKeyCreateParams{ReadOnly: true})
		require.Equal(t, http.StatusOK, b.send("GET", "/v1/orders/"+order, "", "Authorization", key).status)
		// What is wrong with the request comes after what is wrong with the key.
		require.Equal(t, http.StatusForbidden,
			b.send("POST", "/v1/orders", "{", "Authorization", key, "Content-Type", "text/plain").status)
		// A stored response is not shown either: the key could not have caused it.
		a := b.send("POST", "/v1/orders", `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`,
			"Authorization", key, "Idempotency-Key", "of-the-writing-key")
		require.Equal(t, http.StatusForbidden, a.status)
	})

	t.Run("KeysOfADisabledTenantAreRefused", func(t *testing.T) {
		b := b.of(t)
		key := b.newTenant("disabled")
		b.becomes(key, http.StatusOK)
		b.exec("UPDATE tenants SET disabled_at = clock_timestamp() WHERE name = 'disabled'")
		b.becomes(key, http.StatusUnauthorized)
		b.exec("UPDATE tenants SET disabled_at = NULL WHERE name = 'disabled'")
		b.becomes(key, http.StatusOK)
	})
}

// TestKeyUseIsNotedOnceAnHour: by a loop, so that neither a request nor a replay writes for it.
func TestKeyUseIsNotedOnceAnHour(t *testing.T) {
	t.Parallel()
	var server *httpapi.Server
	b := setup(t, func(o *httpapi.Options) {
		other := *o
		other.Metrics = nil
		server = httpapi.NewServer(other)
	})
	b.handleWith(server)
	noted := func() (at *time.Time) {
		t.Helper()
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(), "SELECT last_used_at FROM api_keys").Scan(&at))
		return at
	}
	note := func() int {
		t.Helper()
		n, err := server.NoteKeyUses(t.Context())
		require.NoError(t, err)
		return n
	}
	if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 10*time.Second {
		time.Sleep(left) // until the next hour
	}
	require.Zero(t, note(), "nothing was used")
	require.Equal(t, http.StatusOK, b.get("/v1/orders").status)
	<-server.KeyUses()
	require.Nil(t, noted(), "the request has not written it")
	require.Equal(t, 1, note())
	at := noted()
	require.NotNil(t, at)
	require.Equal(t, at.UTC().Truncate(time.Hour), at.UTC())
	require.Zero(t, note(), "it is forgotten once it is noted")

	for range 3 { // looked up again, in the same hour
		server.ForgetKeys()
		require.Equal(t, http.StatusOK, b.get("/v1/orders").status)
	}
	require.Empty(t, server.KeyUses())
	b.exec("UPDATE api_keys SET last_used_at = last_used_at - interval '1 hour'")
	server.ForgetKeys()
	require.Equal(t, http.StatusOK, b.get("/v1/orders").status)
	require.Equal(t, 1, note())
	require.Equal(t, at.UTC(), noted().UTC())
}

// TestRefusedKeyIsCached: a client that repeats a wrong key costs one query a second.
func TestRefusedKeyIsCached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.newKey(db.APIKeyCreateParams{})
	b.exec("UPDATE api_keys SET revoked_at = clock_timestamp()")
	ask := func(ctx context.Context) int {
		a, err := b.try(ctx, "GET", "/v1/orders", "", "Authorization", "Bearer "+key)
		require.NoError(t, err)
		return a.status
	}
	require.Equal(t, http.StatusUnauthorized, ask(t.Context()))
	b.exec("ALTER TABLE api_keys RENAME TO api_keys_away") // so that a query would be noticed
	require.Equal(t, http.StatusUnauthorized, ask(t.Context()))
	require.Eventually(t, func() bool { return ask(t.Context()) == http.StatusInternalServerError },
		20*time.Second, 50*time.Millisecond, "the refusal is forgotten")
}

// TestUnsignedWebhookIsNotRead: without a signature that could be of now, the service does not wait for the body.
func TestUnsignedWebhookIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, signature := range []string{"", "t=1,v1=00", "t=x,v1=00", "v1=00", "t=" + fmt.Sprint(time.Now().Unix())} {
		body, never := io.Pipe()
		t.Cleanup(func() { _ = never.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/webhooks/stripe", body)
		require.NoError(t, err)
		req.ContentLength = 512 << 10
		req.Header.Set("Stripe-Signature", signature)
		res, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err, "%q", signature)
		require.Equal(t, http.StatusBadRequest, res.StatusCode, "%q", signature)
		require.NoError(t, res.Body.Close())
		cancel()
	}
}
