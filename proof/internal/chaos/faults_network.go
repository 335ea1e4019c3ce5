package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/payonce/testkit/pgproxy"
)

// hitLink cuts, delays or swallows what passes between a node and one of the
// things that it depends on. It goes through all that can happen, shuffled, so
// that a short run has met each.
func (n *nemesis) hitLink() func(context.Context, *rand.Rand) error {
	type card struct{ kind, to string }
	var all, deck []card
	for _, kind := range []string{"tcp_cut_", "tcp_latency_", "tcp_swallow_"} {
		for _, to := range []string{toPostgres, toBroker, toStripe} {
			all = append(all, card{kind, to})
		}
	}
	return func(ctx context.Context, r *rand.Rand) error {
		if len(deck) == 0 {
			deck = append(deck, all...)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		next := deck[0]
		deck = deck[1:]
		target := n.world.nodes[r.IntN(len(n.world.nodes))]
		l, began := target.link(next.to), time.Now()
		if err := l.suffer(ctx, next.kind, r); err != nil {
			return err
		}
		n.note(next.kind+next.to, target.name, began)
		return nil
	}
}

// suffer is one fault of a link, from its beginning to its end.
func (l *link) suffer(ctx context.Context, kind string, r *rand.Rand) error {
	var undo func()
	var err error
	switch kind {
	case "tcp_cut_":
		l.cut()
		rest(ctx, between(r, 0, 600*time.Millisecond))
		return l.repair(context.WithoutCancel(ctx))
	case "tcp_latency_":
		undo, err = l.slow(between(r, 40*time.Millisecond, 600*time.Millisecond))
	default:
		undo, err = l.swallow()
	}
	if err == nil {
		rest(ctx, between(r, 300*time.Millisecond, 1200*time.Millisecond))
	}
	undo()
	return err
}

// committing are statements whose commit is worth losing: the phases of a
// payment, each of which is a statement and a commit in one, and what holders,
// relays and the webhook's door write. The empty one is the COMMIT of whatever
// transaction comes next.
var committing = []string{
	"", "", "", "PaymentBegin", "PaymentIntentRecord", "PaymentFinish", "StripeCallRecordAttempt",
	"StripeCallRecordAttemptOutcome",
	"KeyTakeOver", "KeyYield", "InboxReceive", "InboxStore", "OutboxLease",
}

// armedFor is how long a cut waits for its statement.
const armedFor = 400 * time.Millisecond

// hitCommit cuts a connection exactly before or exactly after a commit. The two
// look the same to the service, which has to find out.
func (n *nemesis) hitCommit(ctx context.Context, r *rand.Rand) error {
	target := n.world.nodes[r.IntN(len(n.world.nodes))]
	wire, statement, after := target.wire, committing[r.IntN(len(committing))], r.IntN(2) == 0
	wire.Seen() // what it remembers is for tests, and would fill the memory of a long run
	began := time.Now()
	cut, kind := arm(wire, statement, after)
	select {
	case <-cut.Fired():
	case <-time.After(armedFor):
	case <-ctx.Done():
	}
	if !wire.Disarm(cut) {
		n.note(kind, target.name, began)
	}
	return nil
}

// batched are the statements over arrays whose commit is worth losing: those of a payment, and the webhooks' intake.
var batched = []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish", "InboxReceive"}

// batchArmedFor is longer than armedFor: batches are rarer than commits.
const batchArmedFor = 2 * time.Second

// hitBatch cuts a connection exactly before or exactly after the commit of a statement over several rows, at the first
// node that has one. Each row is another request's, and each of these requests has to find out.
func (n *nemesis) hitBatch(ctx context.Context, _ *rand.Rand) error {
	kind, statement := n.rarest()
	cutAfter := kind == batchAfter
	began, fired := time.Now(), make(chan struct{}, len(n.world.nodes))
	ctx, cancel := context.WithTimeout(ctx, batchArmedFor)
	defer cancel()
	cuts := make([]*pgproxy.Cut, len(n.world.nodes))
	for i, target := range n.world.nodes {
		if cutAfter {
			cuts[i] = target.wire.AfterBatch(statement+" ", 2)
		} else {
			cuts[i] = target.wire.BeforeBatch(statement+" ", 2)
		}
		go func() {
			select {
			case <-cuts[i].Fired():
				fired <- struct{}{}
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-fired:
	case <-ctx.Done():
	}
	for i, target := range n.world.nodes {
		if target.wire.Disarm(cuts[i]) {
			continue
		}
		select { // Its statement is on its way, unless something else has ended the connection.
		case <-cuts[i].Fired():
		case <-time.After(armedFor):
			continue
		}
		if rows := cuts[i].Rows(); rows > 1 {
			n.note(kind+statement, target.name, began)
			n.noteRows(rows)
		}
	}
	return nil
}

// rarest is the statement whose batches were lost least often so far, and the way in which its own were, or else all
// were: none is left to luck, in a short run either.
func (n *nemesis) rarest() (kind, statement string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ahead := func(statement string) int { return n.count[batchBefore+statement] - n.count[batchAfter+statement] }
	all := 0
	for _, s := range batched {
		all += ahead(s)
	}
	statement = slices.MinFunc(batched, func(a, b string) int {
		return n.count[batchBefore+a] + n.count[batchAfter+a] - n.count[batchBefore+b] - n.count[batchAfter+b]
	})
	if own := ahead(statement); own > 0 || own == 0 && all > 0 {
		return batchAfter, statement
	}
	return batchBefore, statement
}

func (n *nemesis) noteRows(rows int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rowsLost += rows
	n.rowsMost = max(n.rowsMost, rows)
}

func arm(wire *pgproxy.Proxy, statement string, after bool) (cut *pgproxy.Cut, kind string) {
	name := statement
	if name == "" {
		name = "COMMIT"
	}
	switch {
	case after && statement == "":
		cut = wire.AfterCommit("")
	case after:
		cut = wire.After(statement + " ")
	case statement == "":
		cut = wire.BeforeCommit("")
	default:
		cut = wire.Before(statement + " ")
	}
	if after {
		return cut, commitAfter + name
	}
	return cut, commitBefore + name
}

// The kinds of a lost commit, and of one of several rows, before the statement's name.
const (
	commitBefore = "commit_lost_before:"
	commitAfter  = "commit_lost_after:"
	batchBefore  = "batch_lost_before:"
	batchAfter   = "batch_lost_after:"
)
