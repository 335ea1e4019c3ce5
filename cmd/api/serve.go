package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"example.com/payonce/internal/admin"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/postgres"
)

// gcPercent is above Go's default. The live heap is some twenty megabytes, so at thirty thousand requests a second the
// default would collect dozens of times a second. 250 costs a replay what 400 costs, and 24 of 123 megabytes less. With
// an embedded broker the heap is larger, and the default is right.
const gcPercent = 250

// drain is how long requests and items of the loops get to finish when the process is stopped.
// Orchestrators kill after 30 seconds.
const drain = 25 * time.Second

// serveCommand rejects arguments: settings come from the environment only, so that a secret is
// never in a process list.
func serveCommand(ctx context.Context, cli cli, args []string) error {
	if err := arguments(args); err != nil {
		return err
	}
	return serve(ctx, cli.getenv, cli.stderr)
}

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
	limitMemory(getenv, os.DirFS("/"))
	// The database is required at the start, the broker is not: without the one nothing can be accepted, without the
	// other events wait in the outbox.
	pool, err := openDatabase(ctx, c.DatabaseURL, postgres.Options{Box: c.DataKey}, log)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := whenReady(ctx, log, func() error { return prepareSchema(ctx, c, pool, log) }); err != nil {
		return err
	}
	if err := whenReady(ctx, log, func() error { return checkCell(ctx, pool, c.Cell) }); err != nil {
		return err
	}
	if err := whenReady(ctx, log, func() error { return checkDataKey(ctx, pool, log) }); err != nil {
		return err
	}
	if err := whenReady(ctx, log, func() error { return checkRetention(ctx, pool, c) }); err != nil {
		return err
	}
	if err := whenReady(ctx, log, func() error { return warnOfOwner(ctx, pool, log) }); err != nil {
		return err
	}
	events, err := broker.Open(ctx, c.BrokerURL, broker.Options{
		Log:  log,
		Pool: pool, // part: cdc
	})
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
	s, err := wire(ctx, resources{
		config: c, pool: pool, events: events, metrics: metrics, log: log, tracer: tracer, fault: boundary(getenv),
	})
	defer s.close()
	if err != nil {
		return err
	}

	// Both addresses are taken before any loop starts: a second process that is started by mistake
	// fails here, without having done any work.
	public, err := listen(ctx, "HTTP_ADDR", c.HTTPAddr)
	if err != nil {
		return err
	}
	private, err := listen(ctx, "ADMIN_ADDR", c.AdminAddr)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	adminServer := admin.NewServer(admin.Options{Metrics: metrics, Pages: s.pages, Token: s.adminToken, Log: log})
	go func() { _ = adminServer.Serve(private) }() // Its error is that of the Close below.
	defer func() { _ = adminServer.Close() }()

	// The loops have a separate context: they also stop when the server fails and ctx has not ended, and they work on
	// through DRAIN_DELAY, in which requests are served as before.
	loopsCtx, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	context.AfterFunc(ctx, func() { time.AfterFunc(c.DrainDelay, stopLoops) })
	wait := start(loopsCtx, log, newLoopMetrics(metrics), drain, s.loops...)
	if len(c.StripeWebhookSecrets) == 0 {
		log.Warn(unsetWebhookSecret)
	}
	log.Info("serving", "addr", public.Addr().String(), "admin_addr", private.Addr().String(), "config", c)

	// Shutdown: readiness goes off and nothing else changes for DRAIN_DELAY; then no new requests and no new
	// iterations of the loops; requests and items in flight finish, or are cut off after drain; then the broker
	// and the pool are closed. Correctness needs none of that: SIGKILL is the design case.
	err = s.api.Run(ctx, public)
	stopLoops()
	wait()
	log.Info("stopped")
	return err
}

// prepareSchema stops the start on an older schema: the first request would fail, and possibly after money has moved.
func prepareSchema(ctx context.Context, c config, pool *postgres.Pool, log *slog.Logger) error {
	if !c.AutoMigrate {
		err := pool.CheckSchema(ctx)
		if errors.Is(err, postgres.ErrSchemaTooOld) {
			return fmt.Errorf("%w; run `api migrate`, or set AUTO_MIGRATE=true", err)
		}
		if err != nil {
			return err
		}
		return checkGuards(ctx, pool)
	}
	applied, err := migrateAs(ctx, pool, c.Cell)
	for _, m := range applied {
		log.Info("migrated", "migration", m.Name)
	}
	if err != nil {
		return err
	}
	return checkGuards(ctx, pool)
}

// checkGuards stops the start on a database that would not refuse what must not be.
func checkGuards(ctx context.Context, pool *postgres.Pool) error {
	missing, err := pool.MissingGuards(ctx)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the database lacks %d guards or has them disabled, among them %s: `api doctor` says what to do",
			len(missing), missing[0])
	}
	return err
}

// warnOfOwner says so if neither rights nor policies bind the role of DATABASE_URL.
func warnOfOwner(ctx context.Context, pool *postgres.Pool, log *slog.Logger) error {
	owns, err := pool.OwnsTables(ctx)
	if owns {
		log.Warn("the role of DATABASE_URL owns the tables, so neither their rights nor their policies bind it; " +
			"docs/operations.md, Roles, has a role that owns nothing")
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

// listen names the variable in its error, because two addresses are listened on.
func listen(ctx context.Context, name, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen: %w", name, err)
	}
	return l, nil
}

// newMetrics makes a registry without global state, so that tests can run several services in one process.
func newMetrics(pool *postgres.Pool) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	readBuildInfo().register(r)
	for name, value := range map[string]func() float64{
		"payonce_pool_connections_in_use": func() float64 { return float64(pool.Stat().InUse) },
		"payonce_pool_connections_idle":   func() float64 { return float64(pool.Stat().Idle) },
		"payonce_pool_connections_max":    func() float64 { return float64(pool.Stat().Max) },
		"payonce_pool_waits_total":        func() float64 { return float64(pool.Stat().Waits) },
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name,
			Help: "Connection pool to PostgreSQL of this process: connections, and acquisitions that had to wait.",
		}, value))
	}
	return r
}
