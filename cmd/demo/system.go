package main

import (
	"context"
	"crypto/rand"
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
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

// Short, so that nobody has to wait long for a dead process's lease.
const (
	stripeTimeout = 750 * time.Millisecond
	lease         = 2400 * time.Millisecond
)

const _ = uint(lease - 3*stripeTimeout - 1) // the API insists: a lease outlives the work it covers

const webhookSecret = "whsec_demo"

// door is where an API process is spoken to.
type door struct{ name, url string }

// system is what the scenes are played on: two doors to one API, its database
// and its Stripe, ours or somebody else's.
type system struct {
	*process.Stage

	a, b   *door
	stripe *stripe
	shop   *shop
	tenant tenant
	pool   *postgres.Pool // nil: nobody told us where the database is
	nonce  string         // part of every key, so that two runs with one tenant do not meet
	began  time.Time

	keepsake      *keepsake
	answersExpire bool // a scene has made them

	// Ours to kill; nil with -against.
	database  *database
	processes []*apiProcess
	broker    *brokerProcess
	audience  *audience
	console   *console // nil: without -serve
	dsn       string
}

// keepsake is a payment of the first scene, for a later one.
type keepsake struct {
	request
	order string
}

// here starts a system on this machine.
func here(ctx context.Context, o options, out *printer) (_ *system, err error) {
	s := &system{began: time.Now(), nonce: noise(2)}
	if s.Stage, err = process.NewStage("payonce-demo"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()

	// The database and the compiler take a second each: the same second.
	var program string
	both, searching := errgroup.WithContext(ctx)
	both.Go(func() error { return s.startDatabase(searching, o.database, out) })
	both.Go(func() (err error) {
		program, err = findAPI(searching, o.api, s.Dir, out)
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	if s.tenant, err = createTenant(ctx, program, s.dsn); err != nil {
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
	s.a, s.b, s.shop = &s.processes[0].door, &s.processes[1].door, newShop(s.tenant.APIKey)
	return s, nil
}

// elsewhere finds a system that others run.
func elsewhere(ctx context.Context, o options, out *printer) (_ *system, err error) {
	s := &system{Stage: &process.Stage{}, began: time.Now(), nonce: noise(2), stripe: newStripe(o.simulator), tenant: tenant{APIKey: o.apiKey}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Strike(false))
		}
	}()
	s.a = &door{"api", o.against[0]}
	s.b = &door{"api", o.against[len(o.against)-1]}
	out.fact("API", "%s", strings.Join(o.against, ", "))
	out.fact("Stripe", "the simulator whose admin port is %s", o.simulator)
	if _, err := s.stripe.charges(ctx, "nobody's"); err != nil {
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
		if s.tenant, err = createTenant(ctx, program, s.dsn); err != nil {
			return nil, err
		}
		out.fact("Tenant", "%s, made for this run in DATABASE_URL", s.tenant.ID)
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
		s.Later(func() error { s.database.admin.Close(); return nil }) // the server goes, and all with it
	}
	s.dsn = s.database.dsn
	if s.pool, err = s.open(ctx); err != nil {
		return err
	}
	_, err = s.pool.Migrate(ctx)
	return err
}

func (s *system) open(ctx context.Context) (*postgres.Pool, error) {
	pool, err := postgres.Open(ctx, s.dsn, postgres.Options{Name: sessionName, MaxConn: 2})
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL is %w", err)
	}
	s.Later(func() error { pool.Close(); return nil })
	return pool, nil
}

// startStripe runs the simulator in this process, and speaks to it over HTTP as
// everybody else does.
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
	out.fact("Stripe", "simulated at %s, its books at %s/effects", api, admin)
	return nil
}

// startBroker starts NATS with JetStream, and somebody who listens.
func (s *system) startBroker(ctx context.Context, out *printer) (err error) {
	if s.broker, err = newBroker(filepath.Join(s.Dir, "broker"), s.Group, s.Log); err != nil {
		return err
	}
	s.Later(s.broker.Stop)
	if err := s.broker.start(ctx); err != nil {
		return err
	}
	if s.audience, err = listen(s.broker.url()); err != nil {
		return err
	}
	s.Later(func() error { s.audience.stop(); return nil })
	out.fact("Broker", "JetStream at %s, process %d", s.broker.url(), s.broker.PID())
	return nil
}

// startProcesses starts A and B. Nothing of our own environment reaches them: a
// real Stripe key that stands there must never meet a demo.
func (s *system) startProcesses(ctx context.Context, program string, out *printer) error {
	for _, name := range []string{"A", "B"} {
		p := &apiProcess{door: door{name: name}}
		p.Child = process.Child{Name: "API process " + name, Program: program, Args: []string{"serve"}, Group: s.Group, Log: s.Log, Env: []string{
			"PATH=" + os.Getenv("PATH"), "TMPDIR=" + s.Dir,
			"DATABASE_URL=" + s.dsn,
			"STRIPE_API_BASE=" + s.stripe.api,
			"STRIPE_SECRET_KEY=" + stripesim.DefaultKey,
			"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
			"STRIPE_TIMEOUT=" + stripeTimeout.String(),
			"IDEMPOTENCY_LEASE=" + lease.String(),
			"BROKER_URL=" + s.broker.url(),
		}}
		s.processes = append(s.processes, p)
		s.Later(p.Stop)
	}
	if err := s.startAll(ctx); err != nil {
		return err
	}
	for _, p := range s.processes {
		out.fact("API "+p.door.name, "%s, process %d", p.url, p.PID())
	}
	// B is never killed. With a load balancer in front it would not matter.
	return s.stripe.notify(ctx, s.processes[1].url+"/v1/webhooks/stripe", webhookSecret)
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

// process is the API process behind a door.
func (s *system) process(d *door) *apiProcess {
	i := slices.IndexFunc(s.processes, func(p *apiProcess) bool { return &p.door == d })
	return s.processes[i]
}

func noise(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
