package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CDCState is whether change data capture can read the events, and what the server keeps for those who do not read.
// Slots are the logical ones of this database, of all readers.
type CDCState struct {
	WALLevel  string // logical, or nothing can be read
	Keeps     string // max_slot_wal_keep_size: -1 is without a limit
	Published bool   // there is a publication with cdc_events
	Slots     int
	Read      int   // slots with a reader connected
	Lost      int   // slots for which what they need is gone
	HeldBytes int64 // the most that is kept for one of them
}

// Written by hand, because sqlc does not know the view of publications.
const cdcState = `-- CDCState
SELECT current_setting('wal_level'), current_setting('max_slot_wal_keep_size'),
    EXISTS (
        SELECT FROM pg_publication_tables t
        WHERE t.schemaname = current_schema() AND t.tablename = 'cdc_events'),
    count(*), count(*) FILTER (WHERE s.active), count(*) FILTER (WHERE s.wal_status = 'lost'),
    coalesce(max(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_lsn() END, s.restart_lsn)), 0)::bigint
FROM pg_replication_slots s
WHERE s.slot_type = 'logical' AND s.database = current_database()`

// CDC returns the state of change data capture.
func (p *Pool) CDC(ctx context.Context) (s CDCState, err error) {
	err = p.pgx.QueryRow(ctx, cdcState, pgx.QueryExecModeExec).
		Scan(&s.WALLevel, &s.Keeps, &s.Published, &s.Slots, &s.Read, &s.Lost, &s.HeldBytes)
	if err != nil {
		return s, fmt.Errorf("read the state of change data capture: %w", err)
	}
	return s, nil
}
