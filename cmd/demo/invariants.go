package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
)

// check is one invariant, and what violates it.
type check struct {
	name       string
	violations []string
}

// checkInvariants waits until all work is done, and then compares three records of
// the same payments: Stripe's, the database's, and the responses that the shop got.
func (s *system) checkInvariants(ctx context.Context, runs []*sceneRun) []check {
	unfinished := s.waitUntilQuiet(ctx)
	r, err := s.readRecords(ctx)
	if err != nil {
		return []check{{"Stripe's records and the database can be read", []string{err.Error()}}}
	}
	for _, p := range runs {
		for _, o := range p.orders {
			o.got, o.did = len(r.charges[o.id]), sumsOf(r.effects, o.id)
		}
	}
	checks := []check{
		{"Stripe charged no order more than once", r.chargedMoreThanOnce()},
		{"Stripe charged and refunded every order as its scene expects", unexpectedCharges(runs)},
		{"no authorization was taken as money: each was captured once, or released", openAuthorizations(r.effects, runs)},
		{"every retry got the same final response, byte for byte", s.shop.changedResponses},
	}
	if s.pool == nil {
		return checks
	}
	lost := r.missingResponses(s.shop.finalResponses, s.responsesExpire)
	checks = append(checks,
		check{"every charge at Stripe belongs to a succeeded payment with the same amount", r.unmatchedCharges()},
		check{"every succeeded payment has its charge at Stripe", r.paymentsWithoutCharge()},
		check{"every final response is stored byte for byte, or its key is kept as expired", lost},
		check{"no request, webhook or event is unfinished", unfinished},
	)
	if s.subscriber != nil {
		missing := s.waitForEvents(ctx)
		checks = append(checks, check{"the broker delivered every event, and each object's events in order", missing})
	}
	return append(checks, s.auditUntilClean(ctx))
}

// unfinishedWorkSQL lists what the background loops still have to do. An inbox event
// has no tenant until it is applied: in the demo's own database ($2) those count too,
// in a shared one they may be another tenant's.
const unfinishedWorkSQL = `
	SELECT 'key ' || key || ' is at ' || recovery_point
	FROM idempotency_keys WHERE tenant_id = $1 AND finished_at IS NULL
	UNION ALL
	SELECT event_id || ' is ' || status || ' for ' || consumer
	FROM inbox_events WHERE status <> 'done' AND (tenant_id = $1 OR tenant_id IS NULL AND $2)
	UNION ALL
	SELECT type || ' of ' || aggregate_id || ' is not published'
	FROM outbox_events WHERE tenant_id = $1 AND published_at IS NULL`

// waitUntilQuiet waits until the background loops have finished all work, and
// returns what is left after waitTimeout.
func (s *system) waitUntilQuiet(ctx context.Context) (unfinished []string) {
	if s.pool == nil {
		return nil
	}
	for began := time.Now(); time.Since(began) < waitTimeout; time.Sleep(pollInterval) {
		var err error
		unfinished, err = s.rows(ctx, unfinishedWorkSQL, s.tenant.ID, len(s.processes) > 0)
		if err != nil {
			return []string{err.Error()}
		}
		if len(unfinished) == 0 {
			break
		}
	}
	return unfinished
}

// rows runs a query with one text column.
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

// records are what Stripe and the database say about this tenant's orders.
type records struct {
	effects   []stripesim.Effect
	charges   map[string][]stripesim.Effect // by order
	payments  map[string]succeededPayment   // by charge
	responses map[string]storedResponse     // by idempotency key
}

type succeededPayment struct {
	id, order, charge, currency string
	amount                      int64
}

type storedResponse struct {
	status  int
	body    []byte
	expired bool
}

func (s *system) readRecords(ctx context.Context) (*records, error) {
	r := &records{
		charges:   map[string][]stripesim.Effect{},
		payments:  map[string]succeededPayment{},
		responses: map[string]storedResponse{},
	}
	effects, err := s.stripe.effects(ctx)
	if err != nil {
		return nil, err
	}
	r.effects = effects
	for _, e := range effects {
		ours := s.tenant.ID == "" || e.Metadata["tenant_id"] == s.tenant.ID
		if e.Kind == stripesim.EffectCharge && ours {
			r.charges[e.Metadata["order_id"]] = append(r.charges[e.Metadata["order_id"]], e)
		}
	}
	if s.pool == nil {
		return r, nil
	}
	if err := s.readPayments(ctx, r); err != nil {
		return nil, err
	}
	return r, s.readResponses(ctx, r)
}

func (s *system) readPayments(ctx context.Context, r *records) error {
	// A succeeded payment without a charge needs a key of its own, to be reported.
	rows, err := s.pool.Raw().Query(ctx, `
		SELECT id, order_id, coalesce(charge_id, 'none of ' || id), currency, coalesce(captured_minor, amount_minor)
		FROM payments WHERE tenant_id = $1 AND status = 'succeeded'`, s.tenant.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p succeededPayment
		if err := rows.Scan(&p.id, &p.order, &p.charge, &p.currency, &p.amount); err != nil {
			return err
		}
		r.payments[p.charge] = p
	}
	return rows.Err()
}

