package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/stripesim"
)

// Config of a run.
type Config struct {
	Duration  time.Duration // of the faults; what comes after takes its time
	Seed      uint64
	Processes int
	Clients   int
	Tenants   int
	Program   string   // the service, as Build made it; empty: build it
	Former    string   // an older version of it, as BuildAt made it; for RunVersions
	People    []string // who moves money at Stripe without the service, of AllPeople

	database cluster // of a run that loses its primaries; nil: one server

	Prometheus bool // a real one watches, with our rules; there has to be one on this machine
	Log        func(format string, args ...any)
}

// Run does a whole run. An error means that it could not be carried out; what it
// found is in the report.
func Run(ctx context.Context, c Config) (Report, error) {
	w, err := start(ctx, c)
	if err != nil {
		return Report{}, err
	}
	defer w.stop()
	log := history.New()
	people := newPeople(w, c.People)
	r := run{Config: c, world: w, log: log, people: people, traffic: newTraffic(w, log, people),
		nemesis: newNemesis(w, c.Seed, log.Began()), watch: newWatch(w, log.Began())}
	report, err := r.phases(ctx)
	if err != nil || !report.OK() {
		w.keepLog = true
		c.Log("what the processes logged is in %s", w.log.Name)
	}
	return report, err
}

// run is a run under way.
type run struct {
	Config
	world   *world
	log     *history.Log
	traffic *traffic
	people  *people
	nemesis *nemesis
	watch   *watch
	report  Report
}

func (r *run) phases(ctx context.Context) (Report, error) {
	r.report = Report{
		Seed: r.Seed, Began: r.log.Began(), Duration: r.Duration.String(), Processes: r.Processes, Clients: r.Clients,
		Tenants:    r.Tenants,
		PostgreSQL: r.world.version(),
		Outcomes:   map[string]int{},
	}
	if err := r.traffic.stockUp(ctx); err != nil {
		return r.report, err
	}
	base, err := r.world.baseline(ctx)
	if err != nil {
		return r.report, err
	}
	watching, blind := context.WithCancel(ctx)
	defer blind()
	var watches sync.WaitGroup
	watches.Go(func() { r.watch.run(watching) })

	if err := r.chaos(ctx); err != nil {
		return r.report, err
	}
	if err := r.island(ctx); err != nil {
		return r.report, err
	}
	r.people.payLate(ctx, rand.New(rand.NewPCG(r.Seed, 3)))
	r.report.People = r.people.counts()
	if err := r.people.end(ctx); err != nil {
		return r.report, fmt.Errorf("end what people left open: %w", err)
	}
	keys, events, late, err := r.world.quiet(ctx)
	if err == nil && len(r.People) > 0 {
		late, err = r.settlePeople(ctx, late)
	}
	if err != nil {
		return r.report, fmt.Errorf("wait for quiet: %w", err)
	}
	r.report.QuietKeys, r.report.QuietEvents = keys.Round(time.Millisecond).String(),
		events.Round(time.Millisecond).String()
	r.Log("quiet after %s, and every event consumed after %s", r.report.QuietKeys, r.report.QuietEvents)

	r.countSuppressed() // the checks send requests too, which are not traffic
	j := &checks{world: r.world, traffic: r.traffic, watch: r.watch, base: base}
	began, err := r.world.count(ctx, `SELECT count(*) FROM idempotency_keys`)
	if err != nil {
		return r.report, err
	}
	j.add("I5", "everything that was begun is finished without its client", byQuery, began, late)
	ended, stuck := r.traffic.progress()
	j.add("I5", "one broken node does not block the others", byAnswers, ended, stuck)
	if err := j.people(ctx, r.people); err != nil {
		return r.report, fmt.Errorf("check what people did: %w", err)
	}
	if err := j.all(ctx, rand.New(rand.NewPCG(r.Seed, 2))); err != nil {
		return r.report, fmt.Errorf("check: %w", err)
	}
	if err := r.observe(ctx); err != nil {
		return r.report, fmt.Errorf("read what Prometheus saw: %w", err)
	}
	blind()
	watches.Wait()
	return r.report, r.sum(ctx, j.checks)
}

// chaos is traffic and faults.
func (r *run) chaos(ctx context.Context) error {
	r.Log("seed=%d: %d processes, %d clients, %s of faults", r.Seed, r.Processes, r.Clients, r.Duration)
	faults, stop := context.WithTimeout(ctx, r.Duration)
	defer stop()
	var all sync.WaitGroup
	var broken error
	r.nemesis.arm(hopeless) // before the others, one of which would end the doubt
	customer := &client{traffic: r.traffic, name: "hopeless", rand: rand.New(rand.NewPCG(r.Seed, 4))}
	if err := customer.captureInVain(ctx); err != nil {
		return err
	}
	all.Go(func() {
		if broken = r.nemesis.run(faults); broken != nil {
			stop()
		}
	})
	all.Go(func() { r.traffic.run(faults, "", r.Clients, r.Seed) })
	all.Go(func() { r.people.run(faults, r.Seed) })
	half := time.AfterFunc(r.Duration/2, func() { r.world.sim.SetAuthorizationLifetime(0) })
	defer half.Stop()
	all.Wait()
	if broken != nil {
		return fmt.Errorf("inject faults: %w", broken)
	}
	r.report.Faults, r.report.Timeline = r.nemesis.count, r.nemesis.faults
	r.report.Batches.Rows, r.report.Batches.Most = r.nemesis.rowsLost, r.nemesis.rowsMost
	r.report.People = r.people.counts()
	r.Log("faults: %s; people: %s", counts(grouped(r.report.Faults)), counts(r.report.People))
	return r.world.ready(ctx, 30*time.Second)
}

