package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/process"
	"example.com/payonce/testkit/world"
)

// TestIdle: a process with nothing to do asks the database at most five times a second and holds at most four
// connections, although it is asked for its readiness and served a burst of requests before.
//
// BEGIN, COMMIT and the pings of connections count. What is not counted is the preparation of a statement, once for each
// connection, and the setting of a statement's scope, which is sent with it in one round trip and one transaction: the
// log of the server, which has a line for that, too, shows nearly twice as many.
func TestIdle(t *testing.T) {
	t.Parallel()
	const (
		perSecond, connections = 5, 4
		measured               = 20 * time.Second
	)
	w := world.New(t)
	proxy, err := pgproxy.Start(named(t, w.URL, "idle"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	p := w.Process("DATABASE_URL=" + proxy.URL())
	world.Together(24, func(int) int {
		order := p.Order()
		return p.Pay(order, order, "pm_card_visa").Status
	})
	held := func() int {
		return w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'idle'`)
	}
	require.Greater(t, held(), connections, "the burst has used no more")
	w.Until("it is idle", func() bool { return held() <= connections })

	proxy.Seen()
	proxy.RoundTrips()
	for began := time.Now(); time.Since(began) < measured; time.Sleep(2 * time.Second) {
		require.Equal(t, http.StatusOK, p.Get("/readyz").Status)
		require.LessOrEqual(t, held(), connections)
	}
	statements, byName := 0.0, map[string]int{}
	for _, s := range proxy.Seen() {
		first, _, _ := strings.Cut(s, "\n")
		byName[strings.TrimPrefix(first, "-- name: ")]++
		statements++
	}
	require.LessOrEqual(t, statements/measured.Seconds(), float64(perSecond), byName)
	require.Positive(t, byName["LoopsDue :many"], byName)
	t.Logf("%.1f statements and %.1f round trips a second, %d connections: %v", statements/measured.Seconds(),
		float64(proxy.RoundTrips())/measured.Seconds(), held(), byName)
}

// named is a database's URL whose sessions have a name.
func named(t *testing.T, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestTwentyIdleReplicas are started at once, on a server with 100 connections for clients, and do nothing. Each becomes
// ready and stays it, and no loop of any fails.
func TestTwentyIdleReplicas(t *testing.T) {
	t.Parallel()
	const replicas, slots = 20, 100
	server := dbtest.Server(t, func(o *devpg.Options) { o.MaxConnections = slots })
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	all := make([]*world.Process, replicas)
	world.Together(replicas, func(i int) int {
		all[i] = w.Process()
		return 0
	})
	held := func() int {
		return w.Count(`SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'process%'`)
	}
	began := held()
	w.Until("they are idle", func() bool { return held() <= 3*replicas }) // Each has one more for its readiness.
	for range 5 {
		for i, p := range all {
			require.Equal(t, http.StatusOK, p.Get("/readyz").Status, "%d: %s", i, process.LastLines(p.Log(), 40))
		}
		// On a busy machine probes and loops open connections in excess, which are closed after ten seconds without use.
		// TestIdle allows a process none.
		world.Eventually(t, 20*time.Second, "they have four connections each at most",
			func() bool { return held() <= 4*replicas })
		time.Sleep(time.Second)
	}
	for _, p := range all {
		p.RequireNotLogged("loop failed")
	}
	t.Logf("%d connections after the start, %d in the end", began, held())
}
