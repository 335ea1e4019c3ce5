package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/world"
)

// requireUnavailable sends what writes, and asks for readiness: each response is a 503 that says when to try again.
func requireUnavailable(t *testing.T, p *world.Process, key string) {
	t.Helper()
	for name, a := range map[string]world.Answer{
		"order": p.Post("/v1/orders", key, newOrder),
		"ready": p.Get("/readyz"),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.Status, "%s: %s", name, a)
		require.NotEmpty(t, a.Header.Get("Retry-After"), "%s: %s", name, a)
	}
}

func ready(p *world.Process) func() bool {
	return func() bool { return p.Get("/readyz").Status == http.StatusOK }
}

// TestReadOnlyServer: a server that accepts no writes any more, as a managed one whose disk is full, is a database that
// is away, and the service is back when it accepts them again.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t)
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	p := w.Process()
	order := p.Order()
	operator, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	defer func() { _ = operator.Close(context.WithoutCancel(t.Context())) }()
	readOnly := func(on string) {
		for _, sql := range []string{`ALTER SYSTEM SET default_transaction_read_only = ` + on, `SELECT pg_reload_conf()`} {
			_, err := operator.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
	}
	readOnly("on")
	try := 0
	w.Until("a write is refused", func() bool {
		try++
		a := p.Post("/v1/orders", fmt.Sprint("try-", try), newOrder)
		require.Contains(t, []int{http.StatusCreated, http.StatusServiceUnavailable}, a.Status, a)
		return a.Status == http.StatusServiceUnavailable
	})
	for _, key := range []string{"1", "2", "3"} {
		requireUnavailable(t, p, key)
	}
	require.Equal(t, http.StatusServiceUnavailable, p.Pay("pay", order, "pm_card_visa").Status)
	readOnly("off")
	w.Until("the service is back", ready(p))
	require.Equal(t, http.StatusCreated, p.PayUntilFinal("pay", order, "pm_card_visa").Status)
	w.RequireChargedOnce(order)
	p.RequireNotLogged(`"status":500`)
}

