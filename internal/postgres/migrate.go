package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/db"
)

const (
	// A statement that changes a table waits until no session uses it, and every later session waits behind it. So it
	// waits for half a second, lets them pass, and tries again.
	ddlLockTimeout = 500 * time.Millisecond
	ddlPause       = time.Second
	ddlWithin      = 5 * time.Minute

	// A process polls for the migrations of another one to end. In a statement that waits it would hold a snapshot, for
	// the end of which a concurrent index of the other one would wait.
	migratorPoll   = time.Second
	migratorWithin = 5 * time.Minute
	// migratorLock is that of goose, which migrated before, so that a process of the former version waits, too.
	migratorLock int64 = 4097083626
)

// ErrSchemaTooOld means that migrations are pending.
var ErrSchemaTooOld = errors.New("the database schema is older than this program")

// emptyError is ErrSchemaTooOld of a database in which no migration was applied.
type emptyError struct{}

func (emptyError) Error() string        { return "the database is empty" }
func (emptyError) Is(target error) bool { return target == ErrSchemaTooOld }

// ErrOtherSchema means that the database has migrations that this program does not contain and
// lacks some that it does. Nothing can bring it up to date.
var ErrOtherSchema = errors.New("the database was made with other migrations than this program has; create another one")

// Migration is one numbered step of the schema, and whether it was applied.
type Migration struct {
	Version int64
	Name    string
	Applied bool

	sql string
}

// Migrate applies pending migrations under a lock that other starting processes wait for, and returns those it applied.
// Each runs in a transaction of its own, in which its locks are waited for briefly and again, so that requests go on.
//
// A migration whose statement is CREATE INDEX CONCURRENTLY or DROP INDEX CONCURRENTLY IF EXISTS has that statement
// alone and runs outside a transaction. If its process exits before it is recorded, it runs again: an index that is
// there is kept, one that is invalid is built anew.
func (p *Pool) Migrate(ctx context.Context) (done []Migration, err error) {
	err = p.alone(ctx, func(conn *pgx.Conn) error {
		list, err := p.migrationsOn(ctx, conn)
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.Applied {
				continue
			}
			if err := patiently(ctx, m.Name, func() error { return m.apply(ctx, conn) }); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			m.Applied = true
			done = append(done, m)
		}
		// An older version than that of the schema, as after a rollback, would take the rights on what it does not know.
		known := []int64{0} // goose's first row
		for _, m := range list {
			known = append(known, m.Version)
		}
		var newer bool
		err = conn.QueryRow(ctx, newerMigrations,
			pgx.QueryExecModeExec, known).Scan(&newer)
		if err != nil || newer {
			return err
		}
		return patiently(ctx, "rights.sql", func() error { return applyRights(ctx, conn) })
	})
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	return done, nil
}

// applyRights applies db.Rights, in one transaction, if this role owns the tables: a service that finds a current schema
// has nothing to apply and may not.
func applyRights(ctx context.Context, conn *pgx.Conn) error {
	owns, err := ownsTables(ctx, conn)
	if err != nil || !owns {
		return err
	}
	if _, err := conn.PgConn().Exec(ctx, db.Rights).ReadAll(); err != nil {
		return fmt.Errorf("rights.sql: %w", err)
	}
	return nil
}

// OwnsTables reports whether the role of this pool has the rights of the tables' owner, as a superuser has: then neither
// the policies of the tables nor the list of rights bind it.
func (p *Pool) OwnsTables(ctx context.Context) (bool, error) { return ownsTables(ctx, p.pgx) }

