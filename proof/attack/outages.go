package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/process"
)

// outage is what happens to a database, and what makes it whole again.
type outage struct {
	begin, end func(context.Context) error
	worsens    func(context.Context) error // once requests are refused, if it does
	also       func(context.Context) error // what else is tried, once the service is not ready
}

const (
	payersAtOnce = 8
	backWithin   = time.Minute
	outageHolds  = "503 with Retry-After while it lasts, never another error, and not ready; the service is back by itself; " +
		"with the same keys each order is paid once, and charged once at Stripe; api audit is clean"
)

// paysThrough pays orders before, during and after an outage, each with its key until it is paid, and compares what was
// taken at Stripe with what was paid.
func (s *site) paysThrough(ctx context.Context, o outage) (seen string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	before, each := 20, s.form(15, 150)
	orders := make([]string, before+each*payersAtOnce)
	for i := range orders {
		object, err := s.victim.must(ctx, http.StatusCreated, "POST", "/v1/orders", fmt.Sprint("order-", i), smallOrder)
		if err != nil {
			return "", err
		}
		orders[i], _ = object["id"].(string)
	}
	p := &payers{site: s}
	for _, order := range orders[:before] {
		if err := p.pay(ctx, order); err != nil {
			return "", err
		}
	}
	var all sync.WaitGroup
	failed := make(chan error, payersAtOnce)
	for w := range payersAtOnce {
		all.Go(func() {
			for i := before + w; i < len(orders); i += payersAtOnce {
				if err := p.pay(ctx, orders[i]); err != nil {
					failed <- err
					cancel() // there is nothing to wait for
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	err = s.strikes(ctx, o, p)
	if err != nil {
		cancel()
	}
	all.Wait()
	close(failed)
	for e := range failed {
		if err == nil || errors.Is(e, errDidNotHold) {
			err = e
		}
	}
	if err != nil {
		return "", err
	}
	if err := s.chargedOnce(ctx, orders); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d times 503; ready %.1fs after the end; %d orders paid, each charged once", p.refusals(),
		p.back.Seconds(), len(orders)), nil
}

// strikes has the outage begin, waits until it is felt, and ends it.
func (s *site) strikes(ctx context.Context, o outage, p *payers) error {
	if err := o.begin(ctx); err != nil {
		return errors.Join(err, o.end(context.WithoutCancel(ctx)))
	}
	var felt error
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return p.awaitRefusals(ctx, 20) },
		o.worsens,
		func(ctx context.Context) error { return s.becomesReady(ctx, http.StatusServiceUnavailable) },
		o.also,
	} {
		if felt == nil && step != nil {
			felt = step(ctx)
		}
	}
	from := time.Now()
	if err := errors.Join(felt, o.end(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	err := s.becomesReady(ctx, http.StatusOK)
	p.back = time.Since(from)
	return err
}

// becomesReady waits until /readyz has a status.
func (s *site) becomesReady(ctx context.Context, status int) error {
	var last answer
	for deadline := time.Now().Add(backWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if last, err = (client{base: s.api.URL}).send(ctx, "GET", "/readyz", "", nil); err != nil {
			return didNotHold("/readyz: %s", err)
		}
		if last.status == status {
			return nil
		}
	}
	return didNotHold("/readyz is %d, and not %d within %s", last.status, status, backWithin)
}

// payers pay orders, each as a client does that sends the same request until it is answered.
type payers struct {
	*site
	back time.Duration

	mu      sync.Mutex
	refused int
}

func (p *payers) refusals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// awaitRefusals waits until n requests got 503. The payers may all have been answered with 202 just before, and then
// meet their own keys in flight for as long as nothing can be stored; so new orders are sent as well.
func (p *payers) awaitRefusals(ctx context.Context, n int) error {
	for deadline := time.Now().Add(backWithin); p.refusals() < n; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("the outage was not felt: %d requests got 503", p.refusals())
		}
		a, err := p.victim.send(ctx, "POST", "/v1/orders", smallOrder, map[string][]string{"Idempotency-Key": {rand.Text()}})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return didNotHold("an order: %s", err)
		case !p.refusedBy(a) && a.status != http.StatusCreated:
			return didNotHold("an order: %d %.300s", a.status, a.body)
		}
	}
	return nil
}

// refusedBy counts an answer that says that nothing was done, and when to come again.
func (p *payers) refusedBy(a answer) bool {
	if a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || a.header.Get("Retry-After") == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused++
	return true
}

func (p *payers) pay(ctx context.Context, order string) error {
	body := fmt.Sprintf(`{"order_id":%q,"payment_method":"pm_card_visa"}`, order)
	for {
		a, err := p.victim.send(ctx, "POST", "/v1/payments", body, map[string][]string{"Idempotency-Key": {"pay-" + order}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return didNotHold("a payment: %s", err)
		}
		switch {
		case a.status == http.StatusCreated:
			return nil
		case p.refusedBy(a):
		case a.status == http.StatusAccepted, a.status == http.StatusConflict && a.code() == "idempotency-key-in-flight":
		default:
			return didNotHold("a payment: %d %.300s", a.status, a.body)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// chargedOnce compares the charges at Stripe with what was paid, and runs the audit.
func (s *site) chargedOnce(ctx context.Context, orders []string) error {
	for _, order := range orders {
		if n := s.sim.ChargeCount(order); n != 1 {
			return didNotHold("the order %s was charged %d times", order, n)
		}
	}
	paid := fmt.Sprintf(`SELECT (count(*) = %d)::int FROM orders o JOIN payments p ON (p.tenant_id, p.order_id) = (o.tenant_id, o.id)
		WHERE o.status = 'paid' AND p.status = 'succeeded'`, len(orders))
	if err := s.settledWithin(ctx, 10*time.Second, paid); err != nil {
		return err
	}
	audit := exec.CommandContext(ctx, s.api.Program, "audit")
	audit.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.api.Env...)
	if out, err := audit.CombinedOutput(); err != nil {
		return didNotHold("api audit: %s: %s", err, out)
	}
	return nil
}

// onServerOfItsOwn runs an attack on a database server that is there to be harmed.
func (s *site) onServerOfItsOwn(ctx context.Context, o devpg.Options, attack func(*site, *devpg.Server) (string, error)) (seen string, err error) {
	pg, err := devpg.Start(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	return s.another(ctx, pg.URL, []string{"RATE_LIMIT_RPS=0", "STRIPE_RPS=0", "STRIPE_TIMEOUT=3s",
		"IDEMPOTENCY_LEASE=10s"}, func(s *site) (string, error) { return attack(s, pg) }) // A lease is what a lost request waits for.
}

// readOnlyServer: managed servers turn read-only when their disk is nearly full, and so does a primary that is demoted.
var readOnlyServer = attack{
	name: "read-only server", who: "a machine that runs out",
	tries: "the database accepts no writes for some seconds, in the middle of payments",
	holds: outageHolds,
	run: func(ctx context.Context, s *site) (string, error) {
		return s.onServerOfItsOwn(ctx, devpg.Options{}, func(s *site, _ *devpg.Server) (string, error) {
			operator, err := postgres.Open(ctx, s.database, postgres.Options{MaxConn: 1, ReadOnly: true})
			if err != nil {
				return "", err
			}
			defer operator.Close()
			set := func(value string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := operator.Raw().Exec(ctx, "ALTER SYSTEM SET default_transaction_read_only = "+value)
					if err == nil {
						_, err = operator.Raw().Exec(ctx, "SELECT pg_reload_conf()")
					}
					return err
				}
			}
			return s.paysThrough(ctx, outage{begin: set("on"), end: set("off")})
		})
	},
}

// connectionSlots: others have all of the server's connections.
var connectionSlots = attack{
	name: "connection slots", who: "a machine that runs out",
	tries: "other clients take every connection slot of the database, and the service's own are closed, in the middle of payments; a process starts meanwhile",
	holds: outageHolds + "; the process that starts waits and serves then",
	run: func(ctx context.Context, s *site) (string, error) {
		return s.onServerOfItsOwn(ctx, devpg.Options{MaxConnections: 40}, func(s *site, _ *devpg.Server) (string, error) {
			others := &slotHolders{}
			defer others.release()
			late := &process.API{Child: s.api.Child}
			late.Name = "API process that starts late"
			late.Env = append([]string{"LOG_LEVEL=debug"}, late.Env...)
			started := make(chan error, 1)
			seen, err := s.paysThrough(ctx, outage{
				begin: func(ctx context.Context) error { return others.takeAll(ctx, s) },
				also: func(ctx context.Context) error {
					go func() { started <- late.Start(ctx) }()
					s.Later(late.Stop)
					select {
					case err := <-started:
						return errors.Join(err, didNotHold("a process serves without a database"))
					case <-time.After(3 * time.Second):
						return nil
					}
				},
				end: func(context.Context) error { others.release(); return nil },
			})
			if err != nil {
				return "", err
			}
			if err := <-started; err != nil {
				return "", didNotHold("a process that started without a slot: %s", err)
			}
			return seen, nil
		})
	},
}

// slotHolders are sessions of others.
type slotHolders struct {
	pool *postgres.Pool
	held []interface{ Release() }
}

// takeAll takes every slot, and those of the service once its sessions are ended.
func (h *slotHolders) takeAll(ctx context.Context, s *site) (err error) {
	const name = "others"
	if h.pool, err = postgres.Open(ctx, s.service, postgres.Options{Name: name, MaxConn: 100}); err != nil {
		return err
	}
	for range 100 {
		for {
			conn, err := h.pool.Raw().Acquire(ctx)
			if postgres.NotReady(err) {
				break // there is no slot
			}
			if err != nil {
				return err
			}
			h.held = append(h.held, conn)
		}
		var ended int
		if err := s.pool.Raw().QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE usename = 'payonce_service' AND application_name <> $1`, name).Scan(&ended); err != nil {
			return err
		}
		if ended == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the service's connections could not be taken")
}

func (h *slotHolders) release() {
	for _, conn := range h.held {
		conn.Release()
	}
	if h.pool != nil {
		h.pool.Close()
	}
	*h = slotHolders{}
}

// fullDisk: what cannot be stored is not begun, and a server that ended is started again once its disk is freed.
var fullDisk = attack{
	name: "full disk", who: "a machine that runs out",
	tries: "the database's disk is filled in the middle of payments, until the server can write no WAL and ends, and is emptied again",
	holds: outageHolds,
	run: func(ctx context.Context, s *site) (seen string, err error) {
		disk, err := newSmallDisk(ctx, diskSize)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, disk.remove()) }()
		o := devpg.Options{Dir: disk.dir + "/pg", Durable: true, Settings: map[string]string{
			"min_wal_size": "32MB", "max_wal_size": "48MB"}}
		return s.onServerOfItsOwn(ctx, o, func(s *site, pg *devpg.Server) (string, error) {
			panicked := false
			seen, err := s.paysThrough(ctx, outage{
				begin: func(context.Context) error { return disk.fill() },
				worsens: func(ctx context.Context) error {
					// The next segment of the WAL has no place.
					for deadline := time.Now().Add(backWithin); !panicked && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
						_, err := s.pool.Raw().Exec(ctx, "SELECT pg_switch_wal()")
						panicked = err != nil
					}
					return nil
				},
				end: func(ctx context.Context) error {
					if err := disk.empty(); err != nil {
						return err
					}
					return startAgain(ctx, s.pool, pg)
				},
			})
			if err == nil && !panicked {
				err = errors.New("the server could still write its WAL")
			}
			return seen, err
		})
	},
}

// startAgain starts a server that has ended, as its supervisor would. One that recovers by itself is left alone.
func startAgain(ctx context.Context, pool *postgres.Pool, pg *devpg.Server) error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err := pool.Raw().Exec(ctx, "SELECT 1"); err == nil {
			return nil
		}
	}
	return pg.Restart("immediate")
}
