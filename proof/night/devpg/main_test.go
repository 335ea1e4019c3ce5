package devpg_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/devpg"
)

// A process with another environment is this test binary, with a role.
const roleVar = "DEVPG_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "" {
		os.Exit(m.Run())
	}
	begin := time.Now() // of role docker: it says what it thinks of the engine, and how long that took
	_, err := devpg.Start(context.Background(), devpg.Options{Only: devpg.FromDocker})
	fmt.Printf("%d\n%v\n", time.Since(begin).Milliseconds(), err)
}

// start starts a server, and stops it at the end of the test.
func start(t *testing.T, o devpg.Options) *devpg.Server {
	t.Helper()
	o.Log = t.Logf
	s, err := devpg.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func query(t *testing.T, url, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
