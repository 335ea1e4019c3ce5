package devpg

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocal(t *testing.T) {
	t.Parallel()

	t.Run("IsTheSameOnEveryMachine", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal, MaxConnections: 33, Settings: map[string]string{"work_mem": "5MB"}})
		for setting, want := range map[string]string{
			"server_encoding": "UTF8", "lc_collate": "C", "timezone": "UTC", "log_timezone": "UTC",
			"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "33", "work_mem": "5MB",
			"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
		} {
			if setting == "lc_collate" { // no longer a setting since 16
				require.Equal(t, want, query(t, s.URL, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'"))
				continue
			}
			require.Equal(t, want, query(t, s.URL, "SHOW "+setting), setting)
		}
	})

	t.Run("WritesAsInProductionWhenAsked", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal, Durable: true})
		for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
			require.Equal(t, "on", query(t, s.URL, "SHOW "+setting), setting)
		}
	})

	t.Run("IsInMemoryUnlessItMustLast", func(t *testing.T) {
		t.Parallel()
		acc, err := unprivileged()
		require.NoError(t, err)
		where := map[bool]string{}
		for _, durable := range []bool{false, true} {
			s, _ := start(t, Options{Only: FromLocal, Durable: durable})
			where[durable] = filepath.Dir(filepath.Dir(query(t, s.URL, "SHOW data_directory")))
		}
		require.Equal(t, acc.tempRoots()[0], where[true])
		require.Equal(t, cmp.Or(acc.memoryRoot(), where[true]), where[false])
		s, _ := start(t, Options{Only: FromLocal, Durable: true, Memory: true})
		require.Equal(t, "on", query(t, s.URL, "SHOW fsync"))
		require.Equal(t, where[false], filepath.Dir(filepath.Dir(query(t, s.URL, "SHOW data_directory"))))
	})

	t.Run("WantsThePassword", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal})
		u, err := url.Parse(s.URL)
		require.NoError(t, err)
		u.User = url.UserPassword("postgres", "guess")
		_, err = serverVersion(t.Context(), u.String())
		require.ErrorContains(t, err, "password authentication failed")
	})

	t.Run("SaysWhyItDidNotStart", func(t *testing.T) {
		t.Parallel()
		_, err := Start(t.Context(), Options{Only: FromLocal, Settings: map[string]string{"shared_buffers": "plenty"}})
		require.ErrorContains(t, err, `invalid value for parameter "shared_buffers": "plenty"`)
	})

	t.Run("TellsATakenPortFromOtherTrouble", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal})
		p := s.impl.(*process)
		require.NoError(t, s.Halt("fast"))
		squatter, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.port))
		require.NoError(t, err)
		require.ErrorIs(t, s.Resume(), errPortTaken)
		require.NoError(t, squatter.Close())
		require.NoError(t, s.Resume())
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"immediate", "fast"} {
		t.Run(mode+"KeepsDataAndPort", func(t *testing.T) {
			t.Parallel()
			s, _ := start(t, Options{Only: FromLocal, Durable: true})
			run(t, s.URL, "CREATE TABLE kept AS SELECT 'yes' AS answer")
			before := s.PID()
			require.NoError(t, s.Restart(mode))
			require.NotEqual(t, before, s.PID())
			require.Equal(t, "yes", query(t, s.URL, "SELECT answer FROM kept")) // the same URL: the same port
		})
	}

	t.Run("MendsAServerThatSomebodyKilled", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal, Durable: true})
		run(t, s.URL, "CREATE TABLE kept AS SELECT 'yes' AS answer")
		server, err := os.FindProcess(s.PID())
		require.NoError(t, err)
		require.NoError(t, server.Kill())
		<-s.impl.(*process).exited
		require.NoError(t, s.Restart("immediate"))
		require.Equal(t, "yes", query(t, s.URL, "SELECT answer FROM kept"))
	})

	t.Run("KnowsTwoModes", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, Options{Only: FromLocal})
		require.ErrorContains(t, s.Restart("smart"), `no shutdown mode is called "smart"`)
		require.ErrorContains(t, s.Resume(), "is running")
	})
}

func TestKeptFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicTemp(t), "kept")
	first, _ := start(t, Options{Only: FromLocal, Dir: dir, Durable: true})
	run(t, first.URL, "CREATE TABLE kept AS SELECT 'yes' AS answer")

	_, err := Start(t.Context(), Options{Only: FromLocal, Dir: dir})
	require.ErrorContains(t, err, "another process runs a server in "+dir)

	require.NoError(t, first.Stop())
	second, _ := start(t, Options{Only: FromLocal, Dir: dir, Durable: true})
	require.Equal(t, "yes", query(t, second.URL, "SELECT answer FROM kept"))
	require.NoError(t, second.Stop())

	// A program of another major version cannot read the data, and is not tried.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("14\n"), 0o600))
	_, err = Start(t.Context(), Options{Only: FromLocal, Dir: dir})
	require.ErrorContains(t, err, "want version 14, which the data in "+dir+" is of")
}

// As root with a private TMPDIR and HOME, which is how root usually is, the
// server's user can enter neither.
func TestRootWithAPrivateTMPDIR(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("we are not root: no user to drop to")
	}
	private := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(private, 0o700))
	t.Setenv("TMPDIR", private)
	s, lines := start(t, Options{Only: FromLocal})
	require.False(t, strings.HasPrefix(s.impl.(*process).dir, private))
	require.Regexp(t, "as user (postgres|nobody)", lines[0])
	require.Equal(t, "1", query(t, s.URL, "SELECT 1"))
}

// publicTemp is a temporary folder that the server's user can enter. The test's
// own may not be one.
func publicTemp(t *testing.T) string {
	t.Helper()
	acc, err := unprivileged()
	require.NoError(t, err)
	roots := acc.tempRoots()
	require.NotEmpty(t, roots)
	dir, err := os.MkdirTemp(roots[0], "devpg-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
