package dbtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// This binary is run again as another test process, which makes databases on
// the server that TEST_DATABASE_URL names, or, without one, starts its own.
const roleVar = "DBTEST_TEST_ROLE"

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNew(t *testing.T) {
	t.Parallel()
	needsDatabases(t)

	t.Run("IsMigratedAndEmpty", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		require.NoError(t, pool.CheckSchema(t.Context()))
		var orders int
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&orders))
		require.Zero(t, orders)
	})

	t.Run("IsNobodyElses", func(t *testing.T) {
		t.Parallel()
		one, other := dbtest.New(t), dbtest.New(t)
		_, err := one.Raw().Exec(t.Context(), "CREATE TABLE mine ()")
		require.NoError(t, err)
		_, err = other.Raw().Exec(t.Context(), "TABLE mine")
		require.ErrorContains(t, err, `relation "mine" does not exist`)
	})

	t.Run("IsGoneAfterATestThatChangesTheSchema", func(t *testing.T) {
		t.Parallel()
		var url string
		t.Run("Inner", func(t *testing.T) {
			url = dbtest.URL(t)
			run(t, url, "CREATE TABLE mine ()")
		})
		_, err := pgx.Connect(t.Context(), url)
		require.ErrorContains(t, err, "does not exist")
	})
}

// TestRecycled: what a test has written, set or left running is not there for the next test of its database.
func TestRecycled(t *testing.T) {
	t.Parallel()
	needsDatabases(t)
	const kind = "INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_seed', 'seed', decode(repeat('00', 32), 'hex'))" // no other test's
	var first string
	t.Run("Writes", func(t *testing.T) {
		first = dbtest.URLWith(t, kind)
		pool := kept(t, first)
		for _, sql := range []string{
			"INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_a', 'a', decode(repeat('00', 32), 'hex'))",
			"INSERT INTO stock (tenant_id, sku, available) VALUES ('ten_a', 'a', 1)", // part: checkouts
			"DELETE FROM goose_db_version WHERE version_id > 0",
			"SELECT nextval('outbox_events_seq_seq'), nextval('outbox_events_seq_seq')",
			"SET lock_timeout = 1",
			"SELECT pg_advisory_lock(7)",
			"LISTEN left_over",
			"SET SESSION AUTHORIZATION payonce_service",
		} {
			_, err := pool.Raw().Exec(t.Context(), sql)
			require.NoError(t, err, sql)
		}
		left, err := pgx.Connect(t.Context(), first) // and is not closed, as by a killed process
		require.NoError(t, err)
		_, err = left.Exec(t.Context(), "BEGIN; INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_b', 'b', decode(repeat('00', 32), 'hex'))")
		require.NoError(t, err)
	})
	t.Run("FindsNothing", func(t *testing.T) {
		url := dbtest.URLWith(t, kind)
		require.Equal(t, first, url)
		pool := kept(t, url)
		require.NoError(t, pool.CheckSchema(t.Context()))
		for sql, want := range map[string]string{
			"SELECT string_agg(id, ' ') FROM tenants":                                                                  "ten_seed",
			"SELECT (session_user = usename)::text FROM pg_stat_activity WHERE pid = pg_backend_pid()":                 "true",
			"SELECT count(*)::text FROM pg_listening_channels()":                                                       "0",
			"SELECT count(*)::text FROM stock":                                                                         "0", // part: checkouts
			"SELECT nextval('outbox_events_seq_seq')::text":                                                            "1",
			"SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND objid = 7":                            "0",
			"SELECT (current_setting('lock_timeout') <> '1ms')::text":                                                  "true",
			"SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'": "0",
		} {
			var got string
			require.NoError(t, pool.Raw().QueryRow(t.Context(), sql).Scan(&got), sql)
			require.Equal(t, want, got, sql)
		}
	})
	t.Run("ReservedSessions", func(t *testing.T) { // A pool of a server holds more sessions than its largest pool shows.
		for range 2 {
			t.Run("AreKept", func(t *testing.T) {
				url := dbtest.URLWith(t, kind)
				require.Equal(t, first, url)
				require.NoError(t, dbtest.Kept(t, url, "reserved", func() (*postgres.Pool, error) {
					return postgres.Open(context.Background(), url, postgres.Options{Name: "reserved"})
				}).Ping(t.Context()))
			})
		}
	})
	const addColumn = "ALTER TABLE tenants ADD COLUMN leaked int"
	for name, change := range map[string]string{
		"ChangedByItsOwner": "SET ROLE payonce_owner; " + addColumn,
		"ChangedUnguarded":  "SET session_replication_role = replica; " + addColumn,
		"LargeObjectMade":   "SELECT lo_create(0)",
		"SchemaChanged":     "ALTER TABLE tenants DISABLE TRIGGER USER",
		"RightsChanged":     "GRANT SELECT ON tenants TO PUBLIC",
		"DatabaseGranted":   "DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO PUBLIC', current_database()); END $$",
		"DatabaseSet":       "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 1', current_database()); END $$",
		"StatisticsChanged": "INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_c', 'c', decode(repeat('00', 32), 'hex')); ANALYZE tenants",
	} {
		t.Run(name, func(t *testing.T) {
			var changed string
			t.Run("Inner", func(t *testing.T) {
				changed = dbtest.URLWith(t, kind)
				run(t, changed, change)
			})
			_, err := pgx.Connect(t.Context(), changed)
			require.ErrorContains(t, err, "does not exist")
		})
	}
	t.Run("PoolClosed", func(t *testing.T) {
		var closed string
		t.Run("Inner", func(t *testing.T) {
			closed = dbtest.URLWith(t, kind)
			kept(t, closed).Close()
		})
		require.Equal(t, closed, dbtest.URLWith(t, kind))
		require.NoError(t, kept(t, closed).Ping(t.Context()))
	})
	t.Run("Companion", func(t *testing.T) {
		beside := func(t *testing.T, url string) *companion {
			return dbtest.Beside(t, url, "companion", func() (*companion, error) { return &companion{}, nil })
		}
		for _, cut := range []bool{false, true} {
			var url string
			var c *companion
			t.Run("Inner", func(t *testing.T) {
				url = dbtest.URLWith(t, kind)
				require.NoError(t, kept(t, url).Ping(t.Context()))
				c = beside(t, url)
				c.cut, c.forgot = cut, false
			})
			require.True(t, c.forgot)
			t.Run("Next", func(t *testing.T) {
				require.Equal(t, url, dbtest.URLWith(t, kind))
				require.Same(t, c, beside(t, url))
				require.Equal(t, !cut, kept(t, url).Stat().Idle > 0)
			})
		}
	})
	t.Run("SessionsOfACrowd", func(t *testing.T) { // would take the server's slots from tests that run
		crowd := func(t *testing.T) *postgres.Pool {
			url := dbtest.URLWith(t, kind)
			return dbtest.Kept(t, url, "crowd", func() (*postgres.Pool, error) {
				return postgres.Open(context.Background(), url, postgres.Options{Name: "crowd", MaxConn: 22})
			})
		}
		t.Run("AreMany", func(t *testing.T) {
			pool := crowd(t)
			var held []*pgxpool.Conn
			for range pool.Conns() {
				conn, err := pool.Raw().Acquire(t.Context())
				require.NoError(t, err)
				held = append(held, conn)
			}
			for _, conn := range held {
				conn.Release()
			}
			require.Greater(t, pool.Stat().Idle, int32(8))
		})
		t.Run("AreClosed", func(t *testing.T) { require.LessOrEqual(t, crowd(t).Stat().Idle, int32(8)) })
	})
}

