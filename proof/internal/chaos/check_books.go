package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/stripesim"
)

// paid is what our book says of one payment.
type paid struct {
	tenant, key, order, status string
	amount, refunded           int64    // amount: what was captured
	captures                   []string // Stripe's keys of its captures
}

// charges reports whether a charge under the key is the payment's.
func (p paid) charges(key string) bool {
	return key == p.tenant+":"+p.key+":confirm" || slices.Contains(p.captures, key)
}

// stripesBooks holds our book against the log of effects, which the service never
// sees and which does not know what was answered to whom.
func (j *checks) stripesBooks(ctx context.Context) error {
	ours, err := j.ourBook(ctx)
	if err != nil {
		return err
	}
	sent, err := j.callsSent(ctx)
	if err != nil {
		return err
	}
	b := compareBooks(j.world.sim.Effects(), ours, sent)
	j.add("I1", "one effect per key, one charge per order", byEffects, b.money, b.twice)
	j.add("I8", "what Stripe took and gave back is what our rows say", byEffects, b.money, b.apart)
	j.add("I12", "every effect was announced before it happened", byEffects, b.effects, b.unannounced)
	j.add("I13", "a charge carries its caller's key and no other", byEffects, b.money, b.foreign)
	j.add("I26", "what was reserved was taken or let go, once", byEffects, b.holds, b.badHolds)
	return nil
}

// books is what two books say against each other.
type books struct {
	effects, money, holds                        int // looked at; the second moved some, the third reserved some
	twice, apart, unannounced, foreign, badHolds []string
}

func compareBooks(effects []stripesim.Effect, ours map[string]paid, sent map[string]time.Time) (b books) {
	charged, refunded := map[string]int64{}, map[string]int64{} // by intent
	authorized, released := map[string]int64{}, map[string]int64{}
	keys, orders := map[string]int{}, map[string]int{}
	for _, e := range effects {
		switch e.Kind {
		case stripesim.EffectCharge:
			b.money++
			charged[e.IntentID] += e.Amount
			if order := e.Metadata["order_id"]; order != "" {
				if orders[order]++; orders[order] == 2 {
					b.twice = append(b.twice, "order "+order+" was charged twice")
				}
			}
		case stripesim.EffectRefund:
			b.money++
			refunded[e.IntentID] += e.Amount
		case stripesim.EffectRefundFailed: // It came back.
			refunded[e.IntentID] -= e.Amount
		case stripesim.EffectAuthorized:
			b.holds++
			authorized[e.IntentID] += e.Amount
		case stripesim.EffectReleased, stripesim.EffectExpired:
			released[e.IntentID] += e.Amount
		case stripesim.EffectIntentCreated, stripesim.EffectCancel:
		default:
			continue
		}
		b.effects++
		if e.Key == "" { // the customer's doing, or the bank's
			continue
		}
		if at, ok := sent[e.Key]; !ok {
			b.unannounced = append(b.unannounced,
				fmt.Sprintf("%s %s under %s, which is written down nowhere", e.Kind, e.IntentID, e.Key))
		} else if e.At.Before(at.Add(-time.Millisecond)) { // the log counts milliseconds
			b.unannounced = append(b.unannounced,
				fmt.Sprintf("%s %s under %s at %s, and written down at %s", e.Kind, e.IntentID, e.Key, e.At, at))
		}
		if keys[e.Kind+e.Key]++; keys[e.Kind+e.Key] == 2 {
			b.twice = append(b.twice, e.Kind+" happened twice under "+e.Key)
		}
		if p, ok := ours[e.IntentID]; ok && e.Kind == stripesim.EffectCharge && !p.charges(e.Key) && p.status == succeeded {
			b.foreign = append(b.foreign,
				fmt.Sprintf("the charge of %s carries %s, and its caller's key is %s", e.IntentID, e.Key, p.key))
		}
	}
	for intent, held := range authorized {
		took, let, status := charged[intent], released[intent], ours[intent].status
		switch {
		case took+let == 0 && status != succeeded && status != canceled:
		case took+let == held && status != authorizedStatus:
		default:
			b.badHolds = append(b.badHolds, fmt.Sprintf("%s: of %d reserved, %d were taken and %d let go; our payment is %q",
				intent, held, took, let, status))
		}
	}
	for intent, p := range ours {
		if p.status != succeeded {
			continue
		}
		if c, r := charged[intent], refunded[intent]; c != p.amount || r != p.refunded {
			b.apart = append(b.apart,
				fmt.Sprintf("order %s: we have %d paid and %d refunded, Stripe %d and %d", p.order, p.amount,
					p.refunded, c, r))
		}
		delete(charged, intent)
	}
	for intent, amount := range charged {
		b.apart = append(b.apart, fmt.Sprintf("Stripe took %d for %s, and we know nothing of it", amount, intent))
	}
	return b
}

const (
	succeeded        = "succeeded"
	canceled         = "canceled"
	authorizedStatus = "authorized"
)

// ourBook is our payments by the intent that pays them: the one that succeeded,
// where several tried.
func (j *checks) ourBook(ctx context.Context) (map[string]paid, error) {
	rows, err := j.world.pool.Raw().Query(ctx,
		`SELECT p.intent_id, p.tenant_id, p.idempotency_key, p.order_id, p.status::text,
			coalesce(p.captured_minor, p.amount_minor), p.amount_refunded_minor,
			ARRAY(SELECT s.stripe_key FROM stripe_call_rows s
				WHERE s.tenant_id = p.tenant_id AND s.operation = 'capture' AND s.resource_id = p.id)
		FROM payments p
		WHERE p.intent_id IS NOT NULL ORDER BY p.status = 'succeeded'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ours := map[string]paid{}
	for rows.Next() {
		var intent string
		var p paid
		if err := rows.Scan(&intent, &p.tenant, &p.key, &p.order, &p.status, &p.amount, &p.refunded,
			&p.captures); err != nil {
			return nil, err
		}
		ours[intent] = p
	}
	return ours, rows.Err()
}

// callsSent is when each Stripe key was first sent, by our own word.
func (j *checks) callsSent(ctx context.Context) (map[string]time.Time, error) {
	rows, err := j.world.pool.Raw().Query(ctx, `SELECT stripe_key, first_sent_at FROM stripe_calls`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sent := map[string]time.Time{}
	for rows.Next() {
		var key string
		var at time.Time
		if err := rows.Scan(&key, &at); err != nil {
			return nil, err
		}
		sent[key] = at
	}
	return sent, rows.Err()
}

// webhooksStored asks whether every event that was answered with 200 is there.
func (j *checks) webhooksStored(ctx context.Context) error {
	stored, err := j.world.strings(ctx, `SELECT event_id FROM inbox_events WHERE consumer = 'stripe'`)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, id := range stored {
		there[id] = true
	}
	var lost []string
	answered := j.watch.acknowledged()
	for id := range answered {
		if !there[id] {
			lost = append(lost, id+" was answered with 200, and is not stored")
		}
	}
	j.add("I15", "a webhook that was answered is stored", byAnswers, len(answered), lost)
	return nil
}
