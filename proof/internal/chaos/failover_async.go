package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/payonce/stripesim"
)

// AsyncReport is what a failover to an asynchronous standby loses, and what comes back.
type AsyncReport struct {
	Seed         uint64 `json:"seed"`
	BehindMs     int64  `json:"standby_behind_ms"`
	Acknowledged int    `json:"acknowledged"`
	Charges      int    `json:"charges"`

	Lost Books `json:"after_the_failover"`
	Left Books `json:"after_reconciler_and_replay"`

	// Retried are the lost answers that their clients asked for again, by what they got. Charged are the charges that
	// came of it.
	Retried map[string]int `json:"retried"`
	Charged int            `json:"charged_by_retries"`
	Twice   int            `json:"orders_charged_twice"`
}

// Books are what is missing in the database at a time.
type Books struct {
	Answers  map[string]int `json:"answers_lost"`    // that clients have read and the database does not have, by path
	Intents  int            `json:"intents_unknown"` // charged at Stripe, and no row knows them
	Minor    int64          `json:"minor_unknown"`   // what they took, in cents
	Drift    int64          `json:"money_drift"`     // as api audit prints it
	Audit    map[string]int `json:"audit"`           // violations, by check
	Findings map[string]int `json:"discrepancies"`   // open, by kind
}

func (b Books) answers() (n int) {
	for _, some := range b.Answers {
		n += some
	}
	return n
}

// OK reports whether the run showed what it is for: something was lost, what could come back came back, no order was
// charged twice, and the audit accounts for all the money that is left.
func (r AsyncReport) OK() bool {
	return r.Lost.answers() > 0 && r.Left.Intents < r.Lost.Intents && r.Twice == 0 && r.Left.Drift == r.Left.Minor
}

// RunAsync kills a primary whose standby is behind, promotes the standby, and does what docs/operations.md says to do
// after a restore.
func RunAsync(ctx context.Context, c FailoverConfig, behind time.Duration) (report AsyncReport, err error) {
	p := &pair{delay: behind}
	r, stop, err := startFailover(ctx, c, p)
	if err != nil {
		return report, err
	}
	defer func() { stop(err != nil || !report.OK()) }()
	report = AsyncReport{Seed: c.Seed, BehindMs: behind.Milliseconds(), Retried: map[string]int{}}
	if err := r.killUnderTraffic(ctx, p); err != nil {
		return report, err
	}
	for _, n := range r.world.nodes {
		n.halt()
	}
	report.Acknowledged, report.Charges = len(r.traffic.acks), r.chargeCount()
	if report.Lost, err = r.books(ctx); err != nil {
		return report, fmt.Errorf("count what is lost: %w", err)
	}
	lost, err := r.lostRequests(ctx)
	if err != nil {
		return report, err
	}
	r.world.nodes[0].run(ctx) // One process, with no client in front of it.
	r.traffic.knockAt(r.world.nodes[:1])
	if err := r.reconcileAll(ctx); err != nil {
		return report, err
	}
	if err := r.world.command(ctx, nil, "relay", "replay", "-since", "48h"); err != nil {
		return report, err
	}
	rest(ctx, 3*time.Second)
	if report.Left, err = r.books(ctx); err != nil {
		return report, fmt.Errorf("count what is left: %w", err)
	}
	before := r.chargeCount()
	for _, q := range lost {
		q.door = r.world.nodes[0]
		report.Retried[r.again(ctx, q)]++
	}
	report.Charged = r.chargeCount() - before
	_, _, report.Twice, _, err = r.charges(ctx)
	return report, err
}

// killUnderTraffic has clients at work, kills the primary, and promotes the standby. Some of them pay orders that the
// standby has had for long.
func (r *failover) killUnderTraffic(ctx context.Context, p *pair) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	for i := range payers {
		c := &client{traffic: r.traffic, name: fmt.Sprint("earlier-", i), rand: rand.New(rand.NewPCG(r.Seed, uint64(i)+700))}
		orders := make([]string, ordersOfPayer)
		for k := range orders {
			orders[k], _ = c.order(ctx, 0, fmt.Sprint(c.name, "-", k))
		}
		clients.Go(func() {
			for k := 0; k < len(orders) && working.Err() == nil; k++ {
				c.until(working, request{path: "/v1/payments", key: fmt.Sprint("pay-", c.name, "-", k),
					body: payBody(orders[k], goodCard)}, retries)
				rest(working, 50*time.Millisecond)
			}
		})
	}
	rest(ctx, 3*p.delay)
	clients.Go(func() { r.traffic.run(working, "", r.Clients, r.Seed) })
	rest(ctx, r.Between)
	p.follow[p.primary].cut() // What is still on its way to the standby is lost with the primary.
	l, err := p.lose(ctx, r, Killed)
	stop()
	if err != nil {
		return err
	}
	r.Log("killed; the standby was promoted after %.0f ms", l.Promoted)
	clients.Wait()
	return nil
}

// Clients of orders that were made before, and how many each has: more than it can pay before the primary is killed.
const (
	payers        = 2
	ordersOfPayer = 80
)

func (r *failover) chargeCount() (n int) {
	for _, e := range r.world.sim.Effects() {
		if e.Kind == stripesim.EffectCharge {
			n++
		}
	}
	return n
}

