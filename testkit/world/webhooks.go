package world

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
)

// Webhook is one that Stripe sent, with its signature.
type Webhook struct{ Type, Object, Body, Signature string }

// Mailbox takes Stripe's webhooks in and passes none of them on: a test does,
// when it wants, in the order that it wants, and as often.
type Mailbox struct {
	world *World
	mu    sync.Mutex
	all   []Webhook
}

// Mailbox has Stripe's webhooks kept from now on.
func (w *World) Mailbox() *Mailbox {
	w.T.Helper()
	m := &Mailbox{world: w}
	server := httptest.NewServer(http.HandlerFunc(m.keep))
	w.T.Cleanup(server.Close)
	_, err := w.Sim.AddWebhookEndpoint(stripesim.DefaultKey, server.URL, WebhookSecret)
	require.NoError(w.T, err)
	return m
}

func (m *Mailbox) keep(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event struct {
		Type string `json:"type"`
		Data struct {
			Object struct {
				ID string `json:"id"`
			} `json:"object"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(body, &event) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, Webhook{event.Type, event.Data.Object.ID, string(body), r.Header.Get("Stripe-Signature")})
}

// Take returns what has come since it was last asked, when nothing more is on
// its way.
func (m *Mailbox) Take() []Webhook {
	m.world.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	require.NoError(m.world.T, m.world.Sim.WaitForWebhooks(ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := slices.Clone(m.all)
	m.all = nil
	return taken
}

// Receive delivers a webhook, as Stripe would.
func (l *Local) Receive(h Webhook) Answer {
	return l.Do("POST", "/v1/webhooks/stripe", h.Body, "Stripe-Signature: "+h.Signature, "Authorization: -")
}

// Process lets the pauses pass that events wait for, and applies what has been
// received, until nothing is left that may be tried. It returns how many attempts
// that took; those that come too early, ahead of our own commit, take several.
func (l *Local) Process() (tried int) {
	l.t.Helper()
	tried, err := l.TryProcess()
	require.NoError(l.t, err)
	return tried
}

// TryProcess is Process on a database that may fail.
func (l *Local) TryProcess() (tried int, err error) {
	l.t.Helper()
	handler := l.Payments.WebhookHandler()
	handler = l.Disputes.WebhookHandler(handler) // part: disputes
	processor := inbox.NewProcessor(l.Pool, map[string]inbox.Handler{payments.StripeEvents: handler},
		inbox.ProcessorOptions{Log: l.log})
	l.world.Exec(`UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'`)
	for {
		n, err := processor.RunOnce(context.Background())
		if n == 0 || err != nil {
			return tried, err
		}
		tried += n
	}
}
