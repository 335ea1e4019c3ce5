package http_test

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps" // part: checkouts
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/disputes" // part: disputes
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/notifier"   // part: webhooks
	"example.com/payonce/internal/outbox"     // part: events
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/openapi"
	"example.com/payonce/testkit/parallel"
)

func TestMain(m *testing.M) {
	openapi.MustRead(httpapi.OpenAPI())
	parallel.AtLeast(12) // Most wait for what a client or Stripe may take.
	dbtest.Main(m)
}

const webhookSecret = "whsec_test"

// bundle is one service with its own database, Stripe and tenant.
// Whatever passes through its client is held against the OpenAPI document.
type bundle struct {
	t         *testing.T
	url       string
	apiKey    string
	pool      *postgres.Pool
	sim       *stripesim.Sim
	completer *idempotency.Completer
	disputes  *disputes.Service // part: disputes
	contract  *openapi.Validator
	client    *http.Client
}

func setup(t *testing.T, adjust ...func(*httpapi.Options)) *bundle {
	t.Helper()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sim.Close() })
	simulated := httptest.NewServer(sim.Handler())
	t.Cleanup(simulated.Close)

	pool := dbtest.New(t)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	metrics := prometheus.NewRegistry()
	keys := idempotency.NewStore(pool,
		idempotency.Options{Lease: time.Minute, Metrics: idempotency.NewMetrics(metrics), Log: log})
	gateway := stripe.New(stripe.Options{
		SecretKey: "sk_test_shop", BaseURL: simulated.URL, Timeout: 30 * time.Second,
		Metrics: stripe.NewMetrics(metrics),
		Limits:  stripe.NewLimits(0, metrics), Log: log,
	})
	service := payments.New(pool, keys, gateway, httpapi.Answers{},
		payments.Options{StripeTimeout: 30 * time.Second, ActionTimeout: time.Hour, Log: log})
	// part: checkouts {
	checkouts := checkout.New(pool, keys, gateway, service, httpapi.Answers{}, checkout.Options{Log: log})
	// part: checkouts }
	disputed := disputes.New(pool, gateway, disputes.Options{Log: log}) // part: disputes
	operations, paths := service.Operations(), payments.Paths()
	maps.Copy(operations, checkouts.Operations()) // part: checkouts
	maps.Copy(paths, checkout.Paths())            // part: checkouts
	// part: webhooks {
	endpoints := notifier.NewEndpoints(pool, keys, httpapi.Answers{}, true)
	register(operations, endpoints)
	for kind, path := range notifier.Paths() {
		paths[kind] = path
	}
	// part: webhooks }
	// part: history {
	describe := map[string]keyhistory.Describe{
		checkout.Create: checkout.History, // part: checkouts
	}
	// part: webhooks {
	for name := range endpoints.Operations() {
		describe[name] = notifier.History
	}
	// part: webhooks }
	// part: history }
	options := httpapi.Options{
		Pool: pool, Keys: keys, Operations: operations, Payments: service, Paths: paths, Within: 14 * time.Second,
		Metrics: metrics, WebhookSecrets: []string{webhookSecret}, Log: log,
		Checkouts: checkouts,                                   // part: checkouts
		Disputes:  disputed,                                    // part: disputes
		Endpoints: endpoints,                                   // part: webhooks
		Feed:      outbox.NewFeed(pool, payments.RenderEvents), // part: events
		Retention: 72 * time.Hour,                              // part: docs
	}
	// part: history {
	options.History = keyhistory.New(pool,
		keyhistory.Options{Retention: 72 * time.Hour, Paths: paths, Operations: describe})
	// part: history }
	for _, f := range adjust {
		f(&options)
	}
	server := httptest.NewServer(httpapi.NewServer(options).Handler())
	t.Cleanup(server.Close)

	contract := openapi.New(t, httpapi.OpenAPI())
	b := &bundle{
		t: t, url: server.URL, pool: pool, sim: sim, contract: contract,
		completer: idempotency.NewCompleter(keys, service.Operations(), 14*time.Second),
		client:    &http.Client{Transport: contract.Transport(t, nil)},
	}
	b.disputes = disputed // part: disputes
	b.apiKey = b.newTenant("shop")
	return b
}

// part: webhooks {

// publicEndpointsOnly is the setting of production.
func publicEndpointsOnly(o *httpapi.Options) {
	endpoints := notifier.NewEndpoints(o.Pool, o.Keys, httpapi.Answers{}, false)
	register(o.Operations, endpoints)
}

func register(operations map[string]idempotency.Operation, endpoints *notifier.Endpoints) {
	for name, operation := range endpoints.Operations() {
		operations[name] = operation
	}
}

// part: webhooks }

// of is the bundle for a subtest.
func (b *bundle) of(t *testing.T) *bundle {
	t.Helper()
	other := *b
	other.t = t
	return &other
}

// handleWith sends what follows to another server.
func (b *bundle) handleWith(s *httpapi.Server) {
	b.t.Helper()
	server := httptest.NewServer(s.Handler())
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

// newTenant makes a tenant and returns an API key of it.
func (b *bundle) newTenant(name string) string {
	b.t.Helper()
	id := ids.New(ids.Tenant)
	key, hash, hint := httpapi.NewAPIKey(id)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	require.NoError(b.t, b.pool.InTx(b.t.Context(), func(q *db.Queries) error {
		if err := q.TenantCreate(b.t.Context(),
			db.TenantCreateParams{ID: id, Name: name, FingerprintSecret: secret}); err != nil {
			return err
		}
		return q.APIKeyCreate(b.t.Context(), db.APIKeyCreateParams{TenantID: id, KeyHash: hash, Hint: hint})
	}))
	return key
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	object map[string]any
}

func (a answer) id() string   { s, _ := a.object["id"].(string); return s }
func (a answer) code() string { s, _ := a.object["code"].(string); return s }

// send makes one request. Headers are pairs of name and value; a name with an
// empty value is left out, to send a request without what it needs.
func (b *bundle) send(method, path, body string, header ...string) answer {
	b.t.Helper()
	a, err := b.try(b.t.Context(), method, path, body, header...)
	require.NoError(b.t, err)
	return a
}

// try is send for other goroutines than the test's.
func (b *bundle) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+b.apiKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	res, err := b.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header, body: string(raw)}
	if strings.HasSuffix(strings.Split(res.Header.Get("Content-Type"), ";")[0], "json") {
		err = json.Unmarshal(raw, &a.object)
	}
	return a, err
}

func (b *bundle) get(path string) answer { b.t.Helper(); return b.send("GET", path, "") }

func (b *bundle) post(path, key, body string, header ...string) answer {
	b.t.Helper()
	return b.send("POST", path, body, append([]string{"Idempotency-Key", key}, header...)...)
}

// order makes an order of 25.00 EUR under its own key. A 503, as a busy machine may cause it, is answered as a client does.
func (b *bundle) order(key string) string {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		a := b.post("/v1/orders", key, `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`)
		if a.status == http.StatusServiceUnavailable && time.Now().Before(end) {
			continue
		}
		require.Equal(b.t, http.StatusCreated, a.status, a.body)
		return a.id()
	}
}

// pay pays an order.
func (b *bundle) pay(key, orderID, method string) answer {
	b.t.Helper()
	return b.post("/v1/payments", key, fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, orderID, method))
}

// authorize reserves the money of an order.
func (b *bundle) authorize(key, orderID string) answer {
	b.t.Helper()
	return b.post("/v1/payments", key,
		fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa","capture":"manual"}`, orderID))
}

// sign is the Stripe-Signature of a body.
func sign(body, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}
