package devpg_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/devpg"
)

func TestDocker(t *testing.T) {
	t.Parallel()

	t.Run("RunsWhereAnEngineAnswers", func(t *testing.T) {
		t.Parallel()
		var lines []string
		s, err := devpg.Start(t.Context(), devpg.Options{Only: devpg.FromDocker, Log: func(format string,
			args ...any) {
			lines = append(lines, fmt.Sprintf(format, args...))
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Stop()) })
		require.Equal(t, devpg.FromDocker, s.Source)
		require.Contains(t, lines[0], "from a container of postgres:17")
		require.Equal(t, "off", query(t, s.URL, "SHOW fsync"))
		require.ErrorContains(t, s.Restart("fast"), "cannot be restarted")
		durable := start(t, devpg.Options{Only: devpg.FromDocker, Durable: true})
		require.Equal(t, "on", query(t, durable.URL, "SHOW fsync"))
	})

	t.Run("IsPassedOverQuicklyWithoutARegistry", func(t *testing.T) {
		t.Parallel()
		engine := httptest.NewServer(registrylessEngine())
		t.Cleanup(engine.Close)
		_, _ = askDocker(t, engine.Listener.Addr()) // the first builds the program
		took, said := askDocker(t, engine.Listener.Addr())
		require.Contains(t, said, "an engine answers, but has no postgres:17 and cannot pull it")
		require.Contains(t, said, "no such host")
		require.Less(t, took, devpg.PullQuiet) // in fact at once
	})

	t.Run("IsPassedOverWhenItDoesNotAnswer", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp4", "127.0.0.1:0") // takes connections, by the kernel, and says nothing
		require.NoError(t, err)
		t.Cleanup(func() { _ = silent.Close() })
		took, said := askDocker(t, silent.Addr())
		require.Contains(t, said, "no engine answers within 2s")
		require.Less(t, took, 3*devpg.EngineAnswers)
	})
}

// registrylessEngine answers like a Docker engine that has no image and whose
// registry cannot be reached.
func registrylessEngine() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/_ping"):
			fmt.Fprint(w, "OK")
		case strings.HasSuffix(path, "/info"):
			fmt.Fprint(w, `{"ID":"test","OperatingSystem":"test","ServerVersion":"27.0"}`)
		case strings.HasSuffix(path, "/images/create"):
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"message":"Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io: `+
				`no such host"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"no such image"}`)
		}
	})
}

// askDocker has a process with an environment of its own look for a container at the engine at addr.
func askDocker(t *testing.T, addr net.Addr) (took time.Duration, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=docker", "DOCKER_HOST=tcp://"+addr.String(),
		"TESTCONTAINERS_RYUK_DISABLED=false",
		"HOME="+t.TempDir()) // no ~/.testcontainers.properties of the user's
	for _, cache := range []string{"GOCACHE", "GOMODCACHE"} { // which are below the home
		dir, err := exec.CommandContext(t.Context(), "go", "env", cache).Output()
		require.NoError(t, err)
		cmd.Env = append(cmd.Env, cache+"="+strings.TrimSpace(string(dir)))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	first, rest, _ := strings.Cut(string(out), "\n")
	took, err = time.ParseDuration(first + "ms")
	require.NoError(t, err, string(out))
	return took, rest
}
