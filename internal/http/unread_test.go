package http

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
)

// TestUnreadResponsesAreBounded: a tenant that does not read has a share of what is left, and each new one still has room.
func TestUnreadResponsesAreBounded(t *testing.T) {
	t.Parallel()
	u := newUnread()
	fill := func(tenantID string) (bytes int) {
		for u.room(tenantID, unreadReads) == nil {
			u.add(tenantID, 1<<20)
			bytes += 1 << 20
		}
		return bytes
	}
	require.InDelta(t, unreadMax/5, fill("ten_a"), 1<<20)
	require.NoError(t, u.room("ten_a", unreadPosts), "a payment gets through")
	require.NoError(t, u.room("ten_b", unreadReads))
	for i := range 1000 {
		fill(string(rune('0' + i)))
	}
	require.LessOrEqual(t, u.bytes, 2*unreadMax+1<<20)
	require.Greater(t, u.bytes, unreadMax)
	require.Error(t, u.room("ten_new", unreadReads), "there is an end")
	const more = unreadMax / 2
	u.add("ten_z", -more)
	require.NoError(t, u.room("ten_new", unreadReads), "it has read everything, and others have not")
	require.Error(t, u.room("ten_a", unreadPosts))
	u.add("ten_z", more)
	for tenantID, n := range u.tenants {
		u.add(tenantID, -n)
	}
	require.Zero(t, u.bytes)
	require.Empty(t, u.tenants)
}

// TestUnreadResponsesRefuseRequests: before they are made, and only those of their tenant.
func TestUnreadResponsesRefuseRequests(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, slog.New(slog.DiscardHandler))
	s.knows("payonce_a_b", tenant{id: "ten_a"})
	s.knows("payonce_a_c", tenant{id: "ten_b"})
	post := func() int {
		r := httptest.NewRequest("POST", "/v1/orders",
			strings.NewReader(`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}]}`))
		r.Header.Set("Authorization", "Bearer payonce_a_b")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	s.unread.add("ten_a", unreadMax/4)
	require.Equal(t, http.StatusTooManyRequests, s.status("GET", "/v1/orders", "payonce_a_b", ""))
	require.NotEqual(t, http.StatusTooManyRequests, s.status("GET", "/v1/orders", "payonce_a_c", ""), "another tenant")
	require.NotEqual(t, http.StatusTooManyRequests, post())
	s.unread.add("ten_a", unreadMax/4)
	require.Equal(t, http.StatusTooManyRequests, post())
	require.Equal(t, http.StatusOK, s.status("GET", "/healthz", "", ""))
}

// TestUnreadResponsesAreCounted while they are sent.
func TestUnreadResponsesAreCounted(t *testing.T) {
	t.Parallel()
	u := newUnread()
	seen := -1
	of := func(body []byte) {
		w := &statusWriter{
			ResponseWriter: writing{httptest.NewRecorder(), func() { seen = u.tenants["ten_a"] }},
			visit:          &visit{tenant: tenant{id: "ten_a"}}, unread: u,
		}
		write(w, idempotency.Answer{Status: http.StatusOK, Body: body})
	}
	of(make([]byte, 10, unreadCounted))
	require.Zero(t, seen, "a small one is not")
	of(make([]byte, 10, unreadCounted+1))
	require.Equal(t, unreadCounted+1, seen, "by the memory that it takes")
	require.Zero(t, u.bytes)
	require.Empty(t, u.tenants)
}

// TestResponsesCountByTheirBytes against the rate of reads, and before the slot is released.
func TestResponsesCountByTheirBytes(t *testing.T) {
	t.Parallel()
	a := newAdmission([classes]classLimits{classRead: {alone: 1, total: 1, least: 1, rate: 0.001, burst: 100, kib: true}})
	_, err := a.acquire(t.Context(), other, classRead)
	require.NoError(t, err)
	s, err := a.acquire(t.Context(), busy, classRead)
	require.NoError(t, err)
	w := &statusWriter{ResponseWriter: httptest.NewRecorder(), unread: newUnread(), visit: &visit{tenant: tenant{id: busy.tenant}, slot: s}}
	write(w, idempotency.Answer{Status: http.StatusOK, Body: make([]byte, 50<<10)})
	require.InDelta(t, 100-1-50, s.client.queues[classRead].rate.Tokens(), 0.5)
}

// writing calls during when the body is written.
type writing struct {
	http.ResponseWriter
	during func()
}

func (w writing) Write(b []byte) (int, error) {
	w.during()
	return w.ResponseWriter.Write(b)
}
