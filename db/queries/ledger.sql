-- name: LedgerBook :exec
-- Inserts the entries of one event together. They sum to zero, or the COMMIT fails.
INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
SELECT @tenant_id, @event_id, row_number() OVER (), account, amount_minor, @currency, @resource_id
FROM unnest(@accounts::text[]) WITH ORDINALITY a(account, n)
JOIN unnest(@amounts_minor::bigint[]) WITH ORDINALITY m(amount_minor, n) USING (n);

-- name: LedgerOfResource :many
-- Sums the entries of a payment or refund per account.
SELECT account, currency, sum(amount_minor)::bigint AS amount_minor
FROM ledger_entries
WHERE tenant_id = @tenant_id AND resource_id = @resource_id
GROUP BY account, currency
ORDER BY account, currency;

-- name: LedgerBalances :many
-- Sums a tenant's entries per account.
SELECT account, currency, sum(amount_minor)::bigint AS amount_minor
FROM ledger_entries
WHERE tenant_id = @tenant_id
GROUP BY account, currency
ORDER BY account, currency;

-- name: LedgerBasisOfPayment :one
-- matches: the payment succeeded as its event says. adopted: another payment of this database has the money that the
-- event names. Both are read from the tables with which the ledger must agree.
SELECT EXISTS (
        SELECT FROM payments p
        WHERE p.tenant_id = @tenant_id AND p.id = @resource_id AND p.status = 'succeeded'
          AND coalesce(p.captured_minor, p.amount_minor) = @amount_minor::bigint AND p.currency = @currency) AS matches,
    EXISTS (
        SELECT FROM payments p
        WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id AND p.status = 'succeeded'
          AND p.intent_id = @intent_id::text AND coalesce(p.captured_minor, p.amount_minor) = @amount_minor::bigint
          AND p.currency = @currency
          AND NOT EXISTS (SELECT FROM payments o WHERE o.tenant_id = @tenant_id AND o.id = @resource_id)) AS adopted;

-- name: LedgerBasisOfRefund :one
-- matches: the refund has reached the state of its event: succeeded (it may have failed since), or failed or was canceled.
SELECT EXISTS (
    SELECT FROM refunds r
    WHERE r.tenant_id = @tenant_id AND r.id = @resource_id
      AND r.amount_minor = @amount_minor AND r.currency = @currency
      AND CASE WHEN @failed::boolean THEN r.status IN ('failed', 'canceled')
          ELSE r.status = 'succeeded' OR r.status IN ('failed', 'canceled') AND r.version > @version END) AS matches;
