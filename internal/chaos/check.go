package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// quiet waits until everything that was begun is finished, without a client.
func (w *world) quiet(ctx context.Context, within time.Duration) (took time.Duration, err error) {
	began := time.Now()
	for {
		var left int
		err := w.pool.Raw().QueryRow(ctx, `SELECT (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL) + (SELECT count(*) FROM inbox_events WHERE status = 'pending')`).Scan(&left)
		if err == nil && left == 0 {
			return time.Since(began), nil
		}
		if time.Since(began) > within {
			return time.Since(began), fmt.Errorf("%d keys and webhooks are still unfinished after %s (%w)", left, within, errOrNil(err))
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func errOrNil(err error) error {
	if err == nil {
		return errDatabaseAnswers
	}
	return err
}

var errDatabaseAnswers = fmt.Errorf("the database answers")

// queries return the rows that break an invariant, as text.
var queries = []struct{ id, says, sql string }{
	{"I1", "one payment a key", `SELECT tenant_id || ' ' || idempotency_key FROM payments GROUP BY tenant_id, idempotency_key HAVING count(*) > 1`},
	{"I1", "one payment an order", `SELECT order_id FROM payments WHERE status IN ('processing', 'requires_action', 'succeeded') GROUP BY tenant_id, order_id HAVING count(*) > 1`},
	{"I5", "no key is stuck", `SELECT operation || ' ' || key || ' ' || coalesce(last_error, '') FROM idempotency_keys WHERE finished_at IS NULL`},
	{"I6", "one event a version, without gaps", `SELECT a.id FROM (SELECT tenant_id, id, version FROM orders UNION ALL SELECT tenant_id, id, version FROM payments UNION ALL SELECT tenant_id, id, version FROM refunds) a
		LEFT JOIN (SELECT tenant_id, aggregate_id, count(*) n, max(version) m FROM outbox_events GROUP BY 1, 2) e ON (e.tenant_id, e.aggregate_id) = (a.tenant_id, a.id)
		WHERE (coalesce(e.n, 0), coalesce(e.m, 0)) <> (a.version, a.version)`},
	{"I8", "refunds add up", `SELECT p.id FROM payments p LEFT JOIN (SELECT tenant_id, payment_id, sum(amount_minor) FILTER (WHERE status = 'succeeded') done, sum(amount_minor) FILTER (WHERE status IN ('pending', 'succeeded')) held FROM refunds GROUP BY 1, 2) r
		ON (r.tenant_id, r.payment_id) = (p.tenant_id, p.id) WHERE p.amount_refunded_minor <> coalesce(r.done, 0) OR p.amount_refunding_minor <> coalesce(r.held, 0)`},
	{"I11", "order and payment agree", `SELECT o.id FROM orders o LEFT JOIN payments p ON (p.tenant_id, p.order_id) = (o.tenant_id, o.id) AND p.status = 'succeeded'
		WHERE (o.status IN ('paid', 'partially_refunded', 'refunded')) <> (p.id IS NOT NULL) OR o.payment_id IS DISTINCT FROM p.id`},
	{"I12", "no effect without a written intent", `SELECT p.id FROM payments p WHERE p.status = 'succeeded' AND NOT EXISTS (SELECT FROM stripe_calls s WHERE s.tenant_id = p.tenant_id AND s.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm')`},
	{"I14", "unknown is never an answer", `SELECT k.key FROM idempotency_keys k JOIN stripe_calls s ON s.tenant_id = k.tenant_id AND s.stripe_key = k.tenant_id || ':' || k.key || ':confirm'
		WHERE k.answer_status >= 400 AND s.outcome IN ('sent', 'unknown')`},
	{"I15", "webhooks applied", `SELECT event_id || ' ' || coalesce(last_error, '') FROM inbox_events WHERE status <> 'done'`},
}

// judge asks every invariant and returns what breaks one.
func (t *traffic) judge(ctx context.Context) (list []string, err error) {
	for _, q := range queries {
		rows, err := t.world.pool.Raw().Query(ctx, q.sql)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.id, err)
		}
		for rows.Next() {
			var offender string
			if err := rows.Scan(&offender); err != nil {
				return nil, err
			}
			list = append(list, fmt.Sprintf("%s %s: %s", q.id, q.says, offender))
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	books, err := t.againstStripe(ctx)
	list = append(list, books...)
	t.mu.Lock()
	list = append(list, t.broken...)
	t.mu.Unlock()
	return list, err
}

// againstStripe compares our book with Stripe's own log, object by object.
func (t *traffic) againstStripe(ctx context.Context) (list []string, err error) {
	charges, refunds, byKey := map[string]int64{}, map[string]int64{}, map[string]int{}
	for _, e := range t.world.sim.Effects() {
		switch e.Kind {
		case "charge":
			charges[e.IntentID] += e.Amount
			if byKey[e.Key]++; byKey[e.Key] > 1 {
				list = append(list, "I1 charged twice under "+e.Key)
			}
		case "refund":
			refunds[e.IntentID] += e.Amount
			if byKey[e.Key]++; byKey[e.Key] > 1 {
				list = append(list, "I1 refunded twice under "+e.Key)
			}
		}
	}
	rows, err := t.world.pool.Raw().Query(ctx, `SELECT intent_id, order_id, amount_minor, amount_refunded_minor FROM payments WHERE status = 'succeeded'`)
	if err != nil {
		return list, err
	}
	for rows.Next() {
		var intent, order string
		var amount, refunded int64
		if err := rows.Scan(&intent, &order, &amount, &refunded); err != nil {
			return list, err
		}
		if charges[intent] != amount || refunds[intent] != refunded {
			list = append(list, fmt.Sprintf("I8 order %s: we have %d paid and %d refunded, Stripe %d and %d", order, amount, refunded, charges[intent], refunds[intent]))
		}
		delete(charges, intent)
	}
	for intent, amount := range charges {
		list = append(list, fmt.Sprintf("I8 Stripe took %d for %s, and we know nothing of it", amount, intent))
	}
	return list, rows.Err()
}

// replayAll asks once more for everything that was ever answered, from every
// process: the same bytes.
func (t *traffic) replayAll(ctx context.Context, r *rand.Rand) (replays int, list []string) {
	for at, digest := range t.acks {
		path, body, _ := strings.Cut(t.bodies[at], " ")
		a, err := t.post(ctx, t.world.apis[r.IntN(len(t.world.apis))], at.tenant, path, at.key, body)
		switch {
		case err != nil:
			list = append(list, fmt.Sprintf("I2 key %s: %s", at.key, err))
		case a.digest != digest || !a.replayed:
			list = append(list, fmt.Sprintf("I3 key %s is answered with other bytes than before", at.key))
		}
		replays++
	}
	return replays, list
}

// counters sums a counter over all processes. A process that was killed took its
// counts along, so this is a lower bound.
func (w *world) counters(ctx context.Context, into map[string]float64) {
	for _, p := range w.apis {
		m, err := p.metrics(ctx)
		if err != nil {
			continue
		}
		for name, v := range m {
			into[name] += v
		}
	}
}

func parseMetrics(r io.Reader) (map[string]float64, error) {
	m := map[string]float64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(strings.Fields(value)[0], 64); err == nil {
			m[name] = v
		}
	}
	return m, lines.Err()
}