func ownsTables(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (owns bool, err error) {
	const query = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('tenants')"
	err = q.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(&owns)
	if err != nil && !errors.Is(err, ErrNoRows) { // No row: there is no schema yet, or one of a test's.
		return false, fmt.Errorf("who owns the tables: %w", err)
	}
	return owns, nil
}

// Migrations lists every migration that this program contains, oldest first, in one round trip. It takes no lock:
// processes that start together would wait for each other.
func (p *Pool) Migrations(ctx context.Context) ([]Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	list, err := p.migrationsOn(ctx, p.pgx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	return list, nil
}

// SchemaVersion is the number of the last migration that this program has.
func SchemaVersion() int64 {
	list, err := readMigrations(embedded())
	if err != nil {
		panic("bug: " + err.Error())
	}
	return list[len(list)-1].Version
}

// CheckSchema returns ErrSchemaTooOld unless every migration has been applied. A newer schema is allowed: a rolling
// deployment migrates before it replaces the old processes.
func (p *Pool) CheckSchema(ctx context.Context) error {
	list, err := p.Migrations(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(m Migration) bool { return m.Applied }) {
		return emptyError{}
	}
	for _, m := range list {
		if !m.Applied {
			return fmt.Errorf("%w: %s is missing", ErrSchemaTooOld, m.Name)
		}
	}
	return nil
}

// migrationsOn returns ErrOtherSchema if the database is ahead of this program and lacks one of its
// migrations all the same. A newer version of this program only adds migrations.
func (p *Pool) migrationsOn(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) ([]Migration, error) {
	list, err := readMigrations(p.migrations)
	if err != nil {
		return nil, err
	}
	rows, _ := q.Query(ctx, // Its error is that of CollectRows. Not prepared: that would be another round trip.
		"SELECT version_id, is_applied FROM goose_db_version ORDER BY id", pgx.QueryExecModeExec)
	type state struct {
		Version int64
		Applied bool
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[state])
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42P01" { // undefined_table: a new database
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	applied, newest := map[int64]bool{}, int64(0)
	for _, s := range states { // The last row of a version counts.
		applied[s.Version] = s.Applied
		if s.Applied {
			newest = max(newest, s.Version)
		}
	}
	missing := ""
	for i := range list {
		if list[i].Applied = applied[list[i].Version]; !list[i].Applied && missing == "" {
			missing = list[i].Name
		}
	}
	if missing != "" && newest > list[len(list)-1].Version {
		return nil, fmt.Errorf("%w: it is at version %d, and %s is missing", ErrOtherSchema, newest, missing)
	}
	return list, nil
}

// readMigrations reads the files NUMBER_NAME.sql, in goose's format: the part before "-- +goose Down".
func readMigrations(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return nil, errors.Join(err, errors.New("this program contains no migrations"))
	}
	var list []Migration
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the name of migration %s does not begin with a number: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		list = append(list, Migration{Version: version, Name: name, sql: up})
	}
	slices.SortFunc(list, func(a, b Migration) int { return int(a.Version - b.Version) })
	for i := range list[1:] {
		if list[i].Version == list[i+1].Version { // A database that has one of them would never get the other.
			return nil, fmt.Errorf("migrations %s and %s have one number", list[i].Name, list[i+1].Name)
		}
	}
	return list, nil
}

// alone runs fn on a session that no other migrating process has the like of.
func (p *Pool) alone(ctx context.Context, fn func(*pgx.Conn) error) error {
	if err := p.ownSessions(ctx); err != nil {
		return err
	}
	// It has a separate connection: a migration may read a table of any size, which no statement of a request may.
	config := p.pgx.Config().ConnConfig
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "0", ms(ddlLockTimeout)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { // which ends the lock
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	for until := time.Now().Add(migratorWithin); ; {
		var locked bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", migratorLock).Scan(&locked); err != nil {
			return err
		}
		if locked {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("another process has been migrating for %s", migratorWithin)
		}
		if err := pause(ctx, migratorPoll); err != nil {
			return err
		}
	}
	// The table is goose's, so that what goose has migrated is taken over, and the former version can still read it.
	var exists bool
	err = conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&exists)
	if err == nil && !exists {
		err = tablesAreElsewhere(ctx, conn)
	}
	if err == nil && !exists { // Not IF NOT EXISTS, for which the service's role would need the right to create it.
		_, err = conn.Exec(ctx, `CREATE TABLE goose_db_version (
			id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL,
			is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now())`)
	}
	if err != nil {
		return err
	}
	return fn(conn)
}

