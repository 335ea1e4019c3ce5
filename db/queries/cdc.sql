-- Change data capture (BROKER_URL=cdc:).

-- name: CDCInsert :exec
-- Writes events to the log, in this order, after which CDCDelete removes them in the same transaction. An event that
-- another relay inserts at this moment is waited for.
INSERT INTO cdc_events (id, tenant_id, aggregatetype, aggregateid, type, payload)
SELECT unnest(@ids::text[]), unnest(@tenant_ids::text[]), unnest(@aggregate_types::text[]),
    unnest(@aggregate_ids::text[]), unnest(@types::text[]), unnest(@payloads::text[]);

-- name: CDCDelete :exec
DELETE FROM cdc_events WHERE id = ANY(@ids::text[]);
