package world

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/disputes" // part: disputes
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/tracing"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
)

// LocalOptions are the places where a test may reach into a server. The zero
// value is a server as it is.
type LocalOptions struct {
	Name          string // how the database knows its sessions
	Database      string // another way to the database, such as one that fails
	Stripe        string // another way to Stripe
	MaxConn       int32
	Lease         time.Duration // default a minute; it is longer than three times StripeTimeout
	StripeTimeout time.Duration // of one attempt; default ten seconds
	ActionTimeout time.Duration
	StripeRPS     float64
	RateLimit     float64
	Clients       httpapi.ClientTimes
	DataKey       string                                  // default the key DataKey; "none": what is written is not sealed
	Gateway       func(payments.Gateway) payments.Gateway // put something around it
	Boundary      func(operation, recoveryPoint string)
	Log           *slog.Logger
	Tracer        *tracing.Tracer
	Own           operations.List // operations of one's own
}

// Local is the API in this process, on a real socket. It has no loops: a test
// calls Completer.RunOnce when it wants one.
type Local struct {
	Client
	Pool      *postgres.Pool
	Gateway   payments.Gateway
	Payments  *payments.Service
	Checkouts *checkout.Service  // part: checkouts
	Disputes  *disputes.Service  // part: disputes
	History   *keyhistory.Reader // part: history
	Keys      *idempotency.Store
	Completer *idempotency.Completer
	Metrics   *prometheus.Registry
	world     *World
	log       *slog.Logger
}

// Local starts a server in this process, wired as cmd/api wires it.
func (w *World) Local(o LocalOptions) *Local {
	w.T.Helper()
	o = o.withDefaults(w)
	pool, closes := w.poolOf(o)
	metrics := prometheus.NewRegistry()
	keys := idempotency.NewStore(pool,
		idempotency.Options{Lease: o.Lease, Metrics: idempotency.NewMetrics(metrics), Log: o.Log, Tracer: o.Tracer,
			Boundary: o.Boundary})
	client := stripe.New(stripe.Options{
		SecretKey: stripesim.DefaultKey, BaseURL: o.Stripe, Timeout: o.StripeTimeout,
		Limits: stripe.NewLimits(o.StripeRPS, metrics), Metrics: stripe.NewMetrics(metrics), Log: o.Log,
	})
	gateway := o.Gateway(client)
	// part: disputes {
	disputed := disputes.New(pool, client, disputes.Options{Metrics: disputes.NewMetrics(metrics), Log: o.Log})
	// part: disputes }
	money := payments.New(pool, keys, gateway, httpapi.Answers{}, payments.Options{
		StripeTimeout: o.StripeTimeout, ActionTimeout: o.ActionTimeout, Log: o.Log, Registered: o.Own.Registered(),
		Disputes: disputed, // part: disputes
	})
	disputed.AdoptWith(money.Repairs()) // part: disputes
	table, within := money.Operations(), 3*o.StripeTimeout-o.StripeTimeout/4
	l := &Local{
		Pool: pool, Gateway: gateway, Payments: money, Keys: keys, Metrics: metrics, world: w, log: o.Log,
		Completer: idempotency.NewCompleter(keys, table, within),
	}
	l.Disputes = disputed // part: disputes
	wired := &wiring{server: httpapi.Options{
		Pool: pool, Keys: keys, Operations: table, Payments: money, Paths: payments.Paths(), Own: o.Own,
		Within: within, Drain: Patience, RateLimit: o.RateLimit, Clients: o.Clients, Metrics: metrics, Log: o.Log, Tracer: o.Tracer,
		WebhookSecrets: []string{WebhookSecret},
		Feed:           outbox.NewFeed(pool, payments.RenderEvents), // part: events
		Retention:      72 * time.Hour,                              // part: docs
	}}
	wired.describe = map[string]keyhistory.Describe{} // part: history
	for _, add := range parts {
		add(l, wired)
	}
	o.Own.Register(operations.Tools{
		Pool: pool, Keys: keys, Gateway: gateway, Calls: calls.NewRecorder(pool), Answers: httpapi.Answers{},
	}, operations.Shares{
		Operations: table, Paths: wired.server.Paths,
		History: wired.describe, // part: history
	})
	// part: history {
	l.History = keyhistory.New(pool, keyhistory.Options{
		Retention: 72 * time.Hour, Paths: wired.server.Paths, Operations: wired.describe,
	})
	wired.server.History = l.History
	// part: history }
	server := httpapi.NewServer(wired.server)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once or not at all
	require.NoError(w.T, err)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Run(ctx, listener) // a test that leaves requests behind is told by their own assertions
	}()
	w.T.Cleanup(func() {
		stop()
		<-stopped
		closes()
	})
	l.Client = newClient(w.T, "http://"+listener.Addr().String(), w.Tenant, o.Own...)
	return l
}

