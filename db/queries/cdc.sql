-- Change data capture (BROKER_URL=cdc:).

-- name: CDCInsert :exec
-- Writes events to the log, in this order, after which CDCDelete removes them in the same transaction. An event that
-- another relay inserts at this moment is waited for.
INSERT INTO cdc_events (tenant_id, id, aggregatetype, aggregateid, type, payload)
SELECT unnest(@tenant_ids::text[]), unnest(@ids::text[]), unnest(@aggregate_types::text[]),
    unnest(@aggregate_ids::text[]), unnest(@types::text[]), unnest(@payloads::text[]);

-- name: CDCDelete :exec
DELETE FROM cdc_events e
USING (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id) written
WHERE e.tenant_id = written.tenant_id AND e.id = written.id;