// tablesAreElsewhere is an error if another schema of the database has the service's tables: with new ones the service would
// start, without its money.
func tablesAreElsewhere(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var schema, path string
	err := q.QueryRow(ctx, `SELECT n.nspname, current_setting('search_path') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'goose_db_version' AND c.relkind = 'r' AND n.nspname <> coalesce(current_schema(), '')
			AND EXISTS (SELECT FROM pg_class t WHERE t.relnamespace = n.oid AND t.relname = 'outbox_events')
		ORDER BY n.nspname LIMIT 1`, pgx.QueryExecModeExec).Scan(&schema, &path)
	switch {
	case errors.Is(err, ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for tables of the service: %w", err)
	}
	return fmt.Errorf("the tables of the service are in the schema %q, where search_path = %s does not look: reset search_path, "+
		"or use a database without these tables", schema, path)
}

// patiently tries again while locks that apply needs are held by others.
func patiently(ctx context.Context, name string, apply func() error) error {
	for until := time.Now().Add(ddlWithin); ; {
		err := apply()
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "55P03" && refused.Code != "40P01" || // lock_not_available, deadlock
			time.Now().After(until) {
			return err
		}
		slog.WarnContext(ctx, "a migration waits for a lock; requests go on", "migration", name, "error", err)
		if err := pause(ctx, ddlPause); err != nil {
			return err
		}
	}
}

const recordMigration = "INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)"

func (m Migration) apply(ctx context.Context, conn *pgx.Conn) error {
	if statement := m.concurrent(); statement != "" {
		if err := applyConcurrently(ctx, conn, statement); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, recordMigration, m.Version)
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := conn.PgConn().Exec(ctx, m.sql).ReadAll(); err != nil { // any number of statements
			return err
		}
		_, err := tx.Exec(ctx, recordMigration, m.Version)
		return err
	})
}

var (
	sqlComment       = regexp.MustCompile(`(?m)--.*$`)
	concurrently     = regexp.MustCompile(`(?i)\bINDEX\s+CONCURRENTLY\b`)
	createConcurrent = regexp.MustCompile(`(?i)^CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(\w+)\s+ON\s[^;]*;?$`)
	dropConcurrent   = regexp.MustCompile(`(?i)^DROP\s+INDEX\s+CONCURRENTLY\s+IF\s+EXISTS\s+\w+\s*;?$`)
)

// concurrent returns the migration's one statement if that builds or drops an index without a lock. A file that has more
// than that runs as a transaction, where PostgreSQL refuses it.
func (m Migration) concurrent() string {
	text := strings.TrimSpace(sqlComment.ReplaceAllString(m.sql, ""))
	if concurrently.MatchString(text) && (createConcurrent.MatchString(text) || dropConcurrent.MatchString(text)) {
		return text
	}
	return ""
}

// applyConcurrently waits for every transaction that is older than itself, and nothing waits for it, so its locks have
// no timeout.
func applyConcurrently(ctx context.Context, conn *pgx.Conn, statement string) error {
	if _, err := conn.Exec(ctx, "SET lock_timeout = 0"); err != nil {
		return err
	}
	if name := createConcurrent.FindStringSubmatch(statement); name != nil {
		var valid bool
		err := conn.QueryRow(ctx, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name[1]).Scan(&valid)
		switch {
		case err == nil && valid: // It was built, and its process exited before it was recorded.
			statement = ""
		case err == nil: // Its process exited while it was built.
			_, err = conn.Exec(ctx, "DROP INDEX CONCURRENTLY "+name[1])
		}
		if err != nil && !errors.Is(err, ErrNoRows) {
			return err
		}
	}
	if statement != "" {
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "SET lock_timeout = "+ms(ddlLockTimeout))
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ownSessions returns an error if a session's lock could end up in another session.
func (p *Pool) ownSessions(ctx context.Context) error {
	conn, err := p.pgx.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pooled, err := behindPooler(ctx, conn)
	if err == nil && pooled {
		err = errPooled
	}
	return err
}

// embedded are the migrations that this program contains.
func embedded() fs.FS {
	files, _ := fs.Sub(db.Migrations, "migrations") // never fails for a valid name
	return files
}
