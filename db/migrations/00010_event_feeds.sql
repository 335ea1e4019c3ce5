-- +goose Up

-- One row a tenant that has events: the lock under which positions in its feed are given, and the last one given. Made by
-- whoever gives the first position, never deleted. Positions of a tenant run 1, 2, 3 without a gap.
CREATE TABLE event_feeds (
    tenant_id       text COLLATE "C" PRIMARY KEY,
    last_position   bigint      NOT NULL DEFAULT 0,
    removed_through bigint      NOT NULL DEFAULT 0, -- the highest position the reaper has removed
    removed_event   text COLLATE "C",               -- and that event's id, because a reader who has read so far has missed nothing
    reap_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT removed_was_given CHECK (removed_through BETWEEN 0 AND last_position)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX position_is_given_once ON outbox_events (tenant_id, position) WHERE position IS NOT NULL;
CREATE INDEX outbox_events_unpositioned ON outbox_events (tenant_id, seq) WHERE position IS NULL;

-- +goose Down
DROP INDEX outbox_events_unpositioned;
DROP INDEX position_is_given_once;
DROP TABLE event_feeds;
