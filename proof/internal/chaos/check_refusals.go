package chaos

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
	"example.com/payonce/stripesim"
)

// refusals checks every 503 to the first request with a key: until another request came, nothing
// existed under the key, here or at Stripe.
func (j *checks) refusals(ctx context.Context) error {
	rows, err := j.world.pool.Raw().Query(ctx, `SELECT tenant_id, key, created_at FROM idempotency_keys`)
	if err != nil {
		return err
	}
	defer rows.Close()
	tenants := map[string]int{}
	for i, t := range j.world.tenants {
		tenants[t.ID] = i
	}
	existed := map[ack]time.Time{}
	for rows.Next() {
		var tenant, key string
		var at time.Time
		if err := rows.Scan(&tenant, &key, &at); err != nil {
			return err
		}
		existed[ack{tenants[tenant], key}] = at
	}
	if err := rows.Err(); err != nil {
		return err
	}
	log := j.traffic.log
	looked, list := begunAfterAll(log.Operations(), log.Began(), existed, firstEffects(j.world.sim.Effects(), tenants))
	j.add("I23", "after a 503 to the first request with a key nothing exists under it", byAnswers, looked, list)
	return nil
}

// firstEffects is when Stripe first did something under a caller's key.
func firstEffects(effects []stripesim.Effect, tenants map[string]int) map[ack]time.Time {
	first := map[ack]time.Time{}
	for _, e := range effects {
		tenant, rest, _ := strings.Cut(e.Key, ":")
		i, ours := tenants[tenant]
		end := strings.LastIndexByte(rest, ':')
		if !ours || end < 0 {
			continue
		}
		at := ack{i, rest[:end]}
		if seen, ok := first[at]; !ok || e.At.Before(seen) {
			first[at] = e.At
		}
	}
	return first
}

// clockSlack is what the clocks of Stripe, which counts milliseconds, PostgreSQL and the
// clients may differ by on one machine.
const clockSlack = 2 * time.Millisecond

// begunAfterAll lists the keys that were begun by a request that was answered 503. A key
// that exists before its second request was sent was begun by its first.
func begunAfterAll(
	ops []history.Operation, began time.Time, exists ...map[ack]time.Time,
) (looked int, list []string) {
	slices.SortFunc(ops, func(a, b history.Operation) int { return int(a.Call - b.Call) })
	keys := map[ack][]history.Operation{}
	for _, op := range ops {
		at := ack{op.Tenant, op.Key}
		keys[at] = append(keys[at], op)
	}
	for at, ops := range keys {
		if ops[0].Outcome != history.Away {
			continue
		}
		looked++
		next := int64(math.MaxInt64)
		if len(ops) > 1 {
			next = ops[1].Call
		}
		for i, where := range []string{"here", "at Stripe"}[:len(exists)] {
			since, there := exists[i][at]
			if there && since.Sub(began) < time.Duration(next)-clockSlack {
				list = append(list, fmt.Sprintf("key %s of tenant %d was answered 503 after %s, and exists %s since %s",
					at.key, at.tenant, time.Duration(ops[0].Return).Round(time.Millisecond), where,
					since.Sub(began).Round(time.Millisecond)))
			}
		}
	}
	slices.Sort(list)
	return looked, list
}