// TestCopy: a copy has the rows and the sequences of one moment, and no others. Both databases can be used from then on.
func TestCopy(t *testing.T) {
	t.Parallel()
	const (
		tenant = "INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_%s', '%[1]s', decode(repeat('00', 32), 'hex'))"
		apiKey = "INSERT INTO api_keys (tenant_id, key_hash, hint) VALUES ('ten_%s', sha256('%[1]s'), 'hint')"
	)
	exec := func(pool *postgres.Pool, name string, statements ...string) error {
		var sql []string
		for _, s := range statements {
			sql = append(sql, fmt.Sprintf(s, name))
		}
		_, err := pool.Raw().Exec(t.Context(), strings.Join(sql, "; "), pgx.QueryExecModeSimpleProtocol)
		return err
	}
	names := func(pool *postgres.Pool) (list string) {
		require.NoError(t, pool.Raw().QueryRow(t.Context(),
			"SELECT concat_ws(' ', string_agg(name, ' ' ORDER BY name), nextval('outbox_events_seq_seq')) FROM tenants").Scan(&list))
		return list
	}
	url := dbtest.URLWith(t, fmt.Sprintf(tenant, "seed"))
	first := kept(t, url)
	require.NoError(t, exec(first, "before", "DELETE FROM tenants WHERE id = 'ten_seed' OR id = '%s'", tenant, apiKey,
		"SELECT setval('outbox_events_seq_seq', 41) WHERE '%s' <> ''"))
	copied := kept(t, dbtest.Copy(t, url))
	require.NoError(t, exec(first, "later", tenant, apiKey))
	require.Equal(t, "before 42", names(copied))
	require.Equal(t, "before later 42", names(first))
	require.NoError(t, copied.CheckSchema(t.Context()))
	require.ErrorContains(t, exec(copied, "later", apiKey), "violates foreign key", "its rules hold")

	// A tenant and its key come into being together.
	busy := dbtest.Kept(t, url, "several sessions", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), url, postgres.Options{Name: "several sessions", MaxConn: 2})
	})
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := exec(busy, strconv.Itoa(i), tenant, apiKey); err != nil {
				stopped <- err
				return
			}
		}
		stopped <- nil
	}()
	time.Sleep(20 * time.Millisecond)
	copied = kept(t, dbtest.Copy(t, url))
	stop()
	require.NoError(t, <-stopped)
	var tenants, keys int
	require.NoError(t, copied.Raw().QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM tenants), (SELECT count(*) FROM api_keys)").Scan(&tenants, &keys))
	require.Greater(t, tenants, 2)
	require.Equal(t, tenants, keys)
}

