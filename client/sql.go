package client

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// SQLSchema makes the table that [SQL] needs, in PostgreSQL and in SQLite from 3.35. Rows that are final may be deleted
// once no program calls Do for their intents any more; the row with the empty intent must stay.
const SQLSchema = `CREATE TABLE payonce_intents (
	intent   text PRIMARY KEY, -- '' is the journal itself: its record is the id
	state    text NOT NULL,
	callers  bigint NOT NULL,  -- how many calls have begun it
	begun_at text NOT NULL,
	record   text NOT NULL     -- JSON
)`

// SQLJournal is a journal in the caller's database. Several processes may use it at once: their calls for one intent send
// the same key.
type SQLJournal struct {
	db *sql.DB
	id string
}

var _ Journal = (*SQLJournal)(nil)

// SQL opens the journal in db, which must have the table of [SQLSchema], and where a commit must be durable: with
// synchronous_commit off, or a replica that is promoted without its last transactions, Resume may miss an intent.
func SQL(ctx context.Context, db *sql.DB) (*SQLJournal, error) {
	if _, err := db.ExecContext(ctx, `INSERT INTO payonce_intents (intent, state, callers, begun_at, record)
		VALUES ('', 'journal', 0, '', $1) ON CONFLICT (intent) DO NOTHING`, rand.Text()); err != nil {
		return nil, fmt.Errorf("open the journal payonce_intents: %w", err)
	}
	j := &SQLJournal{db: db}
	if err := db.QueryRowContext(ctx, `SELECT record FROM payonce_intents WHERE intent = ''`).Scan(&j.id); err != nil {
		return nil, fmt.Errorf("open the journal payonce_intents: %w", err)
	}
	return j, nil
}

// ID implements [Journal].
func (j *SQLJournal) ID() string { return j.id }

// Begin implements [Journal].
func (j *SQLJournal) Begin(ctx context.Context, r Record) (*Record, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// One statement, so one transaction. It returns the row as it is afterwards: with more than one caller it is another's.
	var callers int64
	var stored string
	err = j.db.QueryRowContext(ctx, `INSERT INTO payonce_intents AS i (intent, state, callers, begun_at, record)
		VALUES ($1, $2, 1, $3, $4)
		ON CONFLICT (intent) DO UPDATE SET
			state   = CASE WHEN i.state = 'refused' THEN excluded.state ELSE i.state END,
			record  = CASE WHEN i.state = 'refused' THEN excluded.record ELSE i.record END,
			callers = CASE WHEN i.state = 'refused' THEN 1 ELSE i.callers + 1 END
		RETURNING callers, record`, r.Intent, string(r.State), r.BegunAt.Format(timeFormat), string(text)).Scan(&callers, &stored)
	if err != nil {
		return nil, fmt.Errorf("begin %q: %w", r.Intent, err)
	}
	if callers == 1 {
		return nil, nil
	}
	return readRecord(stored)
}

// Continue implements [Journal]. It is one caller more, so that no other says that the request was refused.
func (j *SQLJournal) Continue(ctx context.Context, intent string) (*Record, error) {
	var stored string
	err := j.db.QueryRowContext(ctx, `UPDATE payonce_intents SET callers = callers + 1
		WHERE intent = $1 AND state = 'sent' RETURNING record`, intent).Scan(&stored)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("continue %q: %w", intent, err)
	}
	return readRecord(stored)
}

func readRecord(text string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournalDamaged, err)
	}
	return r, nil
}

// timeFormat sorts as the instants do.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

var errOthers = errors.New("another caller has begun the same intent, and may have sent it")

// Note implements [Journal]. Final and Broken are never overwritten. Refused is written only if no other call has begun
// the intent, because that one may have sent it.
func (j *SQLJournal) Note(ctx context.Context, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// SQLite numbers parameters as they come, whatever their names are.
	done, err := j.db.ExecContext(ctx, `UPDATE payonce_intents SET state = $1, record = $2
		WHERE intent = $3 AND state NOT IN ('final', 'broken') AND ($1 <> 'refused' OR callers = 1)`, string(r.State), string(text), r.Intent)
	if err != nil {
		return fmt.Errorf("store the state of %q: %w", r.Intent, err)
	}
	if n, err := done.RowsAffected(); err == nil && n == 0 && r.State == Refused {
		return errOthers
	}
	return nil
}

// Open implements [Journal].
func (j *SQLJournal) Open(ctx context.Context) (open []Record, err error) {
	rows, err := j.db.QueryContext(ctx, `SELECT record FROM payonce_intents WHERE state = 'sent' ORDER BY begun_at, intent`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		r, err := readRecord(text)
		if err != nil {
			return nil, err
		}
		open = append(open, *r)
	}
	return open, nil
}
