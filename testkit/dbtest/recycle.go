package dbtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
)

// A database that a test has only written rows to is emptied and given to the next test. Emptying a database takes a
// fifth of the processor time that copying and dropping a database takes: a copy has 700 files, whose catalogs every
// session reads anew.
const (
	sparesMax = 8  // databases of each kind that wait for a test
	usesMax   = 40 // of a database; then dead rows would slow its tests down

	sessionsGone = 2 * time.Second // after the sessions of a finished test were ended
	sessionsKept = 8               // of a database that waits; the server's other slots are for tests that run
)

// notesChanges is run in the template. The event trigger notes each change of the schema, for any role, in the
// transaction of the change.
const notesChanges = `
CREATE SCHEMA dbtest;
CREATE TABLE dbtest.changed (command text NOT NULL);
CREATE FUNCTION dbtest.note() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	IF current_setting('dbtest.undone', true) = 'on' THEN
		RETURN;
	END IF;
	INSERT INTO dbtest.changed VALUES (tg_tag);
END $$;
CREATE EVENT TRIGGER dbtest_note ON ddl_command_end EXECUTE FUNCTION dbtest.note();
ALTER EVENT TRIGGER dbtest_note ENABLE ALWAYS`

// Undone is a change of the schema that the caller undoes before its test ends, for whatever the test's result: the database is
// used again.
func Undone(change string) string {
	return "SET LOCAL dbtest.undone = on; " + change
}

// Unguarded runs a statement that a trigger of the schema refuses or answers, to make a row older for one. Neither triggers
// nor foreign keys are there for the statement; the schema stays what it is, so the database is used again.
func Unguarded(t testing.TB, pool *postgres.Pool, sql string, args ...any) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool.Raw(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), sql, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// keepsSeeds copies what the migrations have written, rows and values of sequences, so that it can be put back.
const keepsSeeds = `
DO $$
DECLARE t record; filled boolean;
BEGIN
	FOR t IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'dbtest'::regnamespace AND relname ~ '^(seed_|sequences$)'
	LOOP
		EXECUTE format('DROP TABLE %s', t.name);
	END LOOP;
	FOR t IN SELECT c.oid::regclass AS name, c.relname FROM pg_class c
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
	LOOP
		EXECUTE format('SELECT EXISTS (SELECT FROM %s)', t.name) INTO filled;
		IF filled THEN
			EXECUTE format('CREATE TABLE dbtest.%I AS TABLE %s', 'seed_' || t.relname, t.name);
		END IF;
	END LOOP;
	CREATE TABLE dbtest.sequences AS SELECT format('public.%I', sequencename) AS name, coalesce(last_value, start_value) AS at,
		last_value IS NOT NULL AS called FROM pg_sequences WHERE schemaname = 'public';
	TRUNCATE dbtest.changed;
END $$`

// unlike says how a database differs from a new one by more than rows; empty: it does not. Statistics of a table change
// the plans of later tests.
const unlike = `
SELECT concat_ws(', ',
	(SELECT string_agg(DISTINCT command, ', ') FROM dbtest.changed),
	(SELECT 'a setting of the database' FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
	  WHERE d.datname = current_database() LIMIT 1),
	(SELECT 'rights on the database' FROM pg_database WHERE datname = current_database()
	  AND (datconnlimit, datacl::text) IS DISTINCT FROM (-1, format('{=c/%1$I,%1$I=CTc/%1$I}', pg_get_userbyid(datdba)))),
	(SELECT 'a large object' FROM pg_largeobject_metadata LIMIT 1),
	(SELECT 'a replication slot' FROM pg_replication_slots WHERE database = current_database() LIMIT 1),
	(SELECT 'a prepared transaction' FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1),
	(SELECT 'statistics of ' || c.relname FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid
	  WHERE c.relnamespace = 'public'::regnamespace LIMIT 1))`