func (s *system) readResponses(ctx context.Context, r *records) error {
	rows, err := s.pool.Raw().Query(ctx, `
		SELECT key, coalesce(answer_status, 0), answer_body, answer_dropped_at IS NOT NULL
		FROM idempotency_keys WHERE tenant_id = $1 AND finished_at IS NOT NULL`, s.tenant.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var a storedResponse
		var stored []byte
		if err := rows.Scan(&key, &a.status, &stored, &a.expired); err != nil {
			return err
		}
		if a.body, err = s.pool.Box().Open(sealed.Answer(s.tenant.ID, key), stored); err != nil {
			return err
		}
		r.responses[key] = a
	}
	return rows.Err()
}

// sums are what has become of an order's money apart from its charges.
type sums struct {
	refunded int64
	released int64 // of an authorization, and never taken
	disputed int64 // withdrawn by disputes and not given back
}

func sumsOf(effects []stripesim.Effect, order string) (of sums) {
	for _, e := range effects {
		if e.Metadata["order_id"] != order {
			continue
		}
		switch e.Kind {
		case stripesim.EffectRefund:
			of.refunded += e.Amount
		case stripesim.EffectRefundFailed:
			of.refunded -= e.Amount
		case stripesim.EffectReleased, stripesim.EffectExpired:
			of.released += e.Amount
		case stripesim.EffectDispute:
			of.disputed += e.Amount
		case stripesim.EffectDisputeWon:
			of.disputed -= e.Amount
		}
	}
	return of
}

// text is what the table says after the number of charges: " (15.00 USD refunded)".
func (of sums) text(currency string) string {
	var parts []string
	for _, part := range []struct {
		minor int64
		what  string
	}{{of.refunded, "refunded"}, {of.released, "released"}, {of.disputed, "disputed"}} {
		if part.minor != 0 {
			parts = append(parts, money(part.minor, currency)+" "+part.what)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func (r *records) chargedMoreThanOnce() (out []string) {
	for _, order := range slices.Sorted(maps.Keys(r.charges)) {
		if n := len(r.charges[order]); n > 1 {
			out = append(out, fmt.Sprintf("%s was %s", order, times(n)))
		}
	}
	return out
}

func unexpectedCharges(runs []*sceneRun) (out []string) {
	for _, p := range runs {
		for _, o := range p.orders {
			if o.checked && o.got != o.want {
				out = append(out, fmt.Sprintf("%s was %s, expected %s", o.id, times(o.got), times(o.want)))
			}
			if o.did != o.should {
				out = append(out, fmt.Sprintf("%s has%s, expected%s", o.id, cmp.Or(o.did.text(o.currency), " no refund"),
					cmp.Or(o.should.text(o.currency), " none")))
			}
		}
	}
	return out
}

// openAuthorizations are authorizations of the scenes' orders that were captured more than once, or of which a part was
// neither captured nor released: it is still reserved on the customer's card.
func openAuthorizations(effects []stripesim.Effect, runs []*sceneRun) (out []string) {
	type authorization struct {
		order, currency string
		left            int64
		captures        int
	}
	scenes := map[string]bool{}
	for _, p := range runs {
		for _, o := range p.orders {
			scenes[o.id] = true
		}
	}
	byIntent := map[string]*authorization{}
	for _, e := range effects {
		a := byIntent[e.IntentID]
		switch {
		case e.Kind == stripesim.EffectAuthorized && scenes[e.Metadata["order_id"]]:
			byIntent[e.IntentID] = &authorization{e.Metadata["order_id"], e.Currency, e.Amount, 0}
		case a == nil:
		case e.Kind == stripesim.EffectCharge:
			a.captures++
			a.left -= e.Amount
		case e.Kind == stripesim.EffectReleased, e.Kind == stripesim.EffectExpired:
			a.left -= e.Amount
		}
	}
	for _, intent := range slices.Sorted(maps.Keys(byIntent)) {
		if a := byIntent[intent]; a.captures > 1 || a.left != 0 {
			out = append(out, fmt.Sprintf("%s for %s was captured %d times, and %s of it is neither captured nor released",
				intent, a.order, a.captures, money(a.left, a.currency)))
		}
	}
	return out
}

// unmatchedCharges are charges at Stripe without a payment in the database: money
// that was taken and that the service does not know about.
func (r *records) unmatchedCharges() (out []string) {
	for _, charges := range r.charges {
		for _, c := range charges {
			order := c.Metadata["order_id"]
			p, known := r.payments[c.ChargeID]
			if !known || p.amount != c.Amount || p.currency != c.Currency || p.order != order {
				out = append(out, fmt.Sprintf("%s, %s for %s", c.ChargeID, money(c.Amount, c.Currency), order))
			}
		}
	}
	return out
}

// paymentsWithoutCharge are succeeded payments for which Stripe has no charge.
func (r *records) paymentsWithoutCharge() (out []string) {
	for charge, p := range r.payments {
		if !slices.ContainsFunc(r.charges[p.order], func(c stripesim.Effect) bool { return c.ChargeID == charge }) {
			out = append(out, fmt.Sprintf("%s has charge %s", p.id, charge))
		}
	}
	return out
}

// missingResponses are final responses that the shop got and that are not stored.
// Where responses may expire, the key alone is enough.
func (r *records) missingResponses(received map[string]response, mayExpire bool) (out []string) {
	for key, got := range received {
		a, known := r.responses[key]
		if known && a.expired && mayExpire {
			continue
		}
		if !known || a.status != got.status || !bytes.Equal(a.body, got.body) {
			out = append(out, fmt.Sprintf("key %s: the shop got %d %s", key, got.status, bytes.TrimSpace(got.body)))
		}
	}
	return out
}
