-- What a transaction changes of its session's settings, until it ends.

-- name: PlanByIndex :exec
-- Plans what follows as the connections of batches do (postgres.planByIndex).
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);

-- name: TimeoutsForAudit :exec
-- Sets the timeout for the rest of the transaction: the default is for requests.
SELECT set_config('statement_timeout', @milliseconds::text, true);

-- name: StandbyAwait :exec
-- Writes a message to the log of the server and to no table, if commits wait for a synchronous standby, so that the
-- COMMIT of this waits as well. The standby then has everything that was committed before. Its transaction gets a number,
-- because one without a number does not wait. Plugins of logical decoding ignore messages unless they ask for them.
SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'payonce', '') END;
