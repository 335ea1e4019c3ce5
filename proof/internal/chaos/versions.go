package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/stripesim"
)

// VersionsReport is what a run with two versions of the service found.
type VersionsReport struct {
	Seed       uint64
	Phases     []Phase
	Handed     []Handed
	Points     []Point // that keys were seen at
	Charges    int     // at Stripe, by all
	Checks     []Check
	Violations []string
	TooLittle  []string
}

// Phase is a part of such a run: what ran, and how many requests failed, which none may.
type Phase struct {
	Name     string
	Requests int
	Failed   []string
	PutOff   []string // got a 503 that says when to come back
	MayFail  bool     // processes were killed
}

// putOffShare: one in so many requests may be put off. A busy machine keeps a request from its database for longer than the
// request's time, and the service then begins nothing and says so. A version that stops requests, a migration that holds a
// table or a process that leaves too early puts off every client for as long as it lasts, which is many more.
const putOffShare = 100

// violations are the requests that failed; with them those that were put off, if they are too many.
func (p Phase) violations() (list []string) {
	for _, f := range p.Failed {
		list = append(list, p.Name+": failed: "+f)
	}
	if most := max(1, p.Requests/putOffShare); len(p.PutOff) > most {
		list = append(list, fmt.Sprintf("%s: %d of %d requests were put off, more than %d", p.Name, len(p.PutOff), p.Requests, most))
		for _, f := range p.PutOff {
			list = append(list, p.Name+": put off: "+f)
		}
	}
	return list
}

// Handed is how many keys of an operation one version left at a recovery point, and the other went on with.
type Handed struct {
	From, To, Operation, Point string
	Keys                       int
}

// Point is a recovery point of an operation.
type Point struct{ Operation, Name string }

// OK reports whether the run proves something and found nothing.
func (r VersionsReport) OK() bool { return len(r.Violations) == 0 && len(r.TooLittle) == 0 }

// What the two versions are called.
const (
	formerVersion = "former"
	newVersion    = "new"
)

// RunVersions has two versions of the service run side by side on one database, under traffic. Processes are replaced one
// after the other, as an orchestrator does, forward, back and forward again, and the new version migrates while the former
// serves: not one request may fail, and one in a hundred may be put off by a 503 that says when to come back. Then processes of both are killed, and each must finish what the other began. At the
// end every response is asked for again, from both: the same bytes, whichever version gave it. The other checks are those of Run.
//
// An error means that it could not be carried out; what it found is in the report.
func RunVersions(ctx context.Context, c Config) (VersionsReport, error) {
	w, err := start(ctx, c)
	if err != nil {
		return VersionsReport{}, err
	}
	defer w.stop()
	w.sim.SetAuthorizationLifetime(0)
	log := history.New()
	people := newPeople(w, nil)
	r := versions{run: run{Config: c, world: w, log: log, people: people, traffic: newTraffic(w, log, people),
		nemesis: newNemesis(w, c.Seed, log.Began()), watch: newWatch(w, log.Began())},
		report: VersionsReport{Seed: c.Seed}}
	err = r.play(ctx)
	if err != nil || !r.report.OK() {
		w.keepLog = true
		c.Log("what the processes logged is in %s", w.log.Name)
	}
	return r.report, err
}

type versions struct {
	run
	report VersionsReport
}

func (r *versions) play(ctx context.Context) error {
	if err := r.traffic.stockUp(ctx); err != nil {
		return err
	}
	base, err := r.world.baseline(ctx)
	if err != nil {
		return err
	}
	watching, blind := context.WithCancel(ctx)
	defer blind()
	var watches sync.WaitGroup
	watches.Go(func() { r.watch.run(watching) })
	watches.Go(func() { r.traffic.balance(watching) })

	if err := r.roll(ctx); err != nil {
		return err
	}
	if _, _, late, err := r.world.quiet(ctx); err != nil {
		return fmt.Errorf("wait for quiet: %w", err)
	} else if len(late) > 0 {
		r.report.Violations = append(r.report.Violations, late...)
	}
	j := &checks{world: r.world, traffic: r.traffic, watch: r.watch, base: base}
	if err := r.formersAudit(ctx, j); err != nil {
		return err
	}
	if err := j.all(ctx, rand.New(rand.NewPCG(r.Seed, 2))); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	blind()
	watches.Wait()
	return r.sum(ctx, j.checks)
}

