-- What the operator's page shows of webhooks to tenants.

-- name: OperatorDeliveriesGivenUp :many
-- Returns tenants with failed deliveries: their endpoint did not accept events until the attempts ran out.
SELECT d.tenant_id, count(*) AS given_up, min(d.created_at)::timestamptz AS oldest,
    max(d.http_status)::integer AS http_status, max(d.last_error)::text AS last_error
FROM (SELECT f.tenant_id, f.created_at, coalesce(f.http_status, 0) AS http_status, coalesce(f.last_error, '') AS last_error
      FROM webhook_deliveries f
      WHERE f.status = 'failed' LIMIT @scan_max) d
GROUP BY d.tenant_id
ORDER BY d.tenant_id;
