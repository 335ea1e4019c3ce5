-- name: OrphanRefunds :many
-- Returns the refunds of PaymentIntents that no payment has, by their keys, oldest first. just_now: a state read from
-- Stripe before may be older than the refund.
SELECT k.key, k.resource_id, k.created_at, k.finished_at, k.answer_status, s.outcome, s.error_code, s.object_id,
    coalesce(k.finished_at > clock_timestamp() - interval '10 minutes', false)::boolean AS just_now
FROM idempotency_keys k
LEFT JOIN stripe_call_rows s ON s.tenant_id = k.tenant_id AND s.stripe_key = k.tenant_id || ':' || k.key || ':refund'
WHERE k.tenant_id = @tenant_id AND k.key = ANY(@keys::text[])
ORDER BY k.created_at;