// roll is traffic, under which processes are replaced, and at the end killed.
func (r *versions) roll(ctx context.Context) error {
	clients, leave := context.WithCancel(ctx)
	defer leave()
	var traffic sync.WaitGroup
	traffic.Go(func() { r.traffic.run(clients, "", r.Clients, r.Seed) })
	defer traffic.Wait()
	defer leave()

	r.traffic.count(true)
	half, all := r.world.nodes[:len(r.world.nodes)/2], r.world.nodes
	for _, phase := range []struct {
		name    string
		begin   func() error
		mayFail bool
	}{
		{"the former version alone", nil, false},
		{"migrated by the new version", func() error {
			r.world.program = r.Program
			return r.world.migrate(ctx)
		}, false},
		{"half of each", func() error { return r.replace(ctx, half, r.Program) }, false},
		{"the new version alone", func() error { return r.replace(ctx, all, r.Program) }, false},
		{"back to the former version", func() error { return r.replace(ctx, all, r.Former) }, false},
		{"half of each again", func() error { return r.replace(ctx, half, r.Program) }, false},
		{"half of each, killed", func() error { return r.kill(ctx) }, true},
	} {
		r.Log("%s", phase.name)
		if phase.begin != nil {
			if err := phase.begin(); err != nil {
				return fmt.Errorf("%s: %w", phase.name, err)
			}
		}
		rest(ctx, r.Duration/7)
		// A slow machine gets the time that it needs for the minimums of sum.
		for until := time.Now().Add(time.Minute); r.traffic.requestsSoFar() < requestsAtLeast && time.Now().Before(until) && ctx.Err() == nil; {
			rest(ctx, 100*time.Millisecond)
		}
		p := Phase{Name: phase.name, MayFail: phase.mayFail}
		p.Requests, p.Failed, p.PutOff = r.traffic.counted()
		r.report.Phases = append(r.report.Phases, p)
	}
	return nil
}