// emptying writes the statements that make the rows of a database those of a new one. Replication's role switches the
// triggers off that refuse to delete. The statements are sent as one, which is a transaction.
const emptying = `
SELECT 'SET LOCAL session_replication_role = replica; ' ||
	(SELECT string_agg(format('DELETE FROM %s', c.oid::regclass), '; ') FROM pg_class c
	  WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace) ||
	coalesce((SELECT string_agg(format('; INSERT INTO public.%I OVERRIDING SYSTEM VALUE TABLE %s',
			substr(c.relname, 6), c.oid::regclass), '')
	   FROM pg_class c WHERE c.relnamespace = 'dbtest'::regnamespace AND c.relname LIKE 'seed\_%'), '') ||
	coalesce((SELECT string_agg(format('; SELECT setval(%L, %s, %L)', name, at, called), '') FROM dbtest.sequences), '')`

// A database is one that a test has, or that waits for a test.
type database struct {
	name     string
	prepared string // SQL that was run after the migration
	uses     int
	kept     map[string]*postgres.Pool // by what was asked for; the tests of a database come one after the other
	beside   map[string]Companion      // by key

	emptying string // SQL
}

// close closes the pools. It does not wait longer than ctx for a connection that a test has kept.
func (d *database) close(ctx context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range d.kept {
			pool.Close()
		}
		for _, c := range d.beside {
			_ = c.Close()
		}
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// spares are the databases that wait, by what was run in them after their migration.
type spares map[string][]*database

// take returns a database that waits, if there is one.
func (s *server) take(prepared string) *database {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.spares[prepared]
	if len(waiting) == 0 {
		return nil
	}
	last := waiting[len(waiting)-1]
	s.spares[prepared] = waiting[:len(waiting)-1]
	return last
}

// giveBack empties the database of a finished test, or drops it where rows are not all that the test has changed, and says
// why.
func (s *server) giveBack(ctx context.Context, d *database) (dropped, err error) {
	d.uses++
	if s.recycles && d.uses < usesMax {
		dropped = s.empty(ctx, d)
	}
	if s.recycles && d.uses < usesMax && dropped == nil {
		s.mu.Lock()
		waiting := len(s.spares[d.prepared]) < sparesMax
		if waiting {
			s.spares[d.prepared] = append(s.spares[d.prepared], d)
		}
		s.mu.Unlock()
		if waiting {
			return nil, nil
		}
	}
	return dropped, s.discard(ctx, d)
}

func (s *server) discard(ctx context.Context, d *database) error {
	d.close(ctx)
	s.mu.Lock()
	delete(s.open, s.dsn(d.name))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupWithin)
	defer cancel()
	return s.drop(ctx, d.name)
}

// discardSpares closes the pools of databases that wait, and drops the databases of a server that outlives us.
func (s *server) discardSpares() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
	defer cancel()
	for _, waiting := range s.spares {
		for _, d := range waiting {
			d.close(ctx)
			if s.Source == devpg.FromURL {
				err = errors.Join(err, s.drop(ctx, d.name))
			}
		}
	}
	return err
}

// Kept returns the pool that open opens on a database of URL or URLWith. The pool stays open for the next test that has
// the database and asks for the same key, which says everything that distinguishes pools: a new session costs as much
// processor time as a small test. The test gives all connections back, closes nothing and leaves no setting.
func Kept(t testing.TB, url, key string, open func() (*postgres.Pool, error)) *postgres.Pool {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock() // opening connects to nothing
	defer s.mu.Unlock()
	d := s.open[url]
	if d != nil && d.kept[key] != nil {
		return d.kept[key]
	}
	pool, err := open()
	switch {
	case err != nil:
		t.Fatal(err)
	case d == nil: // a database of the test's own
		t.Cleanup(func() { closeInTime(t, pool) })
	default:
		d.kept[key] = pool
	}
	return pool
}

// Companion is what stands beside a database, as a proxy to it does.
type Companion interface {
	io.Closer
	// Forget undoes what a test has done to the companion, and reports whether the test has cut sessions of kept pools.
	Forget() (cut bool)
}

// Beside keeps a companion of a database, as Kept keeps a pool.
func Beside[T Companion](t testing.TB, url, key string, open func() (T, error)) (made T) {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.open[url]
	if d != nil && d.beside[key] != nil {
		made = d.beside[key].(T)
		made.Forget() // what emptied the database, after the last test
		return made
	}
	if made, err = open(); err != nil {
		t.Fatal(err)
	}
	if d == nil {
		t.Cleanup(func() { _ = made.Close() })
	} else {
		d.beside[key] = made
	}
	return made
}