// TestFailover: the primary is lost and its standby promoted. A process that has both in its DATABASE_URL finds the new
// primary by itself. One that starts with a standby alone waits, and serves once it is promoted.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := dbtest.Server(t)
	dbtest.Migrated(t, primary.URL)
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	w := world.On(t, primary.URL)
	both := w.Process("DATABASE_URL=" + hosts(t, primary, standby))
	order, other := both.Order(), both.Order()
	paid := both.Pay("before", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status, paid)

	old, err := pgxpool.New(t.Context(), standby.URL)
	require.NoError(t, err)
	defer old.Close()
	w.Until("the standby has all of it", func() bool {
		var there bool
		err := old.QueryRow(t.Context(), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`,
			w.Text(`SELECT pg_current_wal_lsn()`)).Scan(&there)
		return err == nil && there
	})
	t.Run("DoctorOfAStandby", func(t *testing.T) {
		found := map[string]finding{}
		out, _, status := play(t, w, []string{"doctor", "-json"}, "DATABASE_URL="+standby.URL)
		require.Equal(t, 1, status, out)
		for _, c := range findings(t, out) {
			found[c.ID] = c
		}
		require.Equal(t, "bad", found["database.primary"].Status)
		require.Contains(t, found["database.primary"].Detail, "the server is read-only: a standby")
		require.Equal(t, "ok", found["database.schema"].Status, found["database.schema"].Detail)
	})
	waiting := make(chan *world.Process, 1)
	go func() { waiting <- w.Process("DATABASE_URL=" + standby.URL) }()

	require.NoError(t, primary.Halt("immediate"))
	for _, key := range []string{"1", "2", "3"} {
		requireUnavailable(t, both, key)
	}
	require.Empty(t, waiting, "it serves from a standby")
	var promoted bool
	require.NoError(t, old.QueryRow(t.Context(), `SELECT pg_promote()`).Scan(&promoted))
	require.True(t, promoted)

	w.Until("the service has found the new primary", ready(both))
	again := both.Pay("before", order, "pm_card_visa")
	require.Equal(t, paid.Body, again.Body)
	require.True(t, again.Replayed())
	require.Equal(t, http.StatusCreated, both.PayUntilFinal("after", other, "pm_card_visa").Status)
	alone := <-waiting
	alone.RequireLogged("the database is not ready; trying again")
	alone.RequireLogged("read-only")
	require.Equal(t, http.StatusOK, alone.Get("/v1/orders/"+other).Status)
	require.Equal(t, 1, w.Sim.ChargeCount(order))
	require.Equal(t, 1, w.Sim.ChargeCount(other))
	both.RequireNotLogged(`"status":500`)
}

// TestLocalCommitIsNoAnswer: the waits of commits for the synchronous standby are canceled, as by an operator who frees a
// database that hangs. PostgreSQL says that each is committed, and a failover loses it. No client gets an answer that is
// lost with it, neither at first nor when it retries; it gets it when the standby has it.
func TestLocalCommitIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t, func(o *devpg.Options) { o.Settings = map[string]string{"synchronous_commit": "on"} })
	pool := dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	p := w.Process(world.ShortTimes()...)
	order, paid := p.Order(), p.Order()
	final := p.Pay("before", paid, "pm_card_visa")
	require.Equal(t, http.StatusCreated, final.Status, final)
	dbtest.SetStandbys(t, pool, "nobody")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	canceled := make(chan int64, 1)
	go func() {
		var n int64
		for ctx.Err() == nil {
			tag, err := pool.Raw().Exec(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			if err == nil {
				n += tag.RowsAffected()
			}
			time.Sleep(5 * time.Millisecond)
		}
		canceled <- n
	}()
	unknown := []int{http.StatusAccepted, http.StatusConflict, http.StatusServiceUnavailable}
	for try := range 3 {
		a := p.Pay("canceled", order, "pm_card_visa")
		require.Contains(t, unknown, a.Status, "try %d: %s", try, a)
		require.NotEmpty(t, a.Header.Get("Retry-After"), a)
	}
	a := p.Post("/v1/orders", "order", newOrder)
	require.Contains(t, unknown, a.Status, "%s", a)
	require.Positive(t, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'order' AND finished_at IS NOT NULL`),
		"the order is committed here, and can be read")
	again := p.Post("/v1/orders", "order", newOrder)
	require.Contains(t, unknown, again.Status, "%s", again)
	known := p.Pay("before", paid, "pm_card_visa")
	require.Contains(t, unknown, known.Status, "what the standby had before cannot be told from the rest: %s", known)
	feed := p.Get("/v1/events")
	require.Equal(t, http.StatusServiceUnavailable, feed.Status, "positions that a failover takes away would hide events: %s", feed)
	stop()
	require.Positive(t, <-canceled)

	dbtest.SetStandbys(t, pool, "")
	require.Equal(t, http.StatusCreated, p.PayUntilFinal("canceled", order, "pm_card_visa").Status)
	w.Until("the order is answered", func() bool { return p.Post("/v1/orders", "order", newOrder).Status == http.StatusCreated })
	require.Equal(t, final.Body, p.Pay("before", paid, "pm_card_visa").Body)
	w.RequireChargedOnce(order)
	w.RequireChargedOnce(paid)
	p.RequireNotLogged(`"status":500`)
}

// hosts is a connection string with several hosts, as docs/operations.md shows it.
func hosts(t *testing.T, servers ...*devpg.Server) string {
	t.Helper()
	var addresses []string
	u, err := url.Parse(servers[0].URL)
	require.NoError(t, err)
	for _, s := range servers {
		each, err := url.Parse(s.URL)
		require.NoError(t, err)
		addresses = append(addresses, each.Host)
	}
	u.Host = strings.Join(addresses, ",")
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()
	return u.String()
}
