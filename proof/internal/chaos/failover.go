package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/stripesim"
)

// cluster is a PostgreSQL of several servers, one of which is the primary.
type cluster interface {
	// start returns the superuser's connection string of the primary.
	start(ctx context.Context, w *world) (primary string, err error)
	// addresses are where clients connect, each through a cable of its own: the servers, or the proxy before them.
	addresses() []string
	version() int // server_version_num
	// lose takes the primary away, and returns when another is.
	lose(ctx context.Context, r *failover, how string) (Loss, error)
	// heal brings back what was taken away.
	heal(ctx context.Context, r *failover) error
	stop()
}

// How a primary is lost.
const (
	Killed   = "killed"   // every process of it at once, as with its machine
	Frozen   = "frozen"   // it stands still, and comes back when another is primary, with clients still connected
	Cut      = "cut"      // from its standby and from most clients; those on its side of the cut can still reach it
	Canceled = "canceled" // killed after the waits of its commits for the standby were canceled
)

// FailoverConfig of a run that loses the primary again and again.
type FailoverConfig struct {
	Seed      uint64
	Processes int
	Clients   int
	Program   string        // the service; empty: build it
	Losses    []string      // of a pair: Killed, Frozen, Cut, Canceled. Of a real cluster: KilledServer, KilledMachine
	Between   time.Duration // of traffic before each loss
	Real      bool          // Patroni, etcd and HAProxy, three servers; otherwise a pair of servers that is failed over here
	Log       func(format string, args ...any)
}

// writesWithin is the promise: new writes are acknowledged so soon after the primary was lost.
const writesWithin = 10 * time.Second

// Loss is a primary that was lost, and what came of it. Times are in milliseconds since it was lost.
type Loss struct {
	How      string  `json:"how"`
	At       float64 `json:"at_seconds"` // of the run
	Noticed  float64 `json:"noticed_ms"`
	Promoted float64 `json:"promoted_ms"`
	Writes   float64 `json:"writes_ms"` // until the first new write was acknowledged; -1: never
	Back     float64 `json:"back_ms"`   // until the lost server was a standby again

	// Of a primary that did not know that it was none any more:
	Late    int `json:"late_requests"`     // that it got from clients which were still connected
	Acked   int `json:"late_acknowledged"` // of these, with a final response: must be 0
	Holding int `json:"commits_held"`      // sessions of it whose commit waited for the standby, at most at one time

	WaitsCanceled int64 `json:"waits_canceled"` // before it was lost
}

// FailoverReport is what a run found.
type FailoverReport struct {
	Seed          uint64         `json:"seed"`
	PostgreSQL    string         `json:"postgresql"`
	Cluster       string         `json:"cluster"`
	Losses        []Loss         `json:"losses"`
	Operations    int            `json:"operations"`
	Outcomes      map[string]int `json:"outcomes"`
	Acknowledged  int            `json:"acknowledged"`      // keys whose final response a client read
	Lost          []string       `json:"acknowledged_lost"` // of these, those that the last primary does not have
	Charges       int            `json:"charges"`
	Orders        int            `json:"orders_charged"`
	Twice         int            `json:"orders_charged_twice"`
	Unknown       int            `json:"intents_charged_that_no_row_knows"`
	CommitsUnsure int            `json:"commits_in_doubt"`
	Quiet         string         `json:"quiet_after"`
	Checks        []Check        `json:"checks"`
	Violations    []string       `json:"violations"`
}

// OK reports whether nothing was violated.
func (r FailoverReport) OK() bool { return len(r.Violations) == 0 }

// failover is a run under way.
type failover struct {
	FailoverConfig
	world   *world
	log     *history.Log
	traffic *traffic
	watch   *watch
	report  FailoverReport
	late    atomic.Int64 // numbers the keys of late requests
}

// RunFailover does a whole run. An error means that it could not be carried out.
func RunFailover(ctx context.Context, c FailoverConfig) (report FailoverReport, err error) {
	r, stop, err := startFailover(ctx, c, newCluster(c, true))
	if err != nil {
		return report, err
	}
	defer func() { stop(err != nil || !report.OK()) }()
	base, err := r.world.baseline(ctx)
	if err != nil {
		return r.report, err
	}
	watching, blind := context.WithCancel(ctx)
	var watches sync.WaitGroup
	watches.Go(func() { r.watch.run(watching) })
	defer watches.Wait()
	defer blind()
	if err := r.lose(ctx); err != nil {
		return r.report, err
	}
	keys, _, late, err := r.world.quiet(ctx)
	if err != nil {
		return r.report, fmt.Errorf("wait for quiet: %w", err)
	}
	r.report.Quiet = keys.Round(time.Millisecond).String()
	if err := r.count(ctx); err != nil {
		return r.report, err
	}
	r.Log("of %d acknowledged answers %d are lost; %d charges of %d orders", r.report.Acknowledged, len(r.report.Lost),
		r.report.Charges, r.report.Orders)
	if _, err := r.world.pool.Raw().Exec(ctx, `ANALYZE`); err != nil { // A new primary has not counted its rows yet.
		return r.report, err
	}
	j := &checks{world: r.world, traffic: r.traffic, watch: r.watch, base: base}
	j.add("I5", "everything that was begun is finished without its client", byQuery, r.report.Acknowledged, late)
	if err := j.all(ctx, rand.New(rand.NewPCG(c.Seed, 2))); err != nil {
		return r.report, fmt.Errorf("check: %w", err)
	}
	r.judge(j.checks)
	return r.report, nil
}

