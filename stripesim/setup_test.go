package stripesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
)

// bench is a simulator on a real socket and a stripe-go client for it. Every
// JSON body the client sees is checked against Stripe's own schemas.
type bench struct {
	t      *testing.T
	sim    *Sim
	url    string
	admin  string
	api    *client.API
	shapes *shapeRecorder
}

func setup(t *testing.T, opts ...func(*Options)) *bench {
	t.Helper()
	began := time.Now()
	o := Options{Now: func() time.Time { return began }} // time passes when a test says so
	for _, f := range opts {
		f(&o)
	}
	sim, err := New(o)
	require.NoError(t, err)
	b := &bench{t: t, sim: sim}
	api := httptest.NewServer(sim.Handler())
	admin := httptest.NewServer(sim.AdminHandler())
	t.Cleanup(func() {
		require.NoError(t, sim.Close()) // first: it lets go of whoever is held or delayed
		api.Close()
		admin.Close()
	})
	b.url, b.admin = api.URL, admin.URL
	b.shapes = &shapeRecorder{t: t, next: &http.Transport{}}
	b.api = newClient(DefaultKey, api.URL, b.shapes, 10*time.Second)
	return b
}

// newClient is stripe-go without its conveniences: no retries, no telemetry, no
// log, no invented answers.
func newClient(key, url string, rt http.RoundTripper, timeout time.Duration) *client.API {
	return client.New(key, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{}, HTTPClient: &http.Client{Timeout: timeout, Transport: rt},
	}))
}

// shapeRecorder checks each body on its way to stripe-go, and keeps it.
type shapeRecorder struct {
	t       *testing.T
	next    http.RoundTripper
	mu      sync.Mutex
	off     bool // what comes is broken on purpose
	lenient bool // the real Stripe may know more fields than the schema
	last    *http.Response
	body    []byte
	wait    func() // before each request
	repeats bool   // let net/http send a request again on its own
}

func (r *shapeRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.wait != nil {
		r.wait()
	}
	if !r.repeats && req.GetBody != nil {
		req = req.Clone(req.Context())
		req.GetBody = nil // without it net/http cannot
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	r.mu.Lock()
	r.last, r.body = resp, body
	off := r.off
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !off {
		checkShape(r.t, shape{
			Request: req.Method + " " + req.URL.Path, Status: resp.StatusCode, Lenient: r.lenient, Body: body,
		})
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func (b *bench) header(name string) string {
	b.shapes.mu.Lock()
	defer b.shapes.mu.Unlock()
	return b.shapes.last.Header.Get(name)
}

func (b *bench) broken() { b.shapes.mu.Lock(); b.shapes.off = true; b.shapes.mu.Unlock() }

func keyed(key string) stripe.Params { return stripe.Params{IdempotencyKey: stripe.String(key)} }

// create makes an unconfirmed card intent for an order.
func (b *bench) create(order string, change ...func(*stripe.PaymentIntentParams)) *stripe.PaymentIntent {
	b.t.Helper()
	p := &stripe.PaymentIntentParams{
		Params: keyed("create-" + order), Amount: stripe.Int64(1000), Currency: stripe.String("usd"),
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}), Metadata: map[string]string{"order_id": order},
	}
	for _, f := range change {
		f(p)
	}
	pi, err := b.api.PaymentIntents.New(p)
	require.NoError(b.t, err)
	return pi
}

func (b *bench) confirm(id, key, card string) (*stripe.PaymentIntent, error) {
	return b.api.PaymentIntents.Confirm(
		id, &stripe.PaymentIntentConfirmParams{Params: keyed(key), PaymentMethod: stripe.String(card)},
	)
}

// paid is a finished payment.
func (b *bench) paid(order string, card ...string) *stripe.PaymentIntent {
	b.t.Helper()
	c := "pm_card_visa"
	if len(card) > 0 {
		c = card[0]
	}
	pi, err := b.confirm(b.create(order).ID, "confirm-"+order, c)
	require.NoError(b.t, err)
	require.Equal(b.t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	return pi
}

func (b *bench) get(id string) *stripe.PaymentIntent {
	b.t.Helper()
	pi, err := b.api.PaymentIntents.Get(id, nil)
	require.NoError(b.t, err)
	return pi
}

// refused asserts that the error is one Stripe made, and returns it.
func refused(t *testing.T, err error, status int, code stripe.ErrorCode) *stripe.Error {
	t.Helper()
	var e *stripe.Error
	require.True(t, errors.As(err, &e), "not an answer of Stripe's: %v", err)
	require.Equal(t, status, e.HTTPStatusCode, e.Msg)
	require.Equal(t, code, e.Code, e.Msg)
	return e
}

func (b *bench) effects(kind string) []Effect {
	var out []Effect
	for _, e := range b.sim.Effects() {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(data, into), "%s", data)
}
