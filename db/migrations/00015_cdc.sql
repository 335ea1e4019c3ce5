-- +goose Up

-- What change data capture reads, where BROKER_URL is cdc:. The relay inserts events and deletes them in the same
-- transaction, so the table is always empty and the write-ahead log has each event as one insert. The columns have the
-- names that Debezium's outbox event router expects. The primary key is also what a publication needs that publishes
-- deletes: without it PostgreSQL would refuse the relay's.
CREATE TABLE cdc_events (
    tenant_id     text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    aggregatetype text NOT NULL,
    aggregateid   text COLLATE "C" NOT NULL,
    type          text NOT NULL,
    payload       text NOT NULL, -- CloudEvents in JSON, the same bytes as at every broker
    PRIMARY KEY (tenant_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- +goose Down
DROP TABLE cdc_events;
