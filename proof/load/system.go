package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

// Limits of a system of our own. Both rate limits are off: what limits it is to
// be the machine.
const (
	processes     = 2
	stripeTimeout = 4 * time.Second
	lease         = 15 * time.Second
	webhookSecret = "whsec_load"

	invariantPatience = 20 * time.Second // consumers may be a moment behind
)

const _ = uint(lease - 3*stripeTimeout - 1) // the API insists: a lease outlives the work it covers

// system is what is put under load: one of our own or one that runs elsewhere.
type system struct {
	*process.Stage // its log is that of our own processes

	apis      []*process.API // of our own
	apiURL    string         // several are separated by commas
	simulator string
	apiKey    string
	pool      *postgres.Pool // nil: no DATABASE_URL
	about     string
}

// here starts a system on this machine, on loopback.
func here(ctx context.Context, o options, say func(string, ...any)) (_ *system, err error) {
	s := &system{}
	if s.Stage, err = process.NewStage("payonce-load"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()

	program := filepath.Join(s.Dir, "api")
	if err := process.Build(ctx, "cmd/api", program); err != nil {
		return nil, err
	}
	dsn, err := s.startDatabase(ctx, o, say)
	if err != nil {
		return nil, err
	}
	stripe, err := s.startStripe(o.latency)
	if err != nil {
		return nil, err
	}
	brokerURL, err := s.startBroker(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.makeTenant(ctx, o.run); err != nil {
		return nil, err
	}
	keeps := 72 * time.Hour // the default
	if length := o.watched(); length > 0 {
		keeps = retention(length)
	}
	var urls []string
	for i := range processes {
		// Nothing of our own environment reaches them: a real Stripe key that
		// stands there must never meet a load test.
		p := &process.API{Child: process.Child{Name: fmt.Sprintf("API process %d", i+1), Program: program,
			Args: []string{"serve"}, Group: s.Group, Log: s.Log, Env: []string{
				"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.Dir, "DATABASE_URL=" + dsn, "BROKER_URL=" + brokerURL,
				"STRIPE_API_BASE=" + stripe, "STRIPE_SECRET_KEY=" + stripesim.DefaultKey,
				"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
				"STRIPE_TIMEOUT=" + stripeTimeout.String(), "IDEMPOTENCY_LEASE=" + lease.String(), "STRIPE_RPS=0",
				"RATE_LIMIT_RPS=0", "IDEMPOTENCY_RETENTION=" + keeps.String(),
			}}}
		s.Later(p.Stop)
		if err := p.Start(ctx); err != nil {
			return nil, err
		}
		s.apis, urls = append(s.apis, p), append(urls, p.URL)
	}
	s.apiURL = strings.Join(urls, ",")
	if err := post(ctx, s.simulator+"/webhook-endpoints",
		fmt.Sprintf(`{"url":%q,"secret":%q,"key":%q}`, urls[0]+"/v1/webhooks/stripe", webhookSecret,
			stripesim.DefaultKey)); err != nil {
		return nil, fmt.Errorf("have Stripe send its webhooks: %w", err)
	}
	s.about = fmt.Sprintf("%d API processes, PostgreSQL with fsync, JetStream and a simulated Stripe that takes "+
		"about %s, all on this machine with k6", processes, o.latency)
	say("%d API processes at %s; Stripe is simulated, its effect log is at %s/effects", processes, s.apiURL,
		s.simulator)
	return s, nil
}

// elsewhere finds a system that others run.
func elsewhere(ctx context.Context, o options, say func(string, ...any)) (_ *system, err error) {
	s := &system{Stage: &process.Stage{}, apiURL: o.apiURL, simulator: strings.TrimRight(o.simulator, "/"),
		apiKey: o.apiKey, about: "a system that ran already, at " + o.apiURL}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()
	if o.database != "" {
		if err := s.open(ctx, o.database, o.dataKey); err != nil {
			return nil, err
		}
	}
	if s.apiKey == "" {
		if err := s.makeTenant(ctx, o.run); err != nil {
			return nil, err
		}
	}
	say("the API is at %s, Stripe's effect log is at %s/effects", s.apiURL, s.simulator)
	return s, nil
}

// startDatabase finds or starts PostgreSQL, and makes a database for this run.
func (s *system) startDatabase(ctx context.Context, o options, say func(string, ...any)) (dsn string, err error) {
	pg, err := devpg.Start(ctx,
		devpg.Options{URL: o.database, URLVar: "DATABASE_URL", Durable: true, MaxConnections: 200, Log: say})
	if err != nil {
		return "", err
	}
	s.Later(pg.Stop)
	u, err := url.Parse(pg.URL)
	if err != nil || u.Scheme == "" {
		return "", errors.New("DATABASE_URL must be a URL: postgres://…")
	}
	admin, err := postgres.Open(ctx, pg.URL, postgres.Options{Name: "payonce-load", MaxConn: 1})
	if err != nil {
		return "", err
	}
	s.Later(func() error { admin.Close(); return nil })
	name := "payonce_load_" + noise(6)
	if _, err := admin.Raw().Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("make a database for this run: %w", err)
	}
	if pg.Source == devpg.FromURL {
		s.Later(func() error {
			_, err := admin.Raw().Exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
			return err
		})
	}
	u.Path = "/" + name
	if err := s.open(ctx, u.String(), ""); err != nil {
		return "", err
	}
	roles, err := devpg.Migrate(ctx, u.String())
	if err == nil { // A run that lasts long lets responses expire within it.
		_, err = s.pool.Raw().Exec(ctx, "UPDATE retention_floor SET answers = '0'")
	}
	return roles.Service, err
}

func (s *system) open(ctx context.Context, dsn, dataKey string) error {
	box, err := sealed.New(dataKey)
	if err != nil {
		return fmt.Errorf("DATA_KEY %w", err)
	}
	if s.pool, err = postgres.Open(ctx, dsn, postgres.Options{Name: "payonce-load", MaxConn: 2, Box: box}); err != nil {
		return err
	}
	s.Later(func() error { s.pool.Close(); return nil })
	return nil
}

// startStripe runs the simulator in this process, on sockets as everywhere.
func (s *system) startStripe(latency time.Duration) (api string, err error) {
	o := stripesim.Options{Keys: []string{stripesim.DefaultKey}}
	if latency > 0 {
		o.Latency = func() time.Duration { return latency/2 + rand.N(latency) }
	}
	sim, err := stripesim.New(o)
	if err != nil {
		return "", err
	}
	s.Later(sim.Close)
	if api, err = s.Listen(sim.Handler()); err != nil {
		return "", err
	}
	s.simulator, err = s.Listen(sim.AdminHandler())
	return api, err
}

// startBroker starts NATS with JetStream for both processes.
func (s *system) startBroker(ctx context.Context) (string, error) {
	b, err := broker.Open(ctx, "embedded:"+filepath.Join(s.Dir, "broker")+"?listen="+process.AnyPort,
		broker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	s.Later(b.Close)
	return "nats://" + b.(interface{ Addr() string }).Addr(), nil
}

// makeTenant makes a tenant for this run, so that its orders and those
// of other tenants stay apart.
func (s *system) makeTenant(ctx context.Context, run string) error {
	id, secret := ids.New(ids.Tenant), make([]byte, 32)
	copy(secret, noise(16))
	key, hash, hint := httpapi.NewAPIKey(id)
	err := s.pool.InTx(ctx, func(q *db.Queries) error {
		if err := q.TenantCreate(ctx, db.TenantCreateParams{
			ID: id, Name: run, FingerprintSecret: s.pool.Box().Seal(sealed.FingerprintSecret(id), secret),
		}); err != nil {
			return err
		}
		return q.APIKeyCreate(ctx, db.APIKeyCreateParams{TenantID: id, KeyHash: hash, Hint: hint})
	})
	if err != nil {
		return fmt.Errorf("make a tenant in DATABASE_URL: %w", err)
	}
	s.apiKey = key
	return nil
}

// checkInvariants checks every invariant in the database, and repeats for a while if
// one is violated: consumers may not have received every event yet.
func (s *system) checkInvariants(ctx context.Context, r *report) error {
	if s.pool == nil {
		return nil
	}
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		checks, err := s.pool.Invariants(ctx)
		if err != nil {
			return err
		}
		var offending []string
		for _, c := range checks {
			for _, row := range c.Rows {
				offending = append(offending, fmt.Sprintf("%s %s: %s %s", c.ID, c.Name, row.Subject, row.Detail))
			}
		}
		if len(offending) == 0 || time.Since(began) > invariantPatience {
			r.invariants(len(checks), offending)
			return nil
		}
	}
}

func post(ctx context.Context, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, process.StopWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded with %s", url, res.Status)
	}
	return nil
}
