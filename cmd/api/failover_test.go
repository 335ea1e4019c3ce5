package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

const newOrder = `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`

func ready(p *world.Process) func() bool {
	return func() bool { return p.Get("/readyz").Status == http.StatusOK }
}

// TestReadOnlyDatabase: a database that accepts no writes any more, as a standby or a managed server whose disk is full, is
// a database that is away, and the service is back when it accepts them again.
// TestReadOnlyServer in proof/night/api does this to a server of its own, and TestFailover promotes a standby. // part: proof
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process()
	order := p.Order()
	readOnly := func(on string) { // A setting of a role is for sessions that begin.
		w.Exec(`DO $$ BEGIN EXECUTE format('ALTER ROLE payonce_service IN DATABASE %I ` + on + `', current_database()); END $$`)
		w.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'payonce_service'
			AND datname = current_database()`)
	}
	const reset = `RESET default_transaction_read_only`
	t.Cleanup(func() { readOnly(reset) }) // Another test has the database next.
	readOnly(`SET default_transaction_read_only = on`)
	try := 0
	w.Until("a write is refused", func() bool {
		try++
		a := p.Post("/v1/orders", fmt.Sprint("try-", try), newOrder)
		require.Contains(t, []int{http.StatusCreated, http.StatusServiceUnavailable}, a.Status, a)
		return a.Status == http.StatusServiceUnavailable
	})
	for name, a := range map[string]world.Answer{
		"order": p.Post("/v1/orders", "refused", newOrder), "pay": p.Pay("pay", order, "pm_card_visa"), "ready": p.Get("/readyz"),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.Status, "%s: %s", name, a)
		require.NotEmpty(t, a.Header.Get("Retry-After"), "%s: %s", name, a)
	}
	readOnly(reset)
	w.Until("the service is back", ready(p))
	require.Equal(t, http.StatusCreated, p.PayUntilFinal("pay", order, "pm_card_visa").Status)
	w.RequireChargedOnce(order)
	p.RequireNotLogged(`"status":500`)
}

// TestStartWaitsForSlots: processes that start together may find the server's slots taken by those that stop.
func TestStartWaitsForSlots(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	w := world.On(t, dsn)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	// A limit of the database's is that of the server for those who are no superusers.
	name := u.Path[1:]
	w.Exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'slots'`)
	t.Cleanup(func() { w.Exec(`DROP OWNED BY ` + name); w.Exec(`DROP ROLE ` + name) })
	w.Exec(`GRANT ALL ON ALL TABLES IN SCHEMA public TO ` + name)
	w.Exec(`GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ` + name)
	w.Exec(`ALTER ROLE ` + name + ` CONNECTION LIMIT 0`)
	u.User = url.UserPassword(name, "slots")
	ctx, stop := context.WithTimeout(t.Context(), world.Patience)
	defer stop()
	serves := &stopsAt{said: []byte(`"msg":"serving"`), stop: stop}
	waits := &stopsAt{said: []byte("53300"), stop: func() { w.Exec(`ALTER ROLE ` + name + ` CONNECTION LIMIT -1`) }}
	env := map[string]string{
		"DATABASE_URL": u.String(), "BROKER_URL": "embedded:" + t.TempDir(), "DATA_KEY": world.DataKey,
	}
	code := run(ctx, []string{"serve"}, settings(env), io.Discard, io.MultiWriter(waits, serves))
	require.Zero(t, code, serves.log.String())
	require.Contains(t, serves.log.String(), "the database is not ready; trying again")
	require.Contains(t, serves.log.String(), `"msg":"serving"`)
}

// TestRightsTakenAway: a process whose role has lost its rights, as one that serves with a role that was retired, is not
// ready, so a load balancer sends its requests to others. It is ready again as soon as it has them.
func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process()
	require.Equal(t, http.StatusOK, p.Get("/readyz").Status)
	w.Exec(`REVOKE INSERT ON idempotency_keys FROM payonce_service`)
	a := p.Get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a)
	w.Until("the log says why", func() bool { // which is read from a pipe
		return strings.Contains(p.Log(), "may not read and write the service's tables: idempotency_keys")
	})
	w.Exec(`GRANT INSERT ON idempotency_keys TO payonce_service`)
	w.Until("it is ready", ready(p))
}