// startFailover starts the world of a run. stop ends it.
func startFailover(ctx context.Context, c FailoverConfig, database cluster) (*failover, func(keepLog bool), error) {
	w, err := start(ctx, Config{Seed: c.Seed, Processes: c.Processes, Tenants: 2, Program: c.Program, Log: c.Log,
		database: database})
	if err != nil {
		return nil, nil, err
	}
	log := history.New()
	r := &failover{FailoverConfig: c, world: w, log: log, traffic: newTraffic(w, log, newPeople(w, nil)),
		watch: newWatch(w, log.Began())}
	r.report = FailoverReport{Seed: c.Seed, PostgreSQL: w.version(), Outcomes: map[string]int{}}
	stop := func(keepLog bool) {
		if w.keepLog = keepLog; keepLog {
			c.Log("what the processes logged is in %s", w.log.Name)
		}
		w.stop()
	}
	if err := r.traffic.stockUp(ctx); err != nil {
		stop(true)
		return nil, nil, err
	}
	return r, stop, nil
}

// lose has clients at work, and takes one primary after the other away.
func (r *failover) lose(ctx context.Context) (err error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	clients.Go(func() { r.traffic.run(working, "", r.Clients, r.Seed) })
	defer clients.Wait()
	defer stop()
	for i, how := range r.Losses {
		rest(ctx, r.Between)
		loss, err := r.world.cluster.lose(ctx, r, how)
		if err != nil {
			return fmt.Errorf("lose primary %d, %s: %w", i+1, how, err)
		}
		if err := r.awaitWrites(ctx, &loss); err != nil {
			return err
		}
		if err := r.world.cluster.heal(ctx, r); err != nil {
			return fmt.Errorf("heal after loss %d, %s: %w", i+1, how, err)
		}
		loss.Back = r.since(loss)
		r.report.Losses = append(r.report.Losses, loss)
		r.Log("%2d %-14s promoted after %5.0f ms, writes after %5.0f ms; standby again after %5.0f ms%s",
			i+1, how, loss.Promoted, loss.Writes, loss.Back, loss.more())
	}
	rest(ctx, r.Between)
	return nil
}

func (l Loss) more() (s string) {
	if l.Late > 0 || l.Holding > 0 {
		s += fmt.Sprintf("; it got %d late requests, answered %d, and held %d commits", l.Late, l.Acked, l.Holding)
	}
	if l.WaitsCanceled > 0 {
		s += fmt.Sprintf("; %d waits canceled", l.WaitsCanceled)
	}
	return s
}

// since is the time since a primary was lost, in milliseconds.
func (r *failover) since(l Loss) float64 { return (r.log.Since().Seconds() - l.At) * 1000 }

// now is the time of the run, in seconds.
func (r *failover) now() float64 { return r.log.Since().Seconds() }

// awaitWrites waits for the first write that began after the loss, under a key of its own, and was acknowledged.
func (r *failover) awaitWrites(ctx context.Context, l *Loss) error {
	l.Writes = -1
	for deadline := time.Now().Add(3 * writesWithin); time.Now().Before(deadline) && ctx.Err() == nil; {
		if first := r.firstWrite(l.At); first > 0 {
			l.Writes = (first - l.At) * 1000
			return nil
		}
		rest(ctx, 50*time.Millisecond)
	}
	return ctx.Err()
}

// firstWrite is when the first key was finished whose first request was sent after so many seconds of the run; 0: none.
func (r *failover) firstWrite(after float64) float64 {
	begun := map[ack]int64{}
	first := int64(math.MaxInt64)
	ops := r.log.Operations()
	for _, op := range ops {
		at := ack{op.Tenant, op.Key}
		if call, ok := begun[at]; !ok || op.Call < call {
			begun[at] = op.Call
		}
	}
	for _, op := range ops {
		if op.Outcome == history.Final && op.Return < first && float64(begun[ack{op.Tenant, op.Key}])/1e9 > after {
			first = op.Return
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return float64(first) / 1e9
}

// askLate has clients ask a node that is still connected to the lost primary, for so long: for something new, and for
// what they were answered before.
func (r *failover) askLate(ctx context.Context, n *node, l *Loss, within time.Duration) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	before := r.someAcknowledged()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			c := &client{traffic: r.traffic, name: fmt.Sprint("late", i), rand: rand.New(rand.NewPCG(r.Seed, uint64(i)+900))}
			for k := 0; ctx.Err() == nil; k++ {
				q := request{path: "/v1/orders", key: fmt.Sprint("late-", r.late.Add(1)), door: n,
					body: `{"currency":"usd","items":[{"sku":"chaos","quantity":1,"unit_amount":100}]}`}
				if i%2 == 1 && len(before) > 0 {
					q = before[c.rand.IntN(len(before))]
					q.door = n
				}
				_, outcome := c.send(ctx, q)
				mu.Lock()
				l.Late++
				if outcome == history.Final {
					l.Acked++
				}
				mu.Unlock()
				rest(ctx, 50*time.Millisecond)
			}
		})
	}
	all.Wait()
}