// settlePeople waits until what people did is known, and for the work that came of it.
func (r *run) settlePeople(ctx context.Context, late []string) ([]string, error) {
	if err := r.people.settle(ctx); err != nil {
		return late, err
	}
	_, _, more, err := r.world.quiet(ctx)
	return append(late, more...), err
}

// island is a phase with one node that has lost everything it depends on. It is
// not dead: it answers, and may hold claims that it cannot give back. Faults that
// heal by chance hide a system that only recovers when they do.
func (r *run) island(ctx context.Context) error {
	lonely := r.world.nodes[1%len(r.world.nodes)]
	r.report.Island = Island{Node: lonely.name, From: r.log.Since().Seconds()}
	r.Log("%s loses PostgreSQL, the broker and Stripe, for good", lonely.name)
	r.traffic.without(lonely)
	var undo []func()
	for i, l := range lonely.links {
		if i%2 == 0 {
			l.cut()
			undo = append(undo, func() { _ = l.repair(ctx) }) // if not, quiet will not come
			continue
		}
		heal, err := l.swallow()
		undo = append(undo, heal)
		if err != nil {
			return err
		}
	}
	during, stop := context.WithTimeout(ctx, islandFor(r.Duration))
	defer stop()
	r.traffic.run(during, "island-", r.Clients, r.Seed+1)
	for _, f := range undo {
		f()
	}
	r.report.Island.Seconds = r.log.Since().Seconds() - r.report.Island.From
	r.report.Island.Ended, r.report.Island.Took = r.traffic.ended, spread(r.traffic.slow)
	return r.world.ready(ctx, 30*time.Second)
}

// islandFor is longer than a lease and what comes after it, if the run is not
// very short.
func islandFor(duration time.Duration) time.Duration {
	return min(max(duration/6, 2*time.Second), 10*time.Second)
}

// countSuppressed fills in what was stopped.
func (r *run) countSuppressed() {
	s := &r.report
	s.Suppressed = Suppressed{
		AtStripe: int(r.world.replays.Load()), Broker: r.world.events.suppressed(),
		Replays: int(r.watch.counted("payonce_idempotent_requests_total", `result="replay"`)),
		Inbox:   int(r.watch.counted("payonce_inbox_events_total", `result="duplicate"`)),
	}
	for _, times := range r.watch.acknowledged() {
		s.Webhooks++
		s.Suppressed.Inbox += times - 1
	}
	s.Fenced = int(r.watch.counted("payonce_fenced_writes_total") + r.watch.counted("payonce_outbox_fenced_total") +
		r.watch.counted("payonce_inbox_events_total", `result="fenced"`))
	s.InDoubt.ReadBack = int(r.watch.counted("payonce_commits_in_doubt_total"))
}

// sum fills in the figures and holds them against the minimums.
func (r *run) sum(ctx context.Context, checks []Check) (err error) {
	s := &r.report
	ops := r.log.Operations()
	keys := map[ack]bool{}
	for _, op := range ops {
		s.Outcomes[op.Outcome.String()]++
		keys[ack{op.Tenant, op.Key}] = true
	}
	s.Operations, s.Keys, s.Seconds = len(ops), len(keys), seconds(ops)
	for _, e := range r.world.sim.Effects() {
		switch e.Kind {
		case stripesim.EffectCharge:
			s.Charges++
			if strings.HasSuffix(e.Key, ":capture") {
				s.Captures++
			}
		case stripesim.EffectRefund:
			s.Refunds++
		}
	}
	for kind, n := range s.Faults {
		switch {
		case strings.HasPrefix(kind, commitBefore):
			s.InDoubt.Before += n
		case strings.HasPrefix(kind, commitAfter):
			s.InDoubt.After += n
		case strings.HasPrefix(kind, batchBefore):
			s.Batches.Before += n
		case strings.HasPrefix(kind, batchAfter):
			s.Batches.After += n
		}
	}
	s.Samples = r.watch.samples
	for into, query := range map[*int]string{
		&s.TakenOver: `SELECT coalesce(sum(lease_expirations), 0) FROM idempotency_keys`,
		&s.Checkouts: `SELECT count(*) FROM checkouts`,
		&s.Events:    `SELECT count(*) FROM outbox_events`,
	} {
		if *into, err = r.world.count(ctx, query); err != nil {
			return err
		}
	}
	if s.Clocks, err = r.world.tookPart(ctx); err != nil {
		return err
	}
	if s.Finals, err = r.world.timeToFinal(ctx); err != nil {
		return err
	}
	s.ToFinal = spread(s.afterKills())
	for i := range checks {
		for _, v := range checks[i].Violations {
			s.Violations = append(s.Violations, checks[i].ID+" "+v)
		}
	}
	for _, still := range s.Observed.stillFiring() {
		s.Violations = append(s.Violations, "alert "+still)
	}
	s.Checks = checks
	s.TooLittle = s.tooLittle(r.Duration.Minutes())
	return nil
}
