package http

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fillQueue fills one queue of a client, and empties its others.
func (s testServer) fillQueue(id clientID, class class) {
	s.fillQueues(id)
	c := s.admission.client(id)
	full := c.queues[class]
	c.queues = s.admission.newClient(id).queues
	c.queues[class] = full
}

// TestRefusalsOfATenantAreQueued: a client that sends its next request when it has its refusal would else keep the
// processors busy, whatever route and mistake it chooses.
func TestRefusalsOfATenantAreQueued(t *testing.T) {
	t.Parallel()
	const key, readOnly, unknown = "payonce_a_b", "payonce_a_c", "payonce_a_d"
	a := clientID{tenant: "ten_a"}
	server := func(t *testing.T) testServer {
		s := newTestServer(t, nil)
		s.knows(key, tenant{id: a.tenant})
		s.knows(readOnly, tenant{id: a.tenant, readOnly: true})
		return s
	}

	t.Run("EveryRoute", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		for _, route := range s.servedRoutes() {
			if route.open {
				continue
			}
			path := strings.NewReplacer("{", "", "}", "").Replace(route.pattern)
			if route.method == http.MethodGet {
				path += "?misspelt=1"
			}
			mistakes := map[string]int{"{}": http.StatusBadRequest}
			if route.method != http.MethodGet {
				mistakes[strings.Repeat(" ", largeBody)+"{}"] = http.StatusBadRequest
				mistakes[strings.Repeat(" ", bodyMax)+"{}"] = http.StatusRequestEntityTooLarge
				mistakes["{"+cutOffHere] = http.StatusBadRequest
			}
			for body, status := range mistakes {
				s.fillQueue(a, classProbe)
				require.Equal(t, status, s.status(route.method, path, key, body), "%s %s", route.method, path)
				s.fillQueue(a, classRefusal)
				require.Equal(t, http.StatusTooManyRequests, s.status(route.method, path, key, body), "%s %s", route.method, path)
			}
			if route.method != http.MethodGet {
				require.Equal(t, http.StatusTooManyRequests, s.status(route.method, path, readOnly, "{}"), "%s %s", route.method, path)
			}
		}
		require.Equal(t, http.StatusTooManyRequests, s.status("GET", "/v1/idempotency-keys/%FF", key, "")) // part: history
	})

	t.Run("BeyondTheRateLimit", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.reads = newTenantLimits(0.001, "")
		s.limits = newTenantLimits(0.001, "")
		require.NoError(t, s.reads.take(a.tenant))
		require.NoError(t, s.limits.take(a.tenant))
		beyond := func() {
			require.Equal(t, http.StatusTooManyRequests, s.status("GET", "/v1/orders", key, ""))
			require.Equal(t, http.StatusTooManyRequests, s.status("PUT", "/v1/stock/a", key, `{"available":1}`)) // part: checkouts
		}
		s.fillQueue(a, classRefusal)
		beyond()
		require.NotContains(t, s.refusals(t), reasonTenantRate)
		s.fillQueue(a, classProbe)
		beyond()
		require.Contains(t, s.refusals(t), reasonTenantRate)
	})

	t.Run("LargeBodyHasItsOwnSlot", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.fillQueue(a, classLargeBody)
		for _, route := range s.servedRoutes() {
			if route.open || route.method == http.MethodGet {
				continue
			}
			path := strings.NewReplacer("{", "", "}", "").Replace(route.pattern)
			require.Equal(t, http.StatusBadRequest, s.status(route.method, path, key, "{}"), path)
			require.Equal(t, http.StatusTooManyRequests, s.status(route.method, path, key, strings.Repeat(" ", largeBody)+"{}"), path)
		}
	})

	t.Run("FailureOfTheServiceIsNot", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		s.fillQueue(clientID{network: s.networks.of(httptest.NewRequest("GET", "/", nil).RemoteAddr)}, classRefusal)
		require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/v1/orders", unknown, ""))
		require.Contains(t, s.refusals(t), reasonDatabase)
		require.NotContains(t, s.refusals(t), reasonAnonymous)
	})

	t.Run("WhatAnybodyCanCauseIs", func(t *testing.T) {
		t.Parallel()
		require.True(t, errKeyQueueFull.queued())
		require.False(t, errTooManyBodies.queued()) // It is sent when the time for the body is over: no flood by itself.
		require.False(t, errAnonymousQueueFull.queued(), "it comes from a queue")
		s := server(t)
		s.o.WebhookSecrets = nil
		s.fillQueue(clientID{network: s.networks.of(httptest.NewRequest("GET", "/", nil).RemoteAddr)}, classRefusal)
		require.Equal(t, http.StatusServiceUnavailable, s.status("POST", "/v1/webhooks/stripe", "", "{}"))
		require.NotContains(t, s.refusals(t), reasonNotConfigured)
	})
}

// TestUnreadableRequestsHaveTheirTurn: a request that cannot be parsed waits like any other refusal, and if too many wait
// it gets a 503.
func TestUnreadableRequestsHaveTheirTurn(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, slog.New(slog.DiscardHandler))
	const remote = "192.0.2.1:1"
	require.Regexp(t, "^HTTP/1.1 400 ", string(s.unreadable(remote, "bad")))
	all, _ := s.SlotsInUse()
	require.Zero(t, all)
	s.fillQueues(clientID{network: s.networks.of(remote)})
	full := string(s.unreadable(remote, "bad"))
	require.Regexp(t, "^HTTP/1.1 503 ", full)
	require.Contains(t, full, "\r\nRetry-After: 1\r\n\r\n{")
	require.Regexp(t, "^HTTP/1.1 400 ", string(s.unreadable("198.51.100.1:1", "bad")), "another network")
}
