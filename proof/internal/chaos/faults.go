package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// killed is how a life ends that SIGKILL ended.
const killed = "kill9"

// nemesis breaks things and writes down what it did. It has several hands, each
// with its own part of the schedule, so that faults meet.
type nemesis struct {
	world *world
	began time.Time
	seed  uint64

	mu     sync.Mutex
	count  map[string]int
	faults []Fault

	rowsLost, rowsMost int // of batches whose commit was lost: of all, and of the largest

	stripeFaults  map[string]string // by the simulator's id
	webhookFaults map[string]string
}

// Fault is one thing that was broken: what, on which lane of the timeline, and
// from when to when, in seconds of the run.
type Fault struct {
	Kind  string  `json:"kind"`
	Lane  string  `json:"lane"`
	From  float64 `json:"from"`
	Until float64 `json:"until"`
}

func newNemesis(w *world, seed uint64, began time.Time) *nemesis {
	return &nemesis{world: w, seed: seed, began: began, count: map[string]int{}, stripeFaults: map[string]string{},
		webhookFaults: map[string]string{}}
}

// hand is one part of the schedule: what it does next, and how long it rests before.
type hand struct {
	rests, upTo time.Duration
	does        func(context.Context, *rand.Rand) error
}

// run injects faults until ctx ends, and then undoes them all.
func (n *nemesis) run(ctx context.Context) error {
	return n.runHands(ctx, []hand{
		{900 * time.Millisecond, 1500 * time.Millisecond, n.kill},
		{200 * time.Millisecond, 900 * time.Millisecond, n.freeze},
		{5 * time.Second, 9 * time.Second, n.ask},
		{7 * time.Second, 9 * time.Second, n.hitPostgres},
		{4 * time.Second, 7 * time.Second, n.hitBroker},
		{300 * time.Millisecond, 900 * time.Millisecond, n.hitLink()},
		{20 * time.Millisecond, 200 * time.Millisecond, n.hitCommit},
		{20 * time.Millisecond, 200 * time.Millisecond, n.hitCommit},
		{200 * time.Millisecond, 600 * time.Millisecond, n.hitBatch},
		{300 * time.Millisecond, 900 * time.Millisecond, n.hitWebhook},
	})
}

func (n *nemesis) runHands(ctx context.Context, hands []hand) error {
	n.atStripe()
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i, h := range hands {
		all.Go(func() {
			err := h.run(ctx, rand.New(rand.NewPCG(n.seed, uint64(i)+100)))
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	all.Wait()
	n.heal()
	return failed
}

func (h hand) run(ctx context.Context, r *rand.Rand) error {
	for {
		select {
		case <-time.After(between(r, h.rests, h.upTo)):
			if err := h.does(ctx, r); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// rest waits so long, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// note writes down a fault that began then and is over now.
func (n *nemesis) note(kind, lane string, began time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count[kind]++
	n.faults = append(n.faults, Fault{kind, lane, began.Sub(n.began).Seconds(), time.Since(n.began).Seconds()})
}

// alive is one of the processes that run, or none.
func (n *nemesis) alive(r *rand.Rand) *node {
	for _, i := range r.Perm(len(n.world.nodes)) {
		if target := n.world.nodes[i]; target.signal(0) {
			return target
		}
	}
	return nil
}

// kill is a process that is gone from one instruction to the next.
func (n *nemesis) kill(_ context.Context, r *rand.Rand) error {
	target, began := n.alive(r), time.Now()
	if target != nil && target.end(killed, syscall.SIGKILL) {
		n.note(killed, target.name, began)
	}
	return nil
}

// freeze stops a process, past its lease most of the time: a zombie that wakes up
// and wants to write.
func (n *nemesis) freeze(ctx context.Context, r *rand.Rand) error {
	target, began := n.alive(r), time.Now()
	if target != nil && target.signal(syscall.SIGSTOP) {
		rest(ctx, between(r, 200*time.Millisecond, lease+time.Second))
		target.signal(syscall.SIGCONT)
		n.note("pause", target.name, began)
	}
	return nil
}

// ask is SIGTERM. The process may drain for long while something that it needs is
// away; then it is killed, as an orchestrator would.
func (n *nemesis) ask(_ context.Context, r *rand.Rand) error {
	target, began := n.alive(r), time.Now()
	if target != nil && target.end("sigterm", syscall.SIGTERM) {
		n.note("sigterm", target.name, began)
		lives, _ := target.history()
		time.AfterFunc(10*time.Second, func() {
			if now, _ := target.history(); len(now) == len(lives) {
				target.end(killed, syscall.SIGKILL)
			}
		})
	}
	return nil
}

// hitPostgres is a crash of the database with recovery at the start, in which
// every request is refused for a second.
func (n *nemesis) hitPostgres(context.Context, *rand.Rand) error {
	began := time.Now()
	if err := n.world.pg.Restart("immediate"); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	n.note("pg_immediate", "PostgreSQL", began)
	return nil
}

// hitBroker kills the broker, and starts it again on the same store.
func (n *nemesis) hitBroker(ctx context.Context, r *rand.Rand) error {
	began := time.Now()
	if err := n.world.events.child.Kill(); err != nil {
		return err
	}
	rest(ctx, between(r, 0, time.Second))
	if err := n.world.events.start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the broker again: %w", err)
	}
	n.note("broker_kill9", "broker", began)
	return nil
}

// heal removes every fault, and gets every process running again.
func (n *nemesis) heal() {
	n.countStripe()
	n.world.sim.ClearFaults()
	n.world.sim.ClearWebhookFaults()
	for _, target := range n.world.nodes {
		target.signal(syscall.SIGCONT)
	}
}