// poolOf opens the pool of a server. A pool to the database itself, or through Proxy, stays open for the next test that has
// the database.
func (w *World) poolOf(o LocalOptions) (pool *postgres.Pool, closes func()) {
	w.T.Helper()
	open := func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), o.Database, postgres.Options{
			Name: o.Name, MaxConn: o.MaxConn, Box: w.Box(o.DataKey),
		})
	}
	if o.Database != w.forTests() && (w.proxy == nil || o.Database != w.proxy.URL()) {
		pool, err := open()
		require.NoError(w.T, err)
		return pool, pool.Close
	}
	w.opening.Lock() // tests start servers side by side
	w.opened[o.Name]++
	number := w.opened[o.Name] // another server of this name gets a pool of its own
	w.opening.Unlock()
	key := fmt.Sprint(o.Database, " ", o.Name, " ", number, " ", o.MaxConn, " ", o.DataKey)
	return dbtest.Kept(w.T, w.URL, key, open), func() {}
}

// wiring is what the parts of the service add to while a Local is made.
type wiring struct {
	server   httpapi.Options
	describe map[string]keyhistory.Describe // part: history
}

// parts add those parts of the service that it can be made without. Each is in a file
// of its own, which a service without the part does not have.
var parts []func(*Local, *wiring)

// NewReconciler returns a reconciler of the server's payments; metrics may be nil.
func (l *Local) NewReconciler(metrics *reconcile.Metrics) *reconcile.Reconciler {
	return reconcile.New(l.Pool, l.Gateway, l.Payments, reconcile.Options{Metrics: metrics, Log: l.log})
}

// WebhookSecret signs the webhooks that a Local takes.
const WebhookSecret = "whsec_test"

func (o LocalOptions) withDefaults(w *World) LocalOptions {
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	set(&o.Lease, Lease)
	set(&o.StripeTimeout, StripeTimeout)
	set(&o.ActionTimeout, time.Hour)
	if o.Name == "" {
		o.Name = "local"
	}
	if o.Database == "" {
		o.Database = w.forTests()
	}
	switch o.DataKey {
	case "":
		o.DataKey = DataKey
	case "none":
		o.DataKey = "none," + DataKey // the tenants of a world are sealed
	}
	if o.Stripe == "" {
		o.Stripe = w.StripeURL
	}
	if o.Gateway == nil {
		o.Gateway = func(g payments.Gateway) payments.Gateway { return g }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
		if os.Getenv("WORLD_LOG") != "" { // to look into a failed test
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("server", o.Name)
		}
	}
	return o
}

// Complete lets the time pass that leases and pauses take, and then the
// completer do its work, until none is left that it can finish at once.
func (l *Local) Complete() (completed int) {
	l.t.Helper()
	for range 10 {
		l.world.ExpireLeases()
		n, err := l.Completer.RunOnce(context.Background())
		require.NoError(l.t, err)
		if n == 0 {
			return completed
		}
		completed += n
	}
	return completed
}

// Metric is the sum of a metric's samples, over all labels.
func (l *Local) Metric(name string) (sum float64) {
	l.t.Helper()
	families, err := l.Metrics.Gather()
	require.NoError(l.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Series is the sum of a metric's samples that have the label value.
func (l *Local) Series(name, label string) (sum float64) {
	l.t.Helper()
	families, err := l.Metrics.Gather()
	require.NoError(l.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, at := range m.GetLabel() {
				if f.GetName() == name && at.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
