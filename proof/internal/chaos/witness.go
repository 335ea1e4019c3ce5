package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// witnesses make the database note who claimed each key, and who moved it. They
// know processes by the names of their sessions, of which every process has its
// own, and are no part of the service: what they say is a second opinion on the
// fence.
const witnesses = `
CREATE TABLE witness_claims (tenant_id text, key text, token bigint, holder text, ends timestamptz,
	at timestamptz DEFAULT clock_timestamp());
CREATE TABLE witness_writes (tenant_id text, key text, token bigint, writer text, point text, gave_back boolean,
	at timestamptz DEFAULT clock_timestamp());
ALTER TABLE witness_claims OWNER TO payonce_owner; -- who migrates again
ALTER TABLE witness_writes OWNER TO payonce_owner;
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF TG_OP = 'INSERT' OR NEW.lease_token > OLD.lease_token THEN
		INSERT INTO witness_claims
		VALUES (NEW.tenant_id, NEW.key, NEW.lease_token, current_setting('application_name'), NEW.leased_until);
	ELSIF NEW.recovery_point <> OLD.recovery_point
	OR (NEW.leased_until = '-infinity') > (OLD.leased_until = '-infinity') THEN
		INSERT INTO witness_writes
		VALUES (NEW.tenant_id, NEW.key, NEW.lease_token, current_setting('application_name'), NEW.recovery_point,
			NEW.leased_until = '-infinity');
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION witness();`

// staleWrites are the writes of processes that did not hold the claim.
func (w *world) staleWrites(ctx context.Context) (looked int, list []string, err error) {
	if err := w.pool.Raw().QueryRow(ctx, `SELECT count(*) FROM witness_writes`).Scan(&looked); err != nil {
		return 0, nil, err
	}
	list, err = w.strings(ctx,
		`SELECT w.tenant_id || ' ' || w.key || ': ' || w.writer || ' moved it to ' || w.point ||
			', and its token ' || w.token || ' was of ' || coalesce(c.holder, 'nobody')
		FROM witness_writes w LEFT JOIN witness_claims c USING (tenant_id, key, token) WHERE c.holder IS DISTINCT
		FROM w.writer`)
	return looked, list, err
}

// Final is a key that a killed process held, and how long after the kill it was
// final.
type Final struct {
	Key string  `json:"key"`
	Ms  float64 `json:"ms"`
}

// timeToFinal is how soon each key was final that a killed process held, the
// slowest first. What waits for a customer or a bank is left out: it takes as
// long as they do.
func (w *world) timeToFinal(ctx context.Context) (list []Final, err error) {
	for _, n := range w.nodes {
		lives, _ := n.history()
		for _, l := range lives {
			if l.how != killed {
				continue
			}
			rows, err := w.pool.Raw().Query(ctx,
				`SELECT k.key, extract(epoch FROM k.finished_at - $2::timestamptz)::float8 * 1000 FROM witness_claims c
					JOIN idempotency_keys k USING (tenant_id, key)
				WHERE c.holder = $1 AND c.at < $2 AND k.finished_at > $2
				  AND NOT EXISTS (SELECT FROM witness_writes w
				WHERE (w.tenant_id, w.key, w.token) = (c.tenant_id, c.key, c.token) AND w.gave_back AND w.at < $2)
				  AND NOT EXISTS (SELECT FROM witness_claims later WHERE (later.tenant_id, later.key) = (c.tenant_id, c.key)
				AND later.token > c.token AND later.at < $2)
				  AND NOT EXISTS (SELECT FROM outbox_events e
				WHERE (e.tenant_id, e.aggregate_id) = (k.tenant_id, k.resource_id) AND e.type = 'payment.requires_action')
				  AND NOT EXISTS (SELECT FROM refunds r JOIN payments p ON (p.tenant_id, p.id) = (r.tenant_id, r.payment_id)
				      WHERE (r.tenant_id, r.id) = (k.tenant_id, k.resource_id) AND p.payment_method IN ($3, $4))`,
				l.session, l.ended, slowRefunds, failedRefunds)
			if err != nil {
				return nil, err
			}
			for rows.Next() {
				var f Final
				if err := rows.Scan(&f.Key, &f.Ms); err != nil {
					return nil, err
				}
				list = append(list, f)
			}
			if err := rows.Err(); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(list, func(a, b Final) int { return cmp.Compare(b.Ms, a.Ms) })
	return list, nil
}

// strings runs a query for one text a row.
func (w *world) strings(ctx context.Context, query string, args ...any) (list []string, err error) {
	rows, err := w.pool.Raw().Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// pairs runs a query for two texts a row.
func (w *world) pairs(ctx context.Context, query string) (map[string]string, error) {
	rows, err := w.pool.Raw().Query(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return nil, err
		}
		all[key] = value
	}
	return all, rows.Err()
}

// count runs a query for one number.
func (w *world) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = w.pool.Raw().QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// tookPart is how many orders each clock's processes made: an order is stamped by
// the process, its key by the database.
func (w *world) tookPart(ctx context.Context) (by map[string]int, err error) {
	rows, err := w.pool.Raw().Query(ctx,
		`SELECT round(extract(epoch FROM o.created_at - e.created_at) / 3600)::int, count(*)
		FROM orders o JOIN outbox_events e ON (e.tenant_id, e.aggregate_id, e.version) = (o.tenant_id, o.id, 1) GROUP BY 1`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	by = map[string]int{}
	for rows.Next() {
		var hours, n int
		if err := rows.Scan(&hours, &n); err != nil {
			return nil, err
		}
		by[fmt.Sprintf("%+d", hours)+"h"] = n
	}
	return by, rows.Err()
}