// replace has the processes of some nodes be of a version, one after the other: each is asked to go, and the next is not
// before its successor is ready.
func (r *versions) replace(ctx context.Context, nodes []*node, program string) error {
	for _, n := range nodes {
		n.mu.Lock()
		n.program = program
		n.mu.Unlock()
		lives, _ := n.history()
		n.end("replaced", syscall.SIGTERM)
		deadline := time.Now().Add(time.Minute)
		for {
			now, _ := n.history()
			if len(now) > len(lives) && n.ready(ctx) {
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				return fmt.Errorf("%s is not replaced; the end of what it logged:\n%s", n.name, r.world.log.Tail(n.name))
			}
			rest(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

// kill kills processes of both versions, while Stripe loses responses and commits are cut, until each has left enough
// keys to the other.
func (r *versions) kill(ctx context.Context) error {
	r.traffic.count(false)
	for range 10 {
		if err := r.killFor(ctx, r.Duration/3); err != nil {
			return err
		}
		handed, err := r.world.handed(ctx)
		if err != nil {
			return err
		}
		if keys := keysOf(handed); keys[formerVersion] >= handedAtLeast && keys[newVersion] >= handedAtLeast {
			return nil
		}
	}
	return nil // sum says so
}

func (r *versions) killFor(ctx context.Context, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	n := r.nemesis
	if err := n.runHands(ctx, []hand{
		{500 * time.Millisecond, time.Second, n.kill},
		{50 * time.Millisecond, 300 * time.Millisecond, n.hitCommit},
	}); err != nil {
		return err
	}
	return r.world.ready(context.WithoutCancel(ctx), 30*time.Second)
}

// formersAudit has the former version's own audit ask, too.
func (r *versions) formersAudit(ctx context.Context, j *checks) error {
	program := r.world.program
	defer func() { r.world.program = program }()
	r.world.program = r.Former
	return j.queries(ctx)
}

// balance is a load balancer: it asks every process whether it is ready, and sends requests to those that are.
func (t *traffic) balance(ctx context.Context) {
	for ctx.Err() == nil {
		var ready []*node
		for _, n := range t.world.nodes {
			if n.ready(ctx) {
				ready = append(ready, n)
			}
		}
		if len(ready) > 0 {
			t.mu.Lock()
			t.doors = ready
			t.mu.Unlock()
		}
		rest(ctx, 100*time.Millisecond)
	}
}

// count begins to count requests, and failed ones if none may fail.
func (t *traffic) count(strict bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strict, t.calm = strict, strict
}

// requestsSoFar is how many requests there were since they were last counted.
func (t *traffic) requestsSoFar() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requested
}

// counted is how many requests there were since it was last asked, which failed, and which were put off.
func (t *traffic) counted() (requests int, failed, putOff []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	requests, failed, putOff = t.requested, t.failed, t.putOff
	t.requested, t.failed, t.putOff = 0, nil, nil
	return requests, failed, putOff
}

// oneOfEachVersion is some node for each program that runs.
func (w *world) oneOfEachVersion(r *rand.Rand) (some []*node) {
	seen := map[string]bool{}
	for _, i := range r.Perm(len(w.nodes)) {
		if n := w.nodes[i]; !seen[n.program] {
			seen[n.program] = true
			some = append(some, n)
		}
	}
	return some
}

// sum fills in what was handed over, and holds the run against its minimums.
func (r *versions) sum(ctx context.Context, checked []Check) error {
	s := &r.report
	handed, err := r.world.handed(ctx)
	if err != nil {
		return err
	}
	s.Handed = handed
	if s.Points, err = r.world.points(ctx); err != nil {
		return err
	}
	keys := keysOf(handed)
	for _, from := range []string{formerVersion, newVersion} {
		if keys[from] < handedAtLeast {
			s.TooLittle = append(s.TooLittle, fmt.Sprintf("the other version went on with %d keys of the %s one, not %d",
				keys[from], from, handedAtLeast))
		}
	}
	for _, p := range s.Phases {
		if p.Requests < requestsAtLeast {
			s.TooLittle = append(s.TooLittle, fmt.Sprintf("%s: %d requests, not %d", p.Name, p.Requests, requestsAtLeast))
		}
		s.Violations = append(s.Violations, p.violations()...)
	}
	s.Checks = checked
	for _, c := range checked {
		for _, v := range c.Violations {
			s.Violations = append(s.Violations, c.ID+" "+v)
		}
	}
	_, stuck := r.traffic.progress()
	s.Violations = append(s.Violations, stuck...)
	for _, e := range r.world.sim.Effects() {
		if e.Kind == stripesim.EffectCharge {
			s.Charges++
		}
	}
	return nil
}

// A run that did less proves nothing.
const (
	handedAtLeast   = 10
	requestsAtLeast = 50
)

// keysOf is how many keys each version left.
func keysOf(handed []Handed) map[string]int {
	keys := map[string]int{}
	for _, h := range handed {
		keys[h.From] += h.Keys
	}
	return keys
}

// handed counts the keys that a process of one version left, and one of the other went on with.
func (w *world) handed(ctx context.Context) (list []Handed, err error) {
	version := map[string]string{} // by session
	for _, n := range w.nodes {
		lives, _ := n.history()
		for _, l := range lives {
			version[l.session] = newVersion
			if l.program == w.former {
				version[l.session] = formerVersion
			}
		}
	}
	rows, err := w.pool.Raw().Query(ctx,
		`SELECT a.holder, b.holder, k.operation, coalesce((SELECT w.point FROM witness_writes w
			WHERE (w.tenant_id, w.key) = (a.tenant_id, a.key) AND w.token <= a.token ORDER BY w.at DESC LIMIT 1), 'begun')
		FROM witness_claims a JOIN witness_claims b ON (a.tenant_id, a.key, a.token + 1) = (b.tenant_id, b.key, b.token)
		JOIN idempotency_keys k ON (k.tenant_id, k.key) = (a.tenant_id, a.key)`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	count := map[Handed]int{}
	for rows.Next() {
		var left, took string
		var h Handed
		if err := rows.Scan(&left, &took, &h.Operation, &h.Point); err != nil {
			return nil, err
		}
		if h.From, h.To = version[left], version[took]; h.From != h.To {
			count[h]++
		}
	}
	for h, n := range count {
		h.Keys = n
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Handed) int {
		return strings.Compare(a.From+a.Operation+a.Point, b.From+b.Operation+b.Point)
	})
	return list, rows.Err()
}

// points are those that a key was ever at, by its operation.
func (w *world) points(ctx context.Context) (list []Point, err error) {
	rows, err := w.pool.Raw().Query(ctx, `SELECT DISTINCT k.operation, w.point FROM witness_writes w
		JOIN idempotency_keys k USING (tenant_id, key) ORDER BY 1, 2`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p Point
		if err := rows.Scan(&p.Operation, &p.Name); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// Print writes the report as text.
func (r VersionsReport) Print(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	for _, phase := range r.Phases {
		failed := fmt.Sprintf("%d failed, %d put off", len(phase.Failed), len(phase.PutOff))
		if phase.MayFail {
			failed = "some may have failed"
		}
		p("%-28s %5d requests, %s", phase.Name, phase.Requests, failed)
	}
	for _, h := range r.Handed {
		p("%3d keys of %s left by the %s version at %s, and finished by the %s one", h.Keys, h.Operation, h.From, h.Point, h.To)
	}
	asked := 0
	for _, c := range r.Checks {
		asked++
		if strings.HasPrefix(c.Name, "asked again") {
			p("%d responses asked for again, from each version: %d with other bytes", c.Looked, len(c.Violations))
		}
	}
	p("charges=%d checks=%d", r.Charges, asked)
	for _, v := range r.Violations[:min(len(r.Violations), shownMax)] {
		p("VIOLATION %s", v)
	}
	for _, m := range r.TooLittle {
		p("TOO LITTLE %s", m)
	}
	p("violations=%d", len(r.Violations))
}
