-- Each query returns the rows that break one rule of the ledger; none is right. See invariants.sql.

-- name: InvariantEffectHasInboxRow :many
-- I7: the ledger's entries and its inbox rows are one commit, so neither exists without the other. An event of a
-- payment that was lost with the database, and recovered under another id, has nothing to book: its successor's event
-- has.
SELECT concat_ws(' ', coalesce(l.tenant_id, i.tenant_id), coalesce(l.event_id, i.event_id))::text AS subject,
    CASE WHEN l.event_id IS NULL THEN 'received but not booked' ELSE 'booked but not received' END::text AS detail
FROM (SELECT * FROM inbox_events
      WHERE consumer = 'ledger' AND status = 'done' AND type IN ('payment.succeeded', 'refund.succeeded')) i
FULL JOIN (SELECT DISTINCT tenant_id, event_id, booked_at FROM ledger_entries) l
    ON l.tenant_id = i.tenant_id AND l.event_id = i.event_id
WHERE (l.event_id IS NULL
        AND (EXISTS (SELECT FROM payments p WHERE p.tenant_id = i.tenant_id AND p.id = i.subject)
            OR EXISTS (SELECT FROM refunds r WHERE r.tenant_id = i.tenant_id AND r.id = i.subject)))
   OR (i.event_id IS NULL
        AND NOT EXISTS (SELECT FROM inbox_events r WHERE r.consumer = 'ledger' AND r.event_id = l.event_id)
        AND l.booked_at > clock_timestamp() - interval '40 days'); -- inbox rows are deleted after 45

-- name: InvariantPublishedReachesLedger :many
-- I7: the ledger has received every published event about money that moved.
SELECT concat_ws(' ', e.tenant_id, e.aggregate_id, e.version)::text AS subject,
    concat(e.type, ' published ', e.published_at, ', never received by the ledger')::text AS detail
FROM outbox_events e
WHERE (
    starts_with(e.type, 'dispute.') OR -- part: disputes
    e.type IN ('payment.succeeded', 'refund.succeeded'))
  AND e.published_at < clock_timestamp() - interval '2 minutes'
  AND NOT EXISTS (
      SELECT FROM inbox_events i WHERE i.consumer = 'ledger' AND i.event_id = e.aggregate_id || '-' || (e.life + e.version));

-- name: InvariantLedgerSumsToZero :many
-- I8: debits equal credits in every currency, for each event and so for all.
SELECT concat_ws(' ', l.tenant_id, l.event_id)::text AS subject,
    concat('off by ', sum(l.amount_minor), ' ', l.currency)::text AS detail
FROM ledger_entries l
GROUP BY l.tenant_id, l.event_id, l.currency
HAVING sum(l.amount_minor) <> 0;

-- name: InvariantLedgerAgrees :many
-- I8: the entries of a payment or refund match the money that moved.
SELECT concat_ws(' ', l.tenant_id, l.resource_id)::text AS subject,
    concat('booked ', l.amount_minor, ' ', l.currency, ', moved ', coalesce(p.captured_minor, p.amount_minor, r.amount_minor, 0), ' ',
        coalesce(p.currency, r.currency))::text AS detail
FROM (SELECT e.tenant_id, e.resource_id, e.currency, sum(e.amount_minor) AS amount_minor
      FROM ledger_entries e
      WHERE e.account IN ('sales', 'refunds')
      GROUP BY e.tenant_id, e.resource_id, e.currency) l
LEFT JOIN payments p ON p.tenant_id = l.tenant_id AND p.id = l.resource_id AND p.status = 'succeeded'
LEFT JOIN refunds r ON r.tenant_id = l.tenant_id AND r.id = l.resource_id
WHERE CASE
    WHEN p.id IS NOT NULL THEN l.amount_minor <> -coalesce(p.captured_minor, p.amount_minor) OR l.currency <> p.currency
    WHEN r.status = 'succeeded' THEN l.amount_minor <> r.amount_minor OR l.currency <> r.currency
    ELSE l.amount_minor <> 0
        AND (coalesce(r.status NOT IN ('failed', 'canceled'), true) -- the entries of a late failure are reversed when its event arrives
            OR EXISTS (
                SELECT FROM inbox_events i
                WHERE i.consumer = 'ledger' AND i.subject = r.id AND i.type = 'refund.failed' AND i.status = 'done')) END;
