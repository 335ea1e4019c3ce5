package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

const (
	completers    = 8                      // Each takes a few claims at a time; one that waits for Stripe holds up only its own.
	completeEvery = 500 * time.Millisecond // How late an abandoned payment may be noticed.
	inboxEvery    = 500 * time.Millisecond // How late a webhook may be noticed that another process took in.
)

// serve runs the service until ctx ends. This is where everything is wired, and
// the only place where loops start.
func serve(ctx context.Context, getenv func(string) string, stderr io.Writer) error {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	log := newLogger(c, stderr)
	slog.SetDefault(log)
	pool, err := db.Open(ctx, c.DatabaseURL, db.Options{})
	if err != nil {
		return fmt.Errorf("DATABASE_URL is %w", err)
	}
	defer pool.Close()
	if err := prepareSchema(ctx, c, pool, log); err != nil {
		return err
	}

	metrics := newMetrics(pool)
	keys := idempotency.NewStore(pool, idempotency.Options{
		Lease: c.IdempotencyLease, Metrics: idempotency.NewMetrics(metrics), Log: log, Boundary: boundary(getenv),
	})
	gateway := payments.NewStripe(payments.StripeOptions{
		SecretKey: c.StripeSecretKey, BaseURL: c.StripeAPIBase, Timeout: c.StripeTimeout,
		Limits: payments.NewLimits(c.StripeRPS, metrics), Metrics: payments.NewStripeMetrics(metrics), Log: log,
	})
	money := payments.New(pool, keys, gateway, httpapi.Answers{}, payments.Options{StripeTimeout: c.StripeTimeout, ActionTimeout: c.ActionTimeout, Log: log})
	operations := money.Operations() // One map for both: whatever the API can start, the completer can finish.
	completer := idempotency.NewCompleter(keys, operations, c.within())
	webhooks := inbox.NewProcessor(pool, map[string]inbox.Handler{payments.StripeEvents: money.WebhookHandler()},
		inbox.ProcessorOptions{Lease: c.IdempotencyLease, Metrics: inbox.NewMetrics(metrics), Log: log})
	api := httpapi.NewServer(httpapi.Options{
		Pool: pool, Keys: keys, Operations: operations, Payments: money, Feed: outbox.NewFeed(pool), Within: c.within(), RateLimit: c.RateLimitRPS,
		Retention: c.IdempotencyRetention, Metrics: metrics, Log: log,
		WebhookSecrets: c.StripeWebhookSecrets, WebhookReceived: webhooks.Wake,
	})

	public, err := listen(ctx, "HTTP_ADDR", c.HTTPAddr)
	if err != nil {
		return err
	}
	private, err := listen(ctx, "ADMIN_ADDR", c.AdminAddr)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	admin := &http.Server{Handler: adminHandler(metrics), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = admin.Serve(private) }() // Ends with Close below; that it ends is no news.
	defer func() { _ = admin.Close() }()

	loopsCtx, stopLoops := context.WithCancel(ctx)
	defer stopLoops()
	var loops []loop
	for range completers {
		loops = append(loops, loop{name: "completer", every: completeEvery, runOnce: completer.RunOnce})
	}
	loops = append(loops, loop{name: "webhooks", every: inboxEvery, wake: webhooks.Woken(), runOnce: webhooks.RunOnce})
	wait := start(loopsCtx, log, loops...)
	log.Info("serving", "addr", public.Addr().String(), "admin_addr", private.Addr().String(), "config", c)

	// Stopping: no new requests and no new turns of the loops; what is in flight
	// finishes; then the pool closes. None of it is needed for correctness; SIGKILL is the design case.
	err = api.Run(ctx, public)
	stopLoops()
	wait()
	log.Info("stopped")
	return err
}

func prepareSchema(ctx context.Context, c config, pool *db.Pool, log *slog.Logger) error {
	if !c.AutoMigrate {
		err := pool.CheckSchema(ctx)
		if errors.Is(err, db.ErrSchemaTooOld) {
			return fmt.Errorf("%w; run `api migrate`, or set AUTO_MIGRATE=true", err)
		}
		return err
	}
	applied, err := pool.Migrate(ctx)
	for _, m := range applied {
		log.Info("migrated", "migration", m.Name)
	}
	return err
}

func newLogger(c config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

func listen(ctx context.Context, name, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be listened on: %w", name, err)
	}
	return l, nil
}

func newMetrics(pool *db.Pool) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, value := range map[string]func() float64{
		"payonce_pool_connections_in_use": func() float64 { return float64(pool.Stat().AcquiredConns()) },
		"payonce_pool_connections_idle":   func() float64 { return float64(pool.Stat().IdleConns()) },
		"payonce_pool_connections_max":    func() float64 { return float64(pool.Stat().MaxConns()) },
		"payonce_pool_waits_total":        func() float64 { return float64(pool.Stat().EmptyAcquireCount()) },
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: "The pool of connections to PostgreSQL."}, value))
	}
	return r
}

// adminHandler is for operators. It listens on loopback unless told otherwise.
func adminHandler(metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
