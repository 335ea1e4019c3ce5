package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"example.com/payonce/internal/stripesim"
)

// restartEvery is how often PostgreSQL is restarted under load. Each time takes
// about a second in which every request is refused, and a run of refusals shows
// nothing.
const restartEvery = 8 * time.Second

// nemesis breaks things, one after another, and counts what it did.
type nemesis struct {
	world *world
	rand  *rand.Rand

	mu    sync.Mutex
	count map[string]int
	kills []time.Time

	names      map[string]string // of the provider's faults, by id
	atProvider map[string]int
}

func newNemesis(w *world, seed uint64) *nemesis {
	return &nemesis{world: w, rand: rand.New(rand.NewPCG(seed, 1)), count: map[string]int{}, names: map[string]string{}, atProvider: map[string]int{}}
}

// atStripe arms the provider's faults for the whole run: what share of the
// calls goes wrong, and how.
func (n *nemesis) atStripe(seed uint64) {
	for i, f := range []stripesim.Fault{
		{Op: "intent.confirm", Kind: stripesim.Drop, Probability: 0.05},
		{Op: "intent.confirm", Kind: stripesim.Reset, Probability: 0.03},
		{Op: "intent.confirm", Kind: stripesim.Delay, Probability: 0.03, Delay: 2 * stripeTimeout},
		{Op: "intent.confirm", Kind: stripesim.DelayBefore, Probability: 0.02, Delay: 2 * stripeTimeout},
		{Op: "intent.confirm", Kind: stripesim.Cut, Probability: 0.02, Bytes: 40},
		{Op: "intent.confirm", Kind: stripesim.StoredError, Probability: 0.01},
		{Op: "intent.confirm", Kind: stripesim.EffectStoredError, Probability: 0.01},
		{Op: "intent.confirm", Kind: stripesim.EffectError, Probability: 0.02},
		{Op: "intent.confirm", Kind: stripesim.LockTimeout, Probability: 0.02},
		{Op: "intent.create", Kind: stripesim.Drop, Probability: 0.02},
		{Op: "intent.create", Kind: stripesim.RateLimited, Probability: 0.02},
		{Op: "intent.create", Kind: stripesim.StoredError, Probability: 0.01},
		{Op: "refund.create", Kind: stripesim.Drop, Probability: 0.10},
		{Op: "refund.create", Kind: stripesim.EffectError, Probability: 0.05},
		{Op: "*.get", Kind: stripesim.Reset, Probability: 0.03},
	} {
		f.Times, f.Seed = -1, seed+uint64(i)+1
		n.names[n.world.sim.Inject(f)] = f.Op + "/" + f.Kind
	}
}

// run breaks something every few hundred milliseconds until ctx ends. Then all
// processes run again.
func (n *nemesis) run(ctx context.Context) error {
	nextRestart := time.Now().Add(restartEvery)
	for ctx.Err() == nil {
		select {
		case <-time.After(time.Duration(150+n.rand.IntN(350)) * time.Millisecond):
		case <-ctx.Done():
			return n.heal()
		}
		if time.Now().After(nextRestart) {
			nextRestart = time.Now().Add(restartEvery)
			if err := n.world.pg.Restart("immediate"); err != nil {
				return err
			}
			n.counted("pg_immediate")
			continue
		}
		if err := n.hit(ctx, n.world.apis[n.rand.IntN(len(n.world.apis))]); err != nil {
			return err
		}
	}
	return n.heal()
}

func (n *nemesis) hit(ctx context.Context, p *process) error {
	switch k := n.rand.IntN(10); {
	case k < 5:
		p.kill()
		n.mu.Lock()
		n.kills = append(n.kills, time.Now())
		n.mu.Unlock()
		n.counted("kill9")
		return p.start(context.WithoutCancel(ctx))
	case k < 9: // Past its lease, most of the time: a zombie that wakes up and wants to write.
		if p.signal(syscall.SIGSTOP) {
			n.counted("pause")
			time.AfterFunc(time.Duration(200+n.rand.IntN(2200))*time.Millisecond, func() { p.signal(syscall.SIGCONT) })
		}
	default:
		if p.signal(syscall.SIGCONT) && p.signal(syscall.SIGTERM) {
			n.counted("sigterm")
			if !p.wait(10 * time.Second) {
				p.kill()
			}
			return p.start(context.WithoutCancel(ctx))
		}
	}
	return nil
}

// heal removes every fault.
func (n *nemesis) heal() error {
	for id, fired := range n.world.sim.FaultsFired() { // the simulator forgets them with the fault
		if fired > 0 {
			n.atProvider[n.names[id]] += fired
		}
	}
	n.world.sim.ClearFaults()
	for _, p := range n.world.apis {
		p.signal(syscall.SIGCONT)
		if !p.running() {
			if err := p.start(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *nemesis) counted(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count[fault]++
}
