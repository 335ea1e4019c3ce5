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

// judge asks every invariant and returns what breaks one. Events are still on
// their way to the broker and to the consumers when the last key is finished,
// so what offends is asked again, until the time for that is up.
func (t *traffic) judge(ctx context.Context, within time.Duration) (list []string, err error) {
	for deadline := time.Now().Add(within); ; {
		checks, err := t.world.pool.Invariants(ctx)
		if err != nil {
			return nil, err
		}
		list = list[:0]
		for _, c := range checks {
			for _, row := range c.Rows {
				list = append(list, fmt.Sprintf("%s %s: %s %s", c.ID, c.Name, row.Subject, row.Detail))
			}
		}
		if len(list) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(200 * time.Millisecond)
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
