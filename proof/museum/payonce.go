package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// The right side of every exhibit is the service itself, wired as cmd/api wires
// it and with the settings it has there: the HTTP API, the completer, the
// reaper, the outbox and its relay, the inbox. Only Stripe and the broker are
// those of the scenario.

const (
	lease         = time.Minute
	stripeTimeout = 15 * time.Second
	within        = 3*stripeTimeout - stripeTimeout/4
	retention     = 72 * time.Hour
)

// ordersOfTheMuseum have nothing but a version: what Change changes.
const ordersOfTheMuseum = `CREATE TABLE museum_orders (id text PRIMARY KEY, version bigint NOT NULL)`

// payonce opens the right shop.
func payonce(s *side) shop {
	pool := s.pool
	log := slog.New(slog.DiscardHandler)
	keys := idempotency.NewStore(pool, idempotency.Options{Lease: lease, Log: log})
	provider := &gateway{provider: s.provider, intents: map[string]stripe.NewIntent{}}
	money := payments.New(pool, keys, provider, httpapi.Answers{},
		payments.Options{StripeTimeout: stripeTimeout, ActionTimeout: time.Hour, Log: log})
	checkouts := checkout.New(pool, keys, provider, money, httpapi.Answers{}, checkout.Options{Log: log})
	operations := money.Operations()
	maps.Copy(operations, checkouts.Operations())
	server := httpapi.NewServer(httpapi.Options{
		Pool: pool, Keys: keys, Operations: operations, Payments: money, Checkouts: checkouts,
		Feed: outbox.NewFeed(pool, payments.RenderEvents), Within: within,
		Retention: retention, Metrics: prometheus.NewRegistry(), Log: log,
	})
	api := &client{handler: server.Handler(), keys: map[string]string{}}
	for _, tenant := range []string{"alice", "bob"} {
		api.register(s.ctx, pool, tenant)
	}
	completer := idempotency.NewCompleter(keys, operations, within)
	reaper := idempotency.NewReaper(keys, retention, 0)
	consumer := inbox.NewConsumer(pool, "museum", booking(s), nil)
	buyer := newBuyer(s, api)
	return shop{
		Order: api.order,
		Pay:   api.pay,
		Buy:   buyer.buy, Restart: buyer.restart,
		Tidy: func(ctx context.Context) {
			_, err := completer.RunOnce(ctx)
			must(err)
			_, err = reaper.RunOnce(ctx)
			must(err)
		},
		// An object of the museum's own: its row lock gives the version, and
		// outbox.Append joins the transaction, as in every phase of a payment.
		Change: func(ctx context.Context, id string, meanwhile func()) {
			inTx(ctx, pool.Raw(), func(tx pgx.Tx) {
				var version int64
				must(tx.QueryRow(ctx, `INSERT INTO museum_orders VALUES ($1, 1)
					ON CONFLICT (id) DO UPDATE SET version = museum_orders.version + 1 RETURNING version`,
					id).Scan(&version))
				must(outbox.Append(ctx, db.New(tx),
					outbox.Event{TenantID: api.tenant, AggregateID: id, Version: version, Type: "order.updated",
						Data: []byte(`{}`)}))
				meanwhile()
			})
		},
		Relay: func(ctx context.Context) {
			_, err := outbox.NewRelay(pool, publisher{s.broker}, outbox.RelayOptions{Log: log, Render: payments.RenderEvents}).RunOnce(ctx)
			must(err)
		},
		Changes: `SELECT aggregate_id, version FROM outbox_events`,
		Receive: func(ctx context.Context, m message, ack func()) {
			body, err := json.Marshal(outbox.Envelope{ID: m.ID, Type: m.Type, Subject: m.Payment, TenantID: api.tenant,
				Version: m.Version,
				Time:    time.Now(), Data: fmt.Appendf(nil, `{"amount":%d,"currency":"usd"}`, m.Amount)})
			must(err)
			must(consumer.Handle(ctx,
				inbox.Message{ID: m.ID, Type: m.Type, TenantID: api.tenant, Subject: m.Payment, Version: m.Version,
					Body: body}))
			ack()
		},
		Booked: `SELECT resource_id, count(*) / 2 FROM ledger_entries GROUP BY resource_id`, // a debit and a credit
	}
}

