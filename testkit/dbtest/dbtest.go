package dbtest

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/parallel"
)

const (
	startWithin   = 10 * time.Minute // a first run may download PostgreSQL; go test has a deadline of its own
	cleanupWithin = time.Minute      // a test that holds a connection for longer has lost it
	settingWithin = 10 * time.Second // for a session to read a setting that was reloaded
	sessionsMax   = 300              // tests of pools and of crowds, several at once
	gcPercent     = 400              // the heap of a test process is small, and collecting it takes a sixth of its time
	parallelMin   = 8                // tests wait for leases, databases and processes more than for a processor
)

// New returns a pool on a fresh, migrated database.
func New(t testing.TB) *postgres.Pool {
	t.Helper()
	return open(t, URL(t))
}

// URL returns the DSN of an empty, migrated database, for a test that opens its
// own pools or starts processes.
func URL(t testing.TB) string {
	t.Helper()
	return URLWith(t, "")
}

// URLWith returns the DSN of an empty, migrated database in which sql has been run, by its owner: what all tests of a
// kind want beside the schema. The database may have been another test's that wanted the same.
func URLWith(t testing.TB, sql string) string {
	t.Helper()
	notInShort(t)
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	d := s.take(sql)
	if d == nil {
		d = &database{prepared: sql, kept: map[string]*postgres.Pool{}, beside: map[string]Companion{}}
		if d.name, err = s.create(t.Context(), true); err == nil && sql != "" {
			err = s.prepareSQL(t.Context(), d.name, sql)
		}
		if err != nil {
			t.Fatalf("make a database: %v", err)
		}
		s.mu.Lock()
		s.open[s.dsn(d.name)] = d
		s.mu.Unlock()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
		defer cancel()
		for _, pool := range d.kept {
			if n := inUse(ctx, pool); n > 0 {
				t.Errorf("%d connections were not given back to the pool: close rows, end transactions, release connections", n)
			}
		}
		dropped, err := s.giveBack(ctx, d)
		if err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
		if dropped != nil {
			t.Logf("the database is not used again: %v", dropped)
		}
	})
	return s.dsn(d.name)
}

// Fresh returns a pool on a migrated database that no test has had, for tests of plans and of what they read: the files
// of a table keep the places of deleted rows.
func Fresh(t testing.TB) *postgres.Pool {
	t.Helper()
	return open(t, unrecycled(t, true))
}

// Empty returns the DSN of a database without a schema, for tests of migrations.
func Empty(t testing.TB) string {
	t.Helper()
	return unrecycled(t, false)
}

// Server returns a server of the test's own, which writes as in production, for
// a test that restarts it. Only a server on this machine can be restarted, so
// whatever TEST_DATABASE_URL says, the binaries of this machine serve, or
// downloaded ones.
func Server(t testing.TB, change ...func(*devpg.Options)) *devpg.Server {
	t.Helper()
	notInShort(t)
	s, err := Start(append([]func(*devpg.Options){func(o *devpg.Options) { o.Durable, o.Memory, o.Log = true, true, t.Logf }}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
}

// Start starts a server on this machine for several tests, which may be in memory. The caller stops the server, after
// all tests (Main).
func Start(change ...func(*devpg.Options)) (*devpg.Server, error) {
	o := options(nil)
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return own(ctx, o)
}

// Migrated makes the roles of the service in the database at url, migrates it as their owner and returns a pool on it,
// with the rights of url.
func Migrated(t testing.TB, url string) *postgres.Pool {
	t.Helper()
	if _, err := devpg.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return open(t, url)
}

// SetStandbys names the synchronous standbys of pool's server, and returns when a session of pool has read the setting.
// Other processes read it a little later, the checkpointer among them, by whose word commits wait.
func SetStandbys(t testing.TB, pool *postgres.Pool, names string) {
	t.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + names + "'", "SELECT pg_reload_conf()"} {
		if _, err := pool.Raw().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	now := "not read"
	for began := time.Now(); now != names; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > settingWithin {
			t.Fatalf("the standbys of a session are %q, not %q, after %s", now, names, settingWithin)
		}
		if err := pool.Raw().QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&now); err != nil {
			t.Fatal(err)
		}
	}
}

// Main runs the tests of a package, at least eight at once unless -parallel says otherwise, then what else there is to
// clean up, and then stops its server.
func Main(m *testing.M, after ...func()) { os.Exit(Tests(m, after...).Run()) }

// Tests are the tests of a package as Main runs them, for a TestMain that does more: when Run returns, the server and the
// pools that waited for other tests are gone.
func Tests(m *testing.M, after ...func()) interface{ Run() int } { return tests{m, after} }

type tests struct {
	*testing.M
	after []func()
}

func (t tests) Run() int {
	parallel.AtLeast(parallelMin)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	code := t.M.Run()
	for _, f := range t.after {
		f()
	}
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		code = max(code, 1)
	}
	return code
}

func open(t testing.TB, url string) *postgres.Pool {
	t.Helper()
	return Kept(t, url, "dbtest", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), url, postgres.Options{Name: "dbtest"})
	})
}

// inUse waits until all connections of a pool are idle, and returns how many are not by the end of ctx.
func inUse(ctx context.Context, pool *postgres.Pool) int32 {
	for ; pool.Stat().InUse > 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
	}
	return pool.Stat().InUse
}

// closeInTime closes the pool. Close waits for every connection to be given
// back, so one that never is would otherwise hang the test run.
func closeInTime(t testing.TB, pool *postgres.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(cleanupWithin):
		t.Errorf("%d connections were not given back to the pool", pool.Stat().InUse)
	}
}

func unrecycled(t testing.TB, migrated bool) string {
	t.Helper()
	notInShort(t)
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	name, err := s.create(t.Context(), migrated)
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWithin)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.dsn(name)
}

func notInShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: skipped, because it needs PostgreSQL")
	}
}

func options(log func(string, ...any)) devpg.Options {
	return devpg.Options{
		URL:            os.Getenv("TEST_DATABASE_URL"),
		URLVar:         "TEST_DATABASE_URL",
		Only:           os.Getenv("PAYONCE_PG"),
		MaxConnections: sessionsMax,
		Log:            log,
	}
}

// own starts a server on this machine, from whichever binaries there are.
func own(ctx context.Context, o devpg.Options) (*devpg.Server, error) {
	if o.Only == devpg.FromDownload {
		return devpg.Start(ctx, o)
	}
	o.Only = devpg.FromLocal
	s, localErr := devpg.Start(ctx, o)
	if localErr == nil {
		return s, nil
	}
	o.Only = devpg.FromDownload
	s, err := devpg.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w\n%w", localErr, err)
	}
	return s, nil
}

// shared is the server of this test process, started by the first test that
// needs one.
var shared = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	s, err := start(ctx)
	if err == nil {
		running = s
	}
	return s, err
})

var running *server // nil until shared has succeeded; Main reads it when all tests are over

func stopShared() error {
	if running == nil {
		return nil
	}
	return running.stop()
}
