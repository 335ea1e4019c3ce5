package http

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
)

// TestReasonsOfRefusals: an alert depends on them. What a client can cause counts as the database's failure in no case.
func TestReasonsOfRefusals(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, nil)
	s.o.Clients.Unsigned = 100 * time.Millisecond
	own := s.networks.of(httptest.NewRequest("GET", "/", nil).RemoteAddr)
	const madeUp, valid = "payonce_a_madeup", "payonce_a_valid"
	s.knows(valid, tenant{id: "ten_a"})

	refused := map[refusalReason]float64{}
	counts := func(reason refusalReason, status int, request func() int) {
		t.Helper()
		require.Equal(t, status, request())
		refused[reason]++
		require.Equal(t, refused, s.refusals(t))
	}
	get := func(key string) func() int { return func() int { return s.status("GET", "/v1/orders", key, "") } }
	refuse := func(err error) func() int {
		return func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			ctx, _ := visited(r.Context())
			s.refuse(w, r.WithContext(ctx), err)
			return w.Code
		}
	}

	counts(reasonDatabase, http.StatusServiceUnavailable, get(madeUp))
	counts(reasonDatabase, http.StatusServiceUnavailable, func() int { return s.status("GET", "/readyz", "", "") })
	counts(reasonDatabase, http.StatusServiceUnavailable, refuse(context.DeadlineExceeded))
	counts(reasonStripe, http.StatusServiceUnavailable, refuse(stripe.ErrUnavailable))
	counts(reasonTenantStripe, http.StatusTooManyRequests, refuse(&stripe.QueueFullError{}))
	waiting := problemOf(payments.ErrRefundsWaiting)
	require.Equal(t, []string{codeRateLimited, string(reasonTenantQueue)}, []string{waiting.code, string(waiting.reason)})

	t.Log("a flood of made-up keys")
	lookups := s.auth.lookups
	require.Eventually(t, func() bool {
		lookups.mu.Lock()
		defer lookups.mu.Unlock()
		if lookups.busy > 0 { // It has not seen yet that no other key waits.
			return false
		}
		lookups.busy = keyLanes // so that no key is looked up from here on
		lookups.turns, lookups.waiting = []netip.Prefix{own}, keyQueueMax
		lookups.unknown[own] = make([]*keyLookup, keyQueueMax)
		return true
	}, 10*time.Second, time.Millisecond)
	counts(reasonAnonymous, http.StatusServiceUnavailable, get(madeUp))

	t.Log("floods of unsigned bodies, of clients without a key, and of one tenant")
	s.unsigned.bytes = unsignedMax
	counts(reasonWebhookBodies, http.StatusServiceUnavailable,
		func() int { return s.status("POST", "/v1/webhooks/stripe", "", "{}") })
	s.fillQueues(clientID{network: own})
	counts(reasonAnonymous, http.StatusServiceUnavailable, get(""))
	s.fillQueues(clientID{tenant: "ten_a"})
	counts(reasonTenantQueue, http.StatusTooManyRequests, get(valid))
	counts(reasonTenantQueue, http.StatusServiceUnavailable, refuse(errTenantQueueSlow))

	t.Log("several tenants together")
	const another = "payonce_b_valid"
	s.knows(another, tenant{id: "ten_b"})
	s.fillQueues(clientID{tenant: "ten_b"})
	s.admission.client(clientID{tenant: "ten_b"}).queues[classRead].waiting = make([]chan struct{}, 1)
	s.admission.client(clientID{tenant: "ten_b"}).queued = queuedLeast
	s.admission.queuedTenants = queuedTotalMax
	counts(reasonOverloaded, http.StatusServiceUnavailable, get(another))

	clear(s.admission.clients)
	s.draining.Store(true)
	counts(reasonDraining, http.StatusServiceUnavailable, func() int { return s.status("GET", "/readyz", "", "") })
	s.o.WebhookSecrets = nil
	counts(reasonNotConfigured, http.StatusServiceUnavailable,
		func() int { return s.status("POST", "/v1/webhooks/stripe", "", "{}") })
	counts(reasonTenantRate, http.StatusTooManyRequests, func() int {
		limits := newTenantLimits(0.001, "")
		require.NoError(t, limits.take("ten_a"))
		return refuse(limits.take("ten_a"))()
	})
}

// refusals are the counts by reason, without zeros.
func (s testServer) refusals(t *testing.T) map[refusalReason]float64 {
	t.Helper()
	families, err := s.metrics.Gather()
	require.NoError(t, err)
	refused := map[refusalReason]float64{}
	for _, family := range families {
		if family.GetName() != "payonce_http_refused_total" {
			continue
		}
		require.Len(t, family.GetMetric(), len(refusalReasons), "a series that begins with its first refusal shows no increase")
		for _, metric := range family.GetMetric() {
			if n := metric.GetCounter().GetValue(); n > 0 {
				refused[refusalReason(metric.GetLabel()[0].GetValue())] = n
			}
		}
	}
	return refused
}
