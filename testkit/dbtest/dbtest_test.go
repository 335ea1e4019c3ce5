package dbtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// This binary is run again as another test process, which makes databases on
// the server that TEST_DATABASE_URL names, or, without one, starts its own.
const roleVar = "DBTEST_TEST_ROLE"

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNew(t *testing.T) {
	t.Parallel()

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

	t.Run("IsGoneAfterTheTest", func(t *testing.T) {
		t.Parallel()
		var url string
		t.Run("Inner", func(t *testing.T) { url = dbtest.URL(t) })
		_, err := pgx.Connect(t.Context(), url)
		require.ErrorContains(t, err, "does not exist")
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
