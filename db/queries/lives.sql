-- name: LostTime :one
-- Returns since when a life that was lost may have done something at Stripe of which the reconciler has not read yet. No
-- row: there is nothing of the kind.
SELECT min(l.backup_at)::timestamptz AS since
FROM lives l
WHERE NOT EXISTS (
    SELECT FROM reconciliation_windows w WHERE w.name = @window_name AND w.covered_through > l.began_at)
HAVING count(*) > 0;

-- name: UnaccountedIntentAdd :exec
-- Records an intent of a life that was lost, unless a payment has it.
INSERT INTO unaccounted_intents (tenant_id, order_id, intent_id)
SELECT @tenant_id, @order_id, @intent_id::text
WHERE NOT EXISTS (
    SELECT FROM payments p
    WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id AND p.intent_id = @intent_id::text)
ON CONFLICT DO NOTHING;

-- name: UnaccountedIntents :many
-- Returns the intents of an order that a lost life has made and no payment has.
SELECT u.intent_id
FROM unaccounted_intents u
WHERE u.tenant_id = @tenant_id AND u.order_id = @order_id AND NOT EXISTS (
    SELECT FROM payments p
    WHERE p.tenant_id = u.tenant_id AND p.order_id = u.order_id AND p.intent_id = u.intent_id)
ORDER BY u.intent_id;

-- name: LifeWhere :one
-- Where the database is in its write-ahead log, and where it was when its last life began; last_number is 0 if nothing was
-- ever lost. timeline: eight hexadecimal digits. newest_at: when the newest event was written; if all were removed, when the
-- reconciler last ran; never later than the backup.
SELECT s.system_identifier::bigint AS system_identifier, left(pg_walfile_name(w.lsn), 8)::text AS timeline,
    w.lsn::text AS wal_position, clock_timestamp()::timestamptz AS now,
    coalesce((SELECT o.created_at FROM outbox_events o ORDER BY o.seq DESC LIMIT 1),
        (SELECT max(r.covered_through) FROM reconciliation_windows r),
        clock_timestamp() - interval '30 days')::timestamptz AS newest_at,
    coalesce(l.number, 0)::bigint AS last_number, coalesce(l.timeline, 0)::bigint AS last_timeline,
    coalesce(l.system_identifier = s.system_identifier AND l.wal_position <= w.lsn, false)::boolean AS after_last
FROM pg_control_system() s
CROSS JOIN (SELECT pg_current_wal_lsn() AS lsn) w
LEFT JOIN (SELECT * FROM lives ORDER BY number DESC LIMIT 1) l ON true;

-- name: LifeBegin :exec
INSERT INTO lives (number, backup_at, system_identifier, timeline, wal_position)
VALUES (@number, @backup_at, @system_identifier, @timeline, CAST(@wal_position AS text)::pg_lsn);

-- name: LifeEndFeeds :execrows
-- Ends the cursors of all feeds: a feed begins with the events that follow.
UPDATE event_feeds SET begins_after = last_position WHERE begins_after <> last_position;

-- name: LifeTenantsWithUnplacedEvents :many
SELECT DISTINCT tenant_id FROM outbox_events WHERE position IS NULL ORDER BY tenant_id;

-- name: LifeLockWithin :exec
SELECT set_config('lock_timeout', @within::text, true);

-- name: LifeOfEvents :exec
SELECT begin_life(@life);

-- name: TenantsKnown :many
-- Of these tenants those that are here, wherever they are served.
SELECT id FROM tenants WHERE id = ANY(@ids::text[]);

-- name: LifeKeysInForce :many
-- API keys that a backup may have brought back, the last used first.
SELECT k.tenant_id, k.name, k.hint, k.created_at
FROM api_keys k
WHERE k.revoked_at IS NULL AND k.created_at < @backup_at AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
ORDER BY k.last_used_at DESC NULLS LAST, k.tenant_id, k.hint LIMIT @limit_rows;

-- name: LifeLostEvents :many
-- Of these events, which the broker has, the numbers of those that this database does not have, from 1.
SELECT a.number::bigint AS number
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
        unnest(@versions::bigint[]) AS version, unnest(@lives::bigint[]) AS life,
        generate_series(1, cardinality(@lives::bigint[])) AS number) a
WHERE NOT EXISTS (
    SELECT FROM outbox_events e
    WHERE e.tenant_id = a.tenant_id AND e.aggregate_id = a.aggregate_id AND e.version = a.version AND e.life = a.life)
ORDER BY a.number;

-- name: LifeInForce :one
-- What a backup may have brought back to life: it does not know what was revoked or disabled after it.
SELECT (SELECT count(*) FROM api_keys k
        WHERE k.revoked_at IS NULL AND k.created_at < @backup_at
          AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())) AS api_keys,
    (SELECT count(*) FROM tenants t WHERE t.disabled_at IS NULL) AS tenants
    , (SELECT count(*) FROM webhook_endpoints e WHERE e.disabled_at IS NULL) AS endpoints -- part: webhooks
    ;
