package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
)

// traffic is what the clients do, with the responses they got.
type traffic struct {
	world  *world
	people *people
	http   *http.Client
	log    *history.Log

	mu       sync.Mutex
	doors    []*node              // where clients knock
	acks     map[ack]acknowledged // the first final answer, by key
	payments []paymentOf          // for readers
	broken   []string             // answers that no server may give
	looked   map[string]int       // how often a rule of that name was held against an answer

	// While only one node is broken, every intent must come to its end.
	calm   bool
	ended  int
	stuck  []string
	slow   []float64 // how long each took, in milliseconds
	unsure int       // requests without an answer

	// While no process is broken, no request may fail (RunVersions).
	strict    bool
	requested int
	failed    []string
	putOff    []string // requests that were answered with a 503 that says when to come back
}

// ack names a key of a tenant.
type ack struct {
	tenant int
	key    string
}

// acknowledged is a final answer and the request that got it.
type acknowledged struct {
	path, body string
	answer     answer
}

type paymentOf struct {
	tenant int
	id     string
}

func newTraffic(w *world, log *history.Log, people *people) *traffic {
	return &traffic{
		world: w, people: people, log: log, doors: w.nodes, acks: map[ack]acknowledged{}, looked: map[string]int{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

// run has so many clients want things, until ctx ends. A client ends what it has
// begun. Names of a phase keep its keys apart from those of others.
func (t *traffic) run(ctx context.Context, phase string, clients int, seed uint64) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := &client{
				traffic: t, name: fmt.Sprintf("%s%d", phase, i), rand: rand.New(rand.NewPCG(seed, uint64(i))),
			}
			for ctx.Err() == nil {
				c.want(ctx)
			}
		})
	}
	all.Wait()
}

// knock chooses the node that a request goes to, as a load balancer would that
// does not know what is broken.
func (t *traffic) knock(r *rand.Rand) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doors[r.IntN(len(t.doors))]
}

// without has clients knock everywhere but at one node, from now on, and wants
// every intent to come to its end.
func (t *traffic) without(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calm, t.doors = true, nil
	for _, other := range t.world.nodes {
		if other != n {
			t.doors = append(t.doors, other)
		}
	}
}

// settled notes how an intent ended.
func (t *traffic) settled(what string, took time.Duration, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.calm {
		return
	}
	t.ended++
	t.slow = append(t.slow, float64(took.Microseconds())/1000)
	if !final {
		t.stuck = append(t.stuck, fmt.Sprintf("%s has no final answer after %s", what, took.Round(time.Millisecond)))
	}
}

// rule holds an answer against something that no answer may break.
func (t *traffic) rule(name string, holds bool, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked[name]++
	if !holds {
		t.broken = append(t.broken, name+" "+fmt.Sprintf(format, args...))
	}
}

func (t *traffic) acknowledge(at ack, path, body string, a answer) {
	t.mu.Lock()
	first, again := t.acks[at]
	if !again {
		t.acks[at] = acknowledged{path, body, a}
	}
	t.mu.Unlock()
	if again {
		t.rule("I3", first.answer.digest == a.digest, "key %s of tenant %d was answered in two ways", at.key, at.tenant)
	}
}

// met remembers a payment, for others to read.
func (t *traffic) met(p paymentOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.payments = append(t.payments, p)
}

// some is one of the latest payments, if there is any.
func (t *traffic) some(r *rand.Rand) (paymentOf, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.payments) == 0 {
		return paymentOf{}, false
	}
	return t.payments[len(t.payments)-1-r.IntN(min(len(t.payments), 50))], true
}

// stockUp puts on the shelf what checkouts will fight over: of one thing enough
// for all, of the other too little.
func (t *traffic) stockUp(ctx context.Context) error {
	for i := range t.world.tenants {
		for sku, available := range map[string]int{"chaos": 1_000_000, "rare": 20} {
			a, err := t.do(ctx, t.world.nodes[0], http.MethodPut, "/v1/stock/"+sku, t.world.tenants[i].Key,
				fmt.Sprintf(`{"available":%d}`, available))
			if err != nil {
				return fmt.Errorf("set the stock: %w", err)
			}
			if a.status != http.StatusOK {
				return fmt.Errorf("set the stock: status %d", a.status)
			}
		}
	}
	return nil
}
