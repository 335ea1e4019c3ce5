package http_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

// slowReader is a client that takes its time.
type slowReader struct {
	*httptest.ResponseRecorder
	onWrite func()
}

func (w slowReader) Write(b []byte) (int, error) {
	w.onWrite()
	return w.ResponseRecorder.Write(b)
}

// TestSlotsAreNotHeld: a request needs none while others have to act, its client, Stripe, or the first request with its
// key; else slow ones would use up the slots of their tenant.
func TestSlotsAreNotHeld(t *testing.T) {
	t.Parallel()
	var (
		options httpapi.Options
		server  *httpapi.Server
		atWork  = make(chan struct{})
		goOn    = make(chan struct{})
	)
	b := setup(t, func(o *httpapi.Options) { options = *o })
	options.Metrics, options.Operations = prometheus.NewRegistry(), maps.Clone(options.Operations)
	pay := options.Operations[payments.CreatePayment]
	run := pay.Run
	pay.Run = func(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
		atWork <- struct{}{}
		<-goOn
		return run(ctx, c)
	}
	options.Operations[payments.CreatePayment] = pay
	server = httpapi.NewServer(options)
	b.handleWith(server)
	t.Cleanup(func() { close(goOn) })
	inUse := func() int { n, _ := server.SlotsInUse(); return n }
	soon := func(want func() bool, why string) {
		t.Helper()
		require.Eventually(t, want, 10*time.Second, time.Millisecond, why)
	}
	answers := make(chan answer, 1)
	ask := func(method, path, body string, header ...string) {
		go func() {
			a, err := b.try(t.Context(), method, path, body, header...)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	order := b.order("order")
	body := `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`

	ask("POST", "/v1/payments", body, "Idempotency-Key", "pay")
	<-atWork
	require.Zero(t, inUse(), "while it works")
	ask("POST", "/v1/payments", body, "Idempotency-Key", "pay", "Prefer", "wait=10")
	soon(func() bool { return server.Waiting() == 1 }, "the second one waits for the first")
	require.Zero(t, inUse(), "while it waits")
	goOn <- struct{}{}
	require.Equal(t, http.StatusCreated, (<-answers).status)
	require.Equal(t, http.StatusCreated, (<-answers).status)

	large := strings.Repeat(" ", 10_000) + body
	for name, r := range map[string]*http.Request{
		"a read":          httptest.NewRequest("GET", "/v1/orders/"+order, nil),
		"a replay":        httptest.NewRequest("POST", "/v1/payments", strings.NewReader(body)),
		"a large replay":  httptest.NewRequest("POST", "/v1/payments", strings.NewReader(large)),
		"a wrong API key": httptest.NewRequest("GET", "/v1/orders/"+order, nil),
	} {
		r.Header.Set("Authorization", "Bearer "+b.apiKey)
		r.Header.Set("Idempotency-Key", "pay")
		r.Header.Set("Content-Type", "application/json")
		if name == "a wrong API key" {
			r.Header.Del("Authorization")
		}
		wrote := false
		server.Handler().ServeHTTP(slowReader{httptest.NewRecorder(), func() {
			wrote = true
			require.Zero(t, inUse(), "while its client reads: %s", name)
		}}, r)
		require.True(t, wrote)
	}

	locked := func(table string, while func()) {
		t.Helper()
		tx, err := b.pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+table)
		require.NoError(t, err)
		while()
		require.NoError(t, tx.Rollback(t.Context()))
		require.Less(t, (<-answers).status, http.StatusBadRequest)
	}
	locked("idempotency_keys", func() {
		ask("POST", "/v1/payments", large, "Idempotency-Key", "pay")
		soon(func() bool { n, large := server.SlotsInUse(); return n == 1 && large == 0 }, "the key is looked up")
	})
	event := `{"id":"evt_1","object":"event","type":"ping","data":{"object":{}}}`
	locked("inbox_events", func() {
		ask("POST", "/v1/webhooks/stripe", event, "Stripe-Signature", sign(event, webhookSecret, time.Now()))
		soon(func() bool {
			var waiting int
			return b.pool.Raw().QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting) == nil &&
				waiting > 0
		}, "the event is stored")
		require.Zero(t, inUse(), "the signature is checked")
	})
	soon(func() bool { return inUse() == 0 }, "all have gone")
}
