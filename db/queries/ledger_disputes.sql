-- name: LedgerBasisOfDispute :one
-- Whether the dispute has reached the version of its event.
SELECT EXISTS (
    SELECT FROM disputes d
    WHERE d.tenant_id = @tenant_id AND d.id = @dispute_id AND d.version >= @version) AS matches;

-- name: LedgerBookDispute :exec
-- Books the movements that the event announces, three lines each: what was disputed and the fee, against Stripe. Each
-- movement belongs to one version, so it is booked once. In the movement's currency, which is the account's.
INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
SELECT m.tenant_id, @event_id, row_number() OVER (ORDER BY m.id, l.account), l.account, l.amount_minor, m.currency,
    m.dispute_id
FROM dispute_movements m
CROSS JOIN LATERAL (
    SELECT 'disputes'::text AS account, -m.amount_minor AS amount_minor
    UNION ALL SELECT 'fees', m.fee_minor
    UNION ALL SELECT 'stripe', m.net_minor) l
WHERE m.tenant_id = @tenant_id AND m.dispute_id = @dispute_id AND m.version = @version AND l.amount_minor <> 0;

-- name: InvariantLedgerAgreesWithDisputes :many
-- I24: the entries of a dispute are its movements, no more and no less.
SELECT concat_ws(' ', b.tenant_id, b.resource_id)::text AS subject,
    concat('booked ', b.booked, ' ', b.currency, ' net, moved ', coalesce(m.moved, 0))::text AS detail
FROM (SELECT e.tenant_id, e.resource_id, e.currency, sum(e.amount_minor) AS booked
      FROM ledger_entries e
      JOIN disputes d ON d.tenant_id = e.tenant_id AND d.id = e.resource_id
      WHERE e.account = 'stripe'
      GROUP BY e.tenant_id, e.resource_id, e.currency) b
LEFT JOIN LATERAL (
    SELECT sum(v.net_minor) AS moved
    FROM dispute_movements v
    WHERE v.tenant_id = b.tenant_id AND v.dispute_id = b.resource_id AND v.currency = b.currency
      AND EXISTS (
          SELECT FROM inbox_events i
          WHERE i.consumer = 'ledger' AND i.status = 'done' AND i.version = v.version
            AND i.event_id > v.dispute_id || '-' AND i.event_id < v.dispute_id || '.')) m
    ON true
WHERE b.booked <> coalesce(m.moved, 0)
  AND NOT EXISTS ( -- inbox rows are deleted after 45 days, entries never
      SELECT FROM dispute_movements v
      WHERE v.tenant_id = b.tenant_id AND v.dispute_id = b.resource_id
        AND v.created_at < clock_timestamp() - interval '40 days');