// booking is a consumer of the museum's own: it books in the real books, in the
// transaction that the inbox gives it. Each time it does, it uses another event
// id, so that the primary key of the books cannot help: the inbox is alone.
func booking(s *side) inbox.Handler {
	return inbox.Handler{Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, _ any) error {
		s.working(e.ID)
		return q.LedgerBook(ctx,
			db.LedgerBookParams{TenantID: e.TenantID, EventID: uuid.NewString(), ResourceID: e.ID, Currency: "usd",
				Accounts: []string{"stripe", "sales"}, AmountsMinor: []int64{1000, -1000}})
	}}
}

// client calls the API.
type client struct {
	handler http.Handler
	keys    map[string]string // API keys, by tenant
	tenant  string            // the id of the one who has the events
}

func (c *client) register(ctx context.Context, pool *postgres.Pool, name string) {
	id := ids.New(ids.Tenant)
	key, hash, hint := httpapi.NewAPIKey(id)
	must(pool.InTx(ctx, func(q *db.Queries) error {
		err := q.TenantCreate(ctx,
			db.TenantCreateParams{ID: id, Name: name, FingerprintSecret: []byte(strings.Repeat("secret", 6))})
		return errors.Join(err, q.APIKeyCreate(ctx, db.APIKeyCreateParams{TenantID: id, KeyHash: hash, Hint: hint}))
	}))
	c.keys[name], c.tenant = key, id
}

func (c *client) post(ctx context.Context, tenant, path, key, body string) answer {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+c.keys[tenant])
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Body.Bytes()}
}

func (c *client) order(tenant string, amount int) string {
	a := c.post(context.Background(), tenant, "/v1/orders", "order-"+ids.New(ids.Tenant),
		fmt.Sprintf(`{"currency":"usd","items":[{"sku":"ticket","quantity":1,"unit_amount":%d}]}`, amount))
	var order struct{ ID string }
	must(json.Unmarshal(a.Body, &order))
	if order.ID == "" {
		panic("no order: " + string(a.Body))
	}
	return order.ID
}

func (c *client) pay(ctx context.Context, r request) answer {
	return c.post(ctx, r.Tenant, "/v1/payments", r.Key, paymentOf(r))
}

// publisher is the scenario's broker, as the relay sees it.
type publisher struct{ broker *broker }

func (p publisher) Publish(_ context.Context, events []outbox.Envelope) []error {
	for _, e := range events {
		p.broker.Publish(event{e.Subject, e.Version})
	}
	return make([]error, len(events))
}

// gateway is the scenario's provider, as payments sees it. What no scenario asks for
// is not there, and would panic.
type gateway struct {
	payments.Gateway
	provider *provider

	mu      sync.Mutex
	intents map[string]stripe.NewIntent
}

func (g *gateway) Ready(context.Context, string) (func(), error) { return func() {}, nil }

// CreateIntent moves no money, so nothing happens to it in the scenarios.
func (g *gateway) CreateIntent(_ context.Context, _ stripe.Call, n stripe.NewIntent) stripe.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := "pi_" + n.OrderID
	g.intents[id] = n
	return stripe.Outcome{Effect: stripe.Done, Intent: g.show(id), HTTPStatus: http.StatusOK}
}

// ConfirmIntent is the call that the scenarios are about.
func (g *gateway) ConfirmIntent(ctx context.Context, call stripe.Call, id, _ string) stripe.Outcome {
	g.mu.Lock()
	n := g.intents[id]
	g.mu.Unlock()
	_, err := g.provider.Charge(ctx, call.Key, n.OrderID, int(n.AmountMinor))
	switch {
	case errors.Is(err, errUnavailable):
		return stripe.Outcome{Effect: stripe.NotExecuted, HTTPStatus: http.StatusServiceUnavailable, Err: err}
	case err != nil:
		return stripe.Outcome{Effect: stripe.Unknown, Err: err}
	}
	intent, _ := g.GetIntent(ctx, stripe.NoTenant, id)
	return stripe.Outcome{Effect: stripe.Done, Intent: intent, HTTPStatus: http.StatusOK}
}

func (g *gateway) GetIntent(_ context.Context, _, id string) (stripe.Intent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.show(id), nil
}

func (g *gateway) show(id string) stripe.Intent {
	n := g.intents[id]
	i := stripe.Intent{ID: id, Status: stripe.IntentRequiresPaymentMethod, AmountMinor: n.AmountMinor,
		Currency: n.Currency, TenantID: n.TenantID, OrderID: n.OrderID}
	if c, charged := g.provider.find(n.OrderID); charged {
		i.Status, i.ChargeID, i.ReceivedMinor = stripe.IntentSucceeded, c.ID, n.AmountMinor
	}
	return i
}
