package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.com/payonce/stripesim"
)

// finding is one thing that must always be true, and what offends against it.
type finding struct {
	name      string
	offenders []string
}

// judge waits until nothing is under way any more, and then compares everybody's
// books: Stripe's, the database's, and what the shop was told.
func (s *system) judge(ctx context.Context, shows []*show) []finding {
	quiet := s.awaitQuiet(ctx)
	b, err := s.readBooks(ctx)
	if err != nil {
		return []finding{{"everybody's books can be read", []string{err.Error()}}}
	}
	for _, p := range shows {
		for _, o := range p.orders {
			o.got, o.back = len(b.charges[o.id]), refundedAtStripe(b.effects, o.id)
		}
	}
	findings := []finding{
		{"Stripe charged no order more than once", b.chargedTwice()},
		{"Stripe charged every order as often as its scene says, and refunded as much", unexpected(shows)},
		{"whatever the shop was told once, it was told again in the same bytes", s.shop.breaches},
	}
	if s.pool == nil {
		return findings
	}
	findings = append(findings,
		finding{"every charge at Stripe belongs to a payment that says succeeded, with the same amount", b.ghosts()},
		finding{"every payment that says succeeded was charged at Stripe", b.losses()},
		finding{"every answer the shop was given is stored byte for byte, or its key remembered", b.forgotten(s.shop.told, s.answersExpire)},
		finding{"nothing is left unfinished: no request, no webhook, no event", quiet},
	)
	if s.audience != nil {
		findings = append(findings, finding{"the broker delivered every event, those of one object in order", s.awaitAudience(ctx)})
	}
	findings = append(findings, s.auditUntilClean(ctx))
	return findings
}

// unfinishedWork is what somebody still has to do. Some webhooks belong to
// no tenant until they are applied; in a database of our own they count as ours.
const unfinishedWork = `
	SELECT 'key ' || key || ' stands at ' || recovery_point FROM idempotency_keys WHERE tenant_id = $1 AND finished_at IS NULL
	UNION ALL
	SELECT event_id || ' is ' || status || ' for ' || consumer FROM inbox_events WHERE status <> 'done' AND (tenant_id = $1 OR tenant_id IS NULL AND $2)
	UNION ALL
	SELECT type || ' of ' || aggregate_id || ' is not published' FROM outbox_events WHERE tenant_id = $1 AND published_at IS NULL`

// awaitQuiet waits until the loops have finished what the scenes left, and
// returns what they did not.
func (s *system) awaitQuiet(ctx context.Context) (unfinished []string) {
	if s.pool == nil {
		return nil
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(askAgain) {
		var err error
		unfinished, err = s.rows(ctx, unfinishedWork, s.tenant.ID, len(s.processes) > 0)
		if err != nil {
			return []string{err.Error()}
		}
		if len(unfinished) == 0 {
			break
		}
	}
	return unfinished
}

// rows runs a query that returns one text a row.
func (s *system) rows(ctx context.Context, sql string, args ...any) (texts []string, err error) {
	rows, err := s.pool.Raw().Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

// books are what Stripe and the database say about our orders.
type books struct {
	effects  []stripesim.Effect
	charges  map[string][]stripesim.Effect // by order
	payments map[string]succeeded          // by charge
	answers  map[string]stored             // by key
}

type succeeded struct {
	id, order, charge, currency string
	amount                      int64
}

type stored struct {
	status  int
	body    []byte
	expired bool
}

func (s *system) readBooks(ctx context.Context) (*books, error) {
	b := &books{charges: map[string][]stripesim.Effect{}, payments: map[string]succeeded{}, answers: map[string]stored{}}
	effects, err := s.stripe.effects(ctx)
	if err != nil {
		return nil, err
	}
	b.effects = effects
	for _, e := range effects {
		ours := s.tenant.ID == "" || e.Metadata["tenant_id"] == s.tenant.ID
		if e.Kind == stripesim.EffectCharge && ours {
			b.charges[e.Metadata["order_id"]] = append(b.charges[e.Metadata["order_id"]], e)
		}
	}
	if s.pool == nil {
		return b, nil
	}
	rows, err := s.pool.Raw().Query(ctx, `SELECT id, order_id, coalesce(charge_id, 'none of ' || id), currency, amount_minor FROM payments WHERE tenant_id = $1 AND status = 'succeeded'`, s.tenant.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p succeeded
		if err := rows.Scan(&p.id, &p.order, &p.charge, &p.currency, &p.amount); err != nil {
			return nil, err
		}
		b.payments[p.charge] = p
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	rows, err = s.pool.Raw().Query(ctx, `SELECT key, coalesce(answer_status, 0), answer_body, answer_dropped_at IS NOT NULL
		FROM idempotency_keys WHERE tenant_id = $1 AND finished_at IS NOT NULL`, s.tenant.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var a stored
		if err := rows.Scan(&key, &a.status, &a.body, &a.expired); err != nil {
			return nil, err
		}
		b.answers[key] = a
	}
	return b, rows.Err()
}

func refundedAtStripe(effects []stripesim.Effect, order string) (minor int64) {
	for _, e := range effects {
		if e.Metadata["order_id"] == order {
			switch e.Kind {
			case stripesim.EffectRefund:
				minor += e.Amount
			case stripesim.EffectRefundFailed:
				minor -= e.Amount
			}
		}
	}
	return minor
}

func (b *books) chargedTwice() (out []string) {
	for _, order := range slices.Sorted(maps.Keys(b.charges)) {
		if n := len(b.charges[order]); n > 1 {
			out = append(out, fmt.Sprintf("%s was %s", order, times(n)))
		}
	}
	return out
}

func unexpected(shows []*show) (out []string) {
	for _, p := range shows {
		for _, o := range p.orders {
			if o.counts && o.got != o.want {
				out = append(out, fmt.Sprintf("%s was %s, and should have been %s", o.id, times(o.got), times(o.want)))
			}
			if o.back != o.refund {
				out = append(out, fmt.Sprintf("%s of %s went back, and should have been %s", money(o.back, o.currency), o.id, money(o.refund, o.currency)))
			}
		}
	}
	return out
}

// ghosts are charges that nobody here knows of.
func (b *books) ghosts() (out []string) {
	for _, charges := range b.charges {
		for _, c := range charges {
			p, known := b.payments[c.ChargeID]
			if !known || p.amount != c.Amount || p.currency != c.Currency || p.order != c.Metadata["order_id"] {
				out = append(out, fmt.Sprintf("%s, %s for %s", c.ChargeID, money(c.Amount, c.Currency), c.Metadata["order_id"]))
			}
		}
	}
	return out
}

// losses are payments that nobody was charged for.
func (b *books) losses() (out []string) {
	for charge, p := range b.payments {
		if !slices.ContainsFunc(b.charges[p.order], func(c stripesim.Effect) bool { return c.ChargeID == charge }) {
			out = append(out, fmt.Sprintf("%s says %s", p.id, charge))
		}
	}
	return out
}

// forgotten are answers that were given and are not what is stored. One that has
// expired leaves its key behind.
func (b *books) forgotten(told map[string]answer, mayExpire bool) (out []string) {
	for key, r := range told {
		a, known := b.answers[key]
		if known && a.expired && mayExpire {
			continue
		}
		if !known || a.status != r.status || !bytes.Equal(a.body, r.body) {
			out = append(out, fmt.Sprintf("key %s was answered %d %s", key, r.status, bytes.TrimSpace(r.body)))
		}
	}
	return out
}