// companion is one that has cut sessions or not.
type companion struct{ cut, forgot bool }

func (c *companion) Forget() bool { c.forgot = true; return c.cut }
func (*companion) Close() error   { return nil }

// needsDatabases leaves a test that looks at what its subtests have left, and that -short has left out.
func needsDatabases(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs PostgreSQL")
	}
}

// kept is a pool of one session, with the rights of the server's superuser.
func kept(t *testing.T, url string) *postgres.Pool {
	t.Helper()
	return dbtest.Kept(t, url, "one session", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), url, postgres.Options{Name: "one session", MaxConn: 1})
	})
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t)
	require.Equal(t, "0", ask(t, url, "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'"))
	require.NoError(t, dbtest.Migrated(t, url).CheckSchema(t.Context()))
}

func TestServerIsOursToRestart(t *testing.T) {
	t.Parallel()
	s := dbtest.Server(t)
	require.Equal(t, "on", ask(t, s.URL, "SHOW fsync"))
	require.NoError(t, s.Restart("immediate"))
	require.Equal(t, "1", ask(t, s.URL, "SELECT '1'"))
}

func TestProcessesShareAServer(t *testing.T) {
	t.Parallel()
	s := dbtest.Server(t)
	run(t, s.URL, "CREATE DATABASE payonce_test_1000_left_by_a_killed_test")
	run(t, s.URL, "CREATE DATABASE payonce_template_of_an_old_branch IS_TEMPLATE true")
	run(t, s.URL, "COMMENT ON DATABASE payonce_template_of_an_old_branch IS 'payonce tests, last used 2001-01-01'")
	run(t, s.URL, "CREATE DATABASE somebody_elses")
	run(t, s.URL, "CREATE DATABASE payonce_template_half_made") // no comment: another process may still be making it

	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() { output(t, true, "TEST_DATABASE_URL="+s.URL, "PAYONCE_PG=") })
	}
	processes.Wait()

	names := ask(t, s.URL, "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE datname <> "+
		"'postgres' AND datname !~ '^template'")
	require.Regexp(t, `^payonce_template_[0-9a-f]{12} payonce_template_half_made somebody_elses$`, names)
}

func TestAnotherProcess(t *testing.T) {
	switch os.Getenv(roleVar) {
	case "another":
		for range 3 {
			require.NoError(t, dbtest.New(t).CheckSchema(t.Context()))
		}
	case "sleepless": // leaves its server to the kernel and the janitor
		fmt.Println("url:", dbtest.URL(t))
		os.Exit(0)
	default:
		t.Skip("this is run by other tests, in a process of its own")
	}
}

func TestRoleThatMayNotCreateDatabases(t *testing.T) {
	t.Parallel()
	s := dbtest.Server(t)
	run(t, s.URL, "CREATE ROLE weak LOGIN PASSWORD 'weak'")
	weak := strings.Replace(s.URL, s.URL[len("postgres://"):strings.Index(s.URL, "@")], "weak:weak", 1)
	require.Contains(t, output(t, false, "TEST_DATABASE_URL="+weak, "PAYONCE_PG="), "may not create databases")
}

func TestShortSkipsAloud(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.v", "-test.run=^TestEmptyHasNoSchema$")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "-short: skipped, because it needs PostgreSQL")
}

func TestNothingOutlivesAProcessThatExits(t *testing.T) {
	t.Parallel()
	out := outputAs(t, "sleepless", true, "TEST_DATABASE_URL=", "PAYONCE_PG=local")
	_, rest, found := strings.Cut(out, "url: ")
	require.True(t, found, out)
	url, _, _ := strings.Cut(rest, "\n")
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	}, 15*time.Second, 50*time.Millisecond)
}

func output(t *testing.T, succeeds bool, env ...string) string {
	return outputAs(t, "another", succeeds, env...)
}

func outputAs(t *testing.T, role string, succeeds bool, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnotherProcess$", "-test.v")
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	out, err := cmd.CombinedOutput()
	if succeeds != (err == nil) {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func ask(t *testing.T, url, sql string) (answer string) {
	t.Helper()
	conn := connect(t, url)
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	require.NoError(t, err)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
