package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/port"
)

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("AsksTheSourcesInTheOrderOfTheContract", func(t *testing.T) {
		t.Parallel()
		var names []string
		for _, src := range sources {
			names = append(names, src.name)
		}
		require.Equal(t, []string{"url", "docker", "local", "download"}, names)
	})

	t.Run("SaysInOneLineWhichAndWhy", func(t *testing.T) {
		t.Parallel()
		s, lines := start(t, Options{URLVar: "TEST_DATABASE_URL"})
		require.Len(t, lines, 1+strings.Count(strings.Join(lines, "\n"), "downloading"), "%q", lines)
		line := lines[len(lines)-1]
		require.Contains(t, line, "PostgreSQL "+spell(s.Version)+" from ")
		require.Contains(t, line, "url: TEST_DATABASE_URL is not set")
		if s.Source != FromDocker {
			require.Contains(t, line, "docker: ")
		}
		require.NotContains(t, line, "\n")
	})

	t.Run("FailsWithTheFourWaysToMendIt", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Options{Only: FromURL, URLVar: "TEST_DATABASE_URL"})
		require.ErrorContains(t, err, "TEST_DATABASE_URL is not set")
		require.Equal(t, 4, strings.Count(err.Error(), "\n  - "), err)
	})

	t.Run("KnowsNoOtherSource", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Options{Only: "cloud"})
		require.ErrorContains(t, err, `no source is called "cloud"`)
	})
}

func TestURL(t *testing.T) {
	t.Parallel()
	local, _ := start(t, Options{Only: FromLocal})

	t.Run("ComesFirst", func(t *testing.T) {
		t.Parallel()
		s, lines := start(t, Options{URL: local.URL, URLVar: "TEST_DATABASE_URL"})
		require.Equal(t, FromURL, s.Source)
		require.Equal(t, []string{"PostgreSQL " + spell(s.Version) + " from TEST_DATABASE_URL"}, lines)
	})

	t.Run("IsNotOursToStopOrRestart", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{URL: local.URL})
		require.ErrorContains(t, s.Restart("fast"), "not ours to restart")
		require.Zero(t, s.PID())
		require.NoError(t, s.Stop())
		require.Equal(t, "1", query(t, local.URL, "SELECT 1"))
	})

	t.Run("ThatDoesNotAnswerIsNotReplaced", func(t *testing.T) {
		t.Parallel()
		free, err := port.Loopback(t.Context())
		require.NoError(t, err)
		url := fmt.Sprintf("postgres://someone:secret-word@%s/x", free)
		_, err = Start(t.Context(), Options{URL: url, URLVar: "TEST_DATABASE_URL"})
		require.ErrorContains(t, err, "TEST_DATABASE_URL is set, but the server does not answer")
		require.NotContains(t, err.Error(), "secret-word")
	})
}

func TestSupported(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, supported(140020), "PostgreSQL 14.20 is not one of 15 to 18")
	require.NoError(t, supported(150000))
	require.NoError(t, supported(180004))
	require.ErrorContains(t, supported(190000), "not one of")
}

// start starts a server, stops it at the end of the test, and returns what was logged.
func start(t *testing.T, o Options) (s *Server, lines []string) {
	t.Helper()
	o.Log = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s, slices.Clone(lines)
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

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}