// empty makes a database like a new one. An error says why it cannot.
func (s *server) empty(ctx context.Context, d *database) error {
	if err := d.rest(ctx); err != nil {
		return err
	}
	conn, release, err := s.session(ctx, d)
	if err != nil {
		return err
	}
	defer release()
	if err := endSessions(ctx, conn, d.kept); err != nil {
		return err
	}
	var differs string
	if err := conn.QueryRow(ctx, unlike, pgx.QueryExecModeExec).Scan(&differs); err != nil {
		return err
	}
	if differs != "" {
		return fmt.Errorf("the test has changed more than rows: %s", differs)
	}
	if d.emptying == "" {
		if err := conn.QueryRow(ctx, emptying, pgx.QueryExecModeExec).Scan(&d.emptying); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, d.emptying, pgx.QueryExecModeSimpleProtocol)
	return err
}

// session is one with the rights of our role: of a kept pool, if there is one.
func (s *server) session(ctx context.Context, d *database) (conn *pgx.Conn, release func(), err error) {
	for _, pool := range d.kept {
		if pool.Raw().Config().ConnConfig.User == s.admin.Config().ConnConfig.User {
			c, err := pool.Raw().Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c.Conn(), c.Release, nil
		}
	}
	if conn, err = pgx.Connect(ctx, s.dsn(d.name)); err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close(ctx) }, nil
}

// rest undoes what a test has set in the sessions of kept pools, closes the sessions that are too many, and forgets a pool
// without sessions: it was closed, or a new one costs no more.
func (d *database) rest(ctx context.Context) error {
	for _, c := range d.beside {
		if c.Forget() {
			for _, pool := range d.kept {
				pool.Reset()
			}
		}
	}
	kept := 0
	for key, pool := range d.kept {
		idle := pool.Raw().AcquireAllIdle(ctx)
		var err error
		for _, conn := range idle {
			if kept++; kept > sessionsKept {
				_ = conn.Conn().Close(ctx) // Released, it leaves the pool.
			} else {
				_, failed := conn.Exec(ctx, "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; DISCARD SEQUENCES; "+
					"SELECT pg_advisory_unlock_all(); UNLISTEN *", pgx.QueryExecModeSimpleProtocol)
				err = errors.Join(err, failed)
			}
			conn.Release()
		}
		if err != nil {
			return err
		}
		if stat := pool.Stat(); stat.Idle+stat.InUse == 0 {
			pool.Close()
			delete(d.kept, key)
		}
	}
	return nil
}

// endSessions ends what a killed process of the test has left, and returns when the database has no session but those of
// kept pools, by their names, and those are idle.
func endSessions(ctx context.Context, conn *pgx.Conn, kept map[string]*postgres.Pool) error {
	const others = `
SELECT count(pg_terminate_backend(pid)) FILTER (WHERE application_name <> ALL ($1)),
       count(*) FILTER (WHERE application_name = ANY ($1) AND state <> 'idle')
  FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	names := []string{}
	for _, pool := range kept {
		names = append(names, pool.Raw().Config().ConnConfig.RuntimeParams["application_name"])
	}
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		var left, busy int
		if err := conn.QueryRow(ctx, others, pgx.QueryExecModeExec, names).Scan(&left, &busy); err != nil {
			return err
		}
		if left == 0 && busy == 0 {
			return nil
		}
		if time.Since(began) > sessionsGone {
			return fmt.Errorf("%d sessions of the test do not end, %d do not come to rest", left, busy)
		}
	}
}

// prepareSQL runs what a kind of database has beyond the schema. It is not noted as a change, and its rows are kept.
func (s *server) prepareSQL(ctx context.Context, name, sql string) error {
	conn, err := pgx.Connect(ctx, s.dsn(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err = conn.Exec(ctx, sql); err == nil && s.recycles {
		_, err = conn.Exec(ctx, keepsSeeds)
	}
	return err
}
