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
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/postgres"
)

// gcPercent is four times Go's default. A few megabytes are alive at any time, so
// at ten thousand requests a second the default collects dozens of times a second
// and takes a fifth of a replay's processor time, to save twenty megabytes. With an
// embedded broker more is alive, and the default is right.
const gcPercent = 400

// drain is how long what is in flight may take to finish when the process is told
// to stop: the requests, and beside them the items of the loops. Orchestrators
// kill after 30 seconds.
const drain = 25 * time.Second

// serve runs the service until ctx ends.
func serve(ctx context.Context, getenv func(string) string, stderr io.Writer) error {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	log := newLogger(c, stderr)
	slog.SetDefault(log)
	if getenv("GOGC") == "" && !strings.HasPrefix(c.BrokerURL, "embedded:") {
		debug.SetGCPercent(gcPercent)
	}
	pool, err := openDatabase(ctx, c.DatabaseURL, postgres.Options{GroupCommit: c.GroupCommit})
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepareSchema(ctx, c, pool, log); err != nil {
		return err
	}
	events, err := broker.Open(ctx, c.BrokerURL, broker.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	tracer, flush, err := startTracing(ctx, c, log)
	if err != nil {
		return err
	}
	defer flush()
	metrics := newMetrics(pool)
	p := wire(c, pool, events, metrics, log, tracer, boundary(getenv))

	public, err := listen(ctx, "HTTP_ADDR", c.HTTPAddr)
	if err != nil {
		return err
	}
	private, err := listen(ctx, "ADMIN_ADDR", c.AdminAddr)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	page, closePage, err := operatorPage(ctx, c, p, log)
	if err != nil {
		return errors.Join(err, public.Close(), private.Close())
	}
	defer closePage()
	admin := &http.Server{Handler: adminHandler(metrics, page), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = admin.Serve(private) }() // Ends with Close below; that it ends is no news.
	defer func() { _ = admin.Close() }()

	loopsCtx, stopLoops := context.WithCancel(ctx)
	defer stopLoops()
	wait := start(loopsCtx, log, newLoopMetrics(metrics), drain, p.loops()...)
	log.Info("serving", "addr", public.Addr().String(), "admin_addr", private.Addr().String(), "config", c)

	// Stopping: no new requests and no new turns of the loops; what is in flight
	// finishes, or is cut off when its time is up; then the broker and the pool
	// close. None of it is needed for correctness; SIGKILL is the design case.
	err = p.api.Run(ctx, public)
	stopLoops()
	wait()
	log.Info("stopped")
	return err
}

func prepareSchema(ctx context.Context, c config, pool *postgres.Pool, log *slog.Logger) error {
	if !c.AutoMigrate {
		err := pool.CheckSchema(ctx)
		if errors.Is(err, postgres.ErrSchemaTooOld) {
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

func newMetrics(pool *postgres.Pool) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, value := range map[string]func() float64{
		"payonce_pool_connections_in_use": func() float64 { return float64(pool.Stat().AcquiredConns()) },
		"payonce_pool_connections_idle":   func() float64 { return float64(pool.Stat().IdleConns()) },
		"payonce_pool_connections_max":    func() float64 { return float64(pool.Stat().MaxConns()) },
		"payonce_pool_waits_total":        func() float64 { return float64(pool.Stat().EmptyAcquireCount()) },
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: "Connection pool to PostgreSQL of this process: connections, and acquisitions that had to wait."}, value))
	}
	return r
}

// operatorPage has a pool of its own: the page must open while the service's is
// exhausted, and must never be what exhausts it.
func operatorPage(ctx context.Context, c config, p parts, log *slog.Logger) (page http.Handler, closePool func(), err error) {
	pool, err := postgres.Open(ctx, c.DatabaseURL, postgres.Options{Name: "payonce operator", MaxConn: operator.Connections, Statement: operator.Statement})
	if err != nil {
		return nil, nil, fmt.Errorf("DATABASE_URL is %w", err)
	}
	return operator.New(operator.Options{Pool: pool, Payments: p.money, Token: c.AdminToken, Retention: c.IdempotencyRetention, Log: log}), pool.Close, nil
}

// adminHandler is for operators. It listens on loopback unless told otherwise.
func adminHandler(metrics *prometheus.Registry, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/operator", page)
	mux.Handle("/operator/", page)
	mux.Handle("GET /{$}", http.RedirectHandler("/operator", http.StatusSeeOther))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
