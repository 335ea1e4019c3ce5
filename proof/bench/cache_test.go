package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCached: what is measured is a cache that could be used. Whatever it must not answer goes to the service.
func TestCached(t *testing.T) {
	t.Parallel()
	now, status, served := time.Now(), http.StatusCreated, 0
	c := &cached{store: &inMemoryStore{}, keep: time.Minute, now: func() time.Time { return now },
		next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served++
			w.Header().Set("Location", "/v1/payments/pay_1")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"id":"pay_1"}`))
		})}
	send := func(apiKey, body string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/payments", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+apiKey)
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		return w
	}
	send("a", "{}")
	hit := send("a", "{}")
	require.Equal(t, 1, served, "the second is found")
	require.Equal(t, http.StatusCreated, hit.Code)
	require.JSONEq(t, `{"id":"pay_1"}`, hit.Body.String())
	require.Equal(t, "true", hit.Header().Get("Idempotent-Replayed"))
	require.Equal(t, "/v1/payments/pay_1", hit.Header().Get("Location"))

	status = http.StatusUnprocessableEntity
	require.Equal(t, status, send("a", "{ }").Code, "another request with the key")
	status = http.StatusConflict
	require.Equal(t, status, send("b", "{}").Code, "another API key")

	status = http.StatusUnauthorized // the first API key is revoked
	now = now.Add(apiKeyTrusted)
	require.Equal(t, status, send("a", "{}").Code)
	require.Equal(t, status, send("a", "{}").Code, "it is not trusted again")

	status = http.StatusCreated
	send("a", "{}")
	status, now = http.StatusAccepted, now.Add(time.Minute)
	require.Equal(t, status, send("a", "{}").Code, "the entry has ended")
	before := served
	send("a", "{}")
	require.Equal(t, before+1, served, "an answer that is not final is not kept")
}