// books counts what the database does not have.
func (r *failover) books(ctx context.Context) (b Books, err error) {
	b = Books{Answers: map[string]int{}, Audit: map[string]int{}, Findings: map[string]int{}}
	lost, err := r.lostRequests(ctx)
	if err != nil {
		return b, err
	}
	for _, q := range lost {
		b.Answers[kindOf(q.path)]++
	}
	known, err := r.world.strings(ctx, `SELECT intent_id FROM payments WHERE intent_id IS NOT NULL`)
	if err != nil {
		return b, err
	}
	took := map[string]int64{}
	for _, e := range r.world.sim.Effects() {
		switch e.Kind {
		case stripesim.EffectCharge:
			took[e.IntentID] += e.Amount
		case stripesim.EffectRefund:
			took[e.IntentID] -= e.Amount
		}
	}
	for intent, minor := range took {
		if !slices.Contains(known, intent) {
			b.Intents++
			b.Minor += minor
		}
	}
	var report struct {
		Checks []struct {
			ID         string
			Violations int
		}
		Drift []struct{ Minor int64 } `json:"money_drift"`
	}
	if err := r.world.command(ctx, &report, "audit", "-json", "-since", "24h"); err != nil {
		return b, err
	}
	for _, c := range report.Checks {
		if c.Violations > 0 {
			b.Audit[c.ID] += c.Violations
		}
	}
	for _, d := range report.Drift {
		b.Drift += d.Minor
	}
	kinds, err := r.world.pairs(ctx, `SELECT kind::text, count(*)::text FROM discrepancies WHERE resolved_at IS NULL GROUP BY 1`)
	for kind, n := range kinds {
		var count int
		_, _ = fmt.Sscan(n, &count)
		b.Findings[kind] = count
	}
	return b, err
}

// lostRequests are those whose final response a client has, and the database does not.
func (r *failover) lostRequests(ctx context.Context) (list []request, err error) {
	finished, err := r.world.strings(ctx, `SELECT tenant_id || ' ' || key FROM idempotency_keys WHERE finished_at IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, k := range finished {
		there[k] = true
	}
	for at, a := range r.traffic.acks {
		if !there[r.world.tenants[at.tenant].ID+" "+at.key] {
			list = append(list, request{tenant: at.tenant, path: a.path, key: at.key, body: a.body})
		}
	}
	slices.SortFunc(list, func(a, b request) int { return strings.Compare(a.key, b.key) })
	return list, nil
}

// kindOf is the last word of a path: orders, payments, refunds, capture.
func kindOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// reconcileAll waits until the reconciler finds nothing new. Its windows are made due at once, which are minutes in
// production.
func (r *failover) reconcileAll(ctx context.Context) error {
	if err := eventually(ctx, time.Minute, "one process serves", r.world.nodes[0].ready); err != nil {
		return err
	}
	state := ""
	for same, i := 0, 0; same < 4 && i < 60; i++ {
		if _, err := r.world.pool.Raw().Exec(ctx, `UPDATE reconciliation_windows SET next_at = '-infinity'`); err != nil {
			return err
		}
		rest(ctx, time.Second)
		now, err := r.world.strings(ctx, `SELECT concat_ws(' ', (SELECT count(*) FROM payments),
			(SELECT count(*) FROM payments WHERE status = 'succeeded'), (SELECT count(*) FROM refunds),
			(SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL),
			(SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL),
			(SELECT count(*) FROM inbox_events WHERE status = 'pending'))`)
		if err != nil {
			return err
		}
		if same++; now[0] != state {
			state, same = now[0], 0
		}
	}
	return nil
}

// again asks once more for an answer that was lost, and says what came.
func (r *failover) again(ctx context.Context, q request) string {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	a, err := r.traffic.do(ctx, q.door, http.MethodPost, q.path, r.world.tenants[q.tenant].Key, q.body, "Idempotency-Key", q.key)
	switch {
	case err != nil:
		return kindOf(q.path) + ": no response"
	case a.object.Code != "":
		return fmt.Sprintf("%s: %d %s", kindOf(q.path), a.status, a.object.Code)
	}
	return fmt.Sprintf("%s: %d", kindOf(q.path), a.status)
}

// Print writes the report as text.
func (r AsyncReport) Print(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	p("seed=%d asynchronous standby, %d ms behind: acknowledged=%d charges=%d", r.Seed, r.BehindMs, r.Acknowledged, r.Charges)
	for _, at := range []struct {
		when string
		b    Books
	}{{"after the failover", r.Lost}, {"after reconciler and replay", r.Left}} {
		p("%s:", at.when)
		p("  answers lost: %d (%s)", at.b.answers(), counts(at.b.Answers))
		p("  charged at Stripe and unknown here: %d PaymentIntents, %d cents; money drift %d", at.b.Intents, at.b.Minor, at.b.Drift)
		p("  audit: %s; open discrepancies: %s", counts(at.b.Audit), counts(at.b.Findings))
	}
	p("retried by their clients:")
	for _, what := range slices.Sorted(maps.Keys(r.Retried)) {
		p("  %3d %s", r.Retried[what], what)
	}
	p("charged by the retries: %d; orders charged twice: %d", r.Charged, r.Twice)
}
