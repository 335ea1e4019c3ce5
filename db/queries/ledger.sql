-- name: LedgerBook :exec
-- The entries of one event, together. They sum to zero, or the COMMIT is refused.
INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
SELECT @tenant_id, @event_id, row_number() OVER (), account, amount_minor, @currency, @resource_id
FROM unnest(@accounts::text[]) WITH ORDINALITY a(account, n) JOIN unnest(@amounts_minor::bigint[]) WITH ORDINALITY m(amount_minor, n) USING (n);

-- name: LedgerOfResource :many
-- What has been booked about a payment or refund, per account.
SELECT account, currency, sum(amount_minor)::bigint AS amount_minor FROM ledger_entries
WHERE tenant_id = @tenant_id AND resource_id = @resource_id
GROUP BY account, currency ORDER BY account, currency;

-- name: LedgerBalances :many
-- A tenant's balances: sums of entries, computed when asked.
SELECT account, currency, sum(amount_minor)::bigint AS amount_minor FROM ledger_entries
WHERE tenant_id = @tenant_id
GROUP BY account, currency ORDER BY account, currency;
