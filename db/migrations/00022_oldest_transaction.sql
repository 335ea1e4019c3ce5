-- +goose Up

-- +goose StatementBegin
-- How old the oldest transaction of this database is, of whatever session, in seconds. It keeps dead rows. The function has
-- its owner's rights (db/rights.sql): with pg_read_all_stats the service would also see the SQL of every session, among
-- which may be a password.
CREATE FUNCTION oldest_transaction_seconds(besides integer) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT coalesce(extract(epoch FROM clock_timestamp() - least(
        (SELECT min(xact_start) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> besides AND backend_type <> 'autovacuum worker'),
        (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database()))), 0)::float8
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION oldest_transaction_seconds;
