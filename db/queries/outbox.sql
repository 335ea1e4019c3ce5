-- name: OutboxAppend :exec
-- Part of the transaction that changes the aggregates. An event that exists already breaks the primary key: two writers
-- believed to have made the same version, and neither may go on.
INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
SELECT unnest(@tenant_ids::text[]), unnest(@aggregate_ids::text[]), unnest(@versions::bigint[]), unnest(@types::text[]),
    unnest(@data::bytea[]), sqlc.narg(traceparent);
