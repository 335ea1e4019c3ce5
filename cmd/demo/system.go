package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

// Both are short, so that a scene does not wait long for a killed process's lease
// to expire.
const (
	stripeTimeout = 750 * time.Millisecond
	lease         = 2400 * time.Millisecond
)

const _ = uint(lease - 3*stripeTimeout - 1) // the API refuses to start with a lease that can expire during a call

const webhookSecret = "whsec_demo"

// endpoint is the address of an API process.
type endpoint struct{ name, url string }

// system is what the scenes are played against: two API processes, their database
// and their Stripe, started by the demo or named with -against.
type system struct {
	*process.Stage

	a, b   *endpoint
	stripe *stripe
	shop   *shop
	tenant tenant
	pool   *postgres.Pool // nil: -against without DATABASE_URL
	nonce  string         // part of every key, so that two demos with one tenant do not share keys
	began  time.Time

	earlierPayment  *earlierPayment
	responsesExpire bool // whether a scene has shortened the retention

	// Started by the demo; nil with -against.
	database   *database
	processes  []*apiProcess
	broker     *brokerProcess
	subscriber *subscriber
	console    *console // nil: without -serve
	dsn        string   // with the role of the server's URL
	service    string   // as the service
	dataKey    string   // of the API
}

// startLocal starts a system on this machine.
func startLocal(ctx context.Context, o options, out *printer) (_ *system, err error) {
	s := &system{began: time.Now(), nonce: randomHex(2), dataKey: newDataKey()}
	if s.Stage, err = process.NewStage("payonce-demo"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()

	// The database and the compiler take a second each, so they run at the same time.
	var program string
	both, starting := errgroup.WithContext(ctx)
	both.Go(func() error { return s.startDatabase(starting, o.database, out) })
	both.Go(func() (err error) {
		program, err = findAPI(starting, o.api, s.Dir, out)
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if s.tenant, err = createTenant(ctx, program, "demo", s.service, s.dataKey); err != nil {
		return nil, err
	}
	if err := s.startStripe(out); err != nil {
		return nil, err
	}
	if err := s.startBroker(ctx, out); err != nil {
		return nil, err
	}
	if err := s.startProcesses(ctx, program, out); err != nil {
		return nil, err
	}
	s.a, s.b, s.shop = &s.processes[0].endpoint, &s.processes[1].endpoint, newShop(s.tenant.APIKey)
	return s, nil
}

// connectRemote uses a system that is already running.
func connectRemote(ctx context.Context, o options, out *printer) (_ *system, err error) {
	s := &system{
		Stage: &process.Stage{}, began: time.Now(), nonce: randomHex(2),
		stripe: newStripe(o.simulator), tenant: tenant{APIKey: o.apiKey}, dataKey: o.dataKey,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()
	s.a = &endpoint{"api", o.against[0]}
	s.b = &endpoint{"api", o.against[len(o.against)-1]}
	out.fact("API", "%s", strings.Join(o.against, ", "))
	out.fact("Stripe", "the simulator whose admin port is %s", o.simulator)
	if _, err := s.stripe.charges(ctx, "any"); err != nil {
		return nil, fmt.Errorf("-simulator: %w", err)
	}
	if o.database != "" {
		s.dsn = o.database
		if s.pool, err = s.open(ctx); err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "payonce-demo-")
		if err != nil {
			return nil, err
		}
		s.Later(func() error { return os.RemoveAll(dir) })
		program, err := findAPI(ctx, o.api, dir, out)
		if err != nil {
			return nil, err
		}
		if s.tenant, err = createTenant(ctx, program, "demo", s.dsn, s.dataKey); err != nil {
			return nil, err
		}
		out.fact("Tenant", "%s, created for this run in DATABASE_URL", s.tenant.ID)
	}
	s.shop = newShop(s.tenant.APIKey)
	return s, nil
}

// startDatabase starts or finds PostgreSQL, and makes a database.
func (s *system) startDatabase(ctx context.Context, named string, out *printer) error {
	pg, err := devpg.Start(ctx, devpg.Options{URL: named, URLVar: "DATABASE_URL", Durable: true,
		Log: func(format string, args ...any) {
			out.longFact("PostgreSQL", strings.TrimPrefix(fmt.Sprintf(format, args...), "PostgreSQL "))
		}})
	if err != nil {
		return err
	}
	s.Later(pg.Stop)
	if s.database, err = makeDatabase(ctx, pg.URL); err != nil {
		return err
	}
	if pg.Source == devpg.FromURL {
		s.Later(s.database.drop)
	} else {
		s.Later(func() error { s.database.admin.Close(); return nil }) // the server is deleted, with its databases
	}
	s.dsn = s.database.dsn
	if s.pool, err = s.open(ctx); err != nil {
		return err
	}
	roles, err := devpg.Migrate(ctx, s.dsn)
	s.service = roles.Service
	if devpg.MayNotMakeRoles(err) { // on a server of the reader's
		out.fact("Roles", "none: the role of DATABASE_URL may not make them, so the service has its rights")
		s.service = s.dsn
		_, err = s.pool.Migrate(ctx)
	}
	if err == nil {
		err = s.pool.IntroduceKey(postgres.ForAllTenants(ctx, "introduction of DATA_KEY"))
	}
	return err
}

func (s *system) open(ctx context.Context) (*postgres.Pool, error) {
	box, err := sealed.New(s.dataKey)
	if err != nil {
		return nil, fmt.Errorf("DATA_KEY %w", err)
	}
	pool, err := postgres.Open(ctx, s.dsn, postgres.Options{Name: sessionName, MaxConn: 2, Box: box})
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL is %w", err)
	}
	s.Later(func() error { pool.Close(); return nil })
	return pool, nil
}

// startStripe runs the simulator in this process. The demo too uses it only over
// HTTP, so that a simulator elsewhere (-simulator) works the same way.
func (s *system) startStripe(out *printer) error {
	sim, err := stripesim.New(stripesim.Options{Keys: []string{stripesim.DefaultKey}})
	if err != nil {
		return err
	}
	s.Later(sim.Close)
	api, err := s.Listen(sim.Handler())
	if err != nil {
		return err
	}
	admin, err := s.Listen(sim.AdminHandler())
	if err != nil {
		return err
	}
	s.stripe = newStripe(admin)
	s.stripe.api = api
	out.fact("Stripe", "simulated at %s, its records at %s/effects", api, admin)
	return nil
}

// startBroker starts NATS with JetStream, and a subscriber that checks its deliveries.
func (s *system) startBroker(ctx context.Context, out *printer) (err error) {
	if s.broker, err = newBroker(filepath.Join(s.Dir, "broker"), s.Group, s.Log); err != nil {
		return err
	}
	s.Later(s.broker.Stop)
	if err := s.broker.start(ctx); err != nil {
		return err
	}
	if s.subscriber, err = subscribe(s.broker.url()); err != nil {
		return err
	}
	s.Later(func() error { s.subscriber.stop(); return nil })
	out.fact("Broker", "JetStream at %s, process %d", s.broker.url(), s.broker.PID())
	return nil
}

// startProcesses starts A and B. They inherit nothing of this process's environment:
// it may have a real Stripe key, which a demo must never use.
func (s *system) startProcesses(ctx context.Context, program string, out *printer) error {
	for _, name := range []string{"A", "B"} {
		p := &apiProcess{endpoint: endpoint{name: name}}
		p.Child = process.Child{Name: "API process " + name, Program: program, Args: []string{"serve"}}
		p.Child.Group, p.Child.Log = s.Group, s.Log
		p.Child.Env = []string{
			"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.Dir,
			"DATABASE_URL=" + s.service,
			"DATA_KEY=" + s.dataKey,
			"STRIPE_API_BASE=" + s.stripe.api,
			"STRIPE_SECRET_KEY=" + stripesim.DefaultKey,
			"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
			"STRIPE_TIMEOUT=" + stripeTimeout.String(),
			"IDEMPOTENCY_LEASE=" + lease.String(),
			"BROKER_URL=" + s.broker.url(),
			"NOTIFY_PRIVATE_ADDRESSES=true", // a reader's endpoint is on this machine // part: webhooks
		}
		s.processes = append(s.processes, p)
		s.Later(p.Stop)
	}
	if err := s.startAll(ctx); err != nil {
		return err
	}
	for _, p := range s.processes {
		out.fact("API "+p.endpoint.name, "%s, process %d", p.url, p.PID())
	}
	// Webhooks go to B, which the scenes do not kill. In production a load balancer
	// makes that irrelevant.
	return s.stripe.registerWebhook(ctx, s.processes[1].url+"/v1/webhooks/stripe", webhookSecret)
}

func (s *system) startAll(ctx context.Context) error {
	var all errgroup.Group
	for _, p := range s.processes {
		all.Go(func() error { return p.start(ctx) })
	}
	return all.Wait()
}

func (s *system) stopAll() error {
	var all errgroup.Group
	for _, p := range s.processes {
		all.Go(p.Stop)
	}
	return all.Wait()
}

// processAt returns the API process at an endpoint.
func (s *system) processAt(d *endpoint) *apiProcess {
	i := slices.IndexFunc(s.processes, func(p *apiProcess) bool { return &p.endpoint == d })
	return s.processes[i]
}

func newDataKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