// someAcknowledged are requests that were answered.
func (r *failover) someAcknowledged() (list []request) {
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	for at, a := range r.traffic.acks {
		if len(list) < 100 {
			list = append(list, request{tenant: at.tenant, path: a.path, key: at.key, body: a.body})
		}
	}
	return list
}

// knockAt has clients knock at these nodes only.
func (t *traffic) knockAt(doors []*node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doors = doors
}

// count holds the ledger of responses and Stripe's effects against the rows of the primary that is left.
func (r *failover) count(ctx context.Context) error {
	s := &r.report
	for _, op := range r.log.Operations() {
		s.Operations++
		s.Outcomes[op.Outcome.String()]++
	}
	lost, err := r.lostRequests(ctx)
	if err != nil {
		return err
	}
	for _, q := range lost {
		s.Lost = append(s.Lost, fmt.Sprintf("%s with key %s of tenant %d", q.path, q.key, q.tenant))
	}
	s.Acknowledged = len(r.traffic.acks)
	s.CommitsUnsure = int(r.watch.counted("payonce_commits_in_doubt_total"))
	s.Charges, s.Orders, s.Twice, s.Unknown, err = r.charges(ctx)
	return err
}

// charges counts what Stripe took: charges, the orders that they are for, those charged twice, and the PaymentIntents
// that were charged and that no row knows.
func (r *failover) charges(ctx context.Context) (charges, orders, twice, unknown int, err error) {
	known, err := r.world.strings(ctx, `SELECT intent_id FROM payments WHERE intent_id IS NOT NULL`)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	ours := map[string]bool{}
	for _, id := range known {
		ours[id] = true
	}
	byOrder := map[string]int{}
	for _, e := range r.world.sim.Effects() {
		if e.Kind != stripesim.EffectCharge {
			continue
		}
		charges++
		if byOrder[e.Metadata["order_id"]]++; byOrder[e.Metadata["order_id"]] == 2 {
			twice++
		}
		if !ours[e.IntentID] {
			unknown++
		}
	}
	return charges, len(byOrder), twice, unknown, nil
}

// judge holds the figures against the promises.
func (r *failover) judge(found []Check) {
	s := &r.report
	s.Checks = found
	for _, c := range found {
		for _, v := range c.Violations {
			s.Violations = append(s.Violations, c.ID+" "+v)
		}
	}
	violated := func(broken bool, format string, args ...any) {
		if broken {
			s.Violations = append(s.Violations, fmt.Sprintf(format, args...))
		}
	}
	for _, l := range s.Lost {
		violated(true, "an acknowledged answer is lost: %s", l)
	}
	violated(s.Twice > 0, "%d orders were charged twice", s.Twice)
	violated(s.Unknown > 0, "Stripe charged %d PaymentIntents that no row knows", s.Unknown)
	violated(s.Acknowledged < 20*len(s.Losses), "only %d answers were acknowledged, which proves little", s.Acknowledged)
	for i, l := range s.Losses {
		violated(l.Writes < 0 || l.Writes > float64(writesWithin.Milliseconds()),
			"loss %d, %s: the first new write was acknowledged after %.0f ms", i+1, l.How, l.Writes)
		violated(l.Acked > 0, "loss %d, %s: a primary that was none any more answered %d requests", i+1, l.How, l.Acked)
		if l.How == Frozen || l.How == Cut {
			violated(l.Late == 0 || l.Holding == 0,
				"loss %d, %s: the lost primary got %d requests and held %d commits, which proves nothing", i+1, l.How, l.Late,
				l.Holding)
		}
		if l.How == Canceled {
			violated(l.WaitsCanceled == 0, "loss %d: no wait was canceled, which proves nothing", i+1)
		}
	}
}

// newCluster is the cluster of a configuration.
func newCluster(c FailoverConfig, synchronous bool) cluster {
	if c.Real {
		return &patroni{}
	}
	return &pair{synchronous: synchronous}
}

var errStuck = errors.New("it took too long")

// eventually waits until holds does.
func eventually(ctx context.Context, within time.Duration, what string, holds func(context.Context) bool) error {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	for !holds(ctx) {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %s", errStuck, what)
		}
		rest(ctx, 20*time.Millisecond)
	}
	return nil
}
