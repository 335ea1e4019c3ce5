package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/process"
	"example.com/payonce/testkit/world"
)

func TestServeRefusesAnOlderSchema(t *testing.T) {
	t.Parallel()
	// serve stops what serves as soon as it does.
	serve := func(env map[string]string) (int, string) {
		ctx, stop := context.WithTimeout(t.Context(), world.Patience)
		defer stop()
		errs := &stopsAt{said: []byte(`"msg":"serving"`), stop: stop}
		return run(ctx, []string{"serve"}, settings(env), io.Discard, errs), errs.log.String()
	}
	empty := map[string]string{"DATABASE_URL": dbtest.Empty(t)}
	code, errs := serve(empty)
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	require.Contains(t, errs, "the database is empty")
	require.Contains(t, errs, "api migrate")
	require.Contains(t, errs, "AUTO_MIGRATE=true")

	var out bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"migrate"}, settings(empty), &out, &out), out.String())
	require.Contains(t, out.String(), "applied")
	code, errs = serve(
		map[string]string{"DATABASE_URL": empty["DATABASE_URL"], "BROKER_URL": "embedded:" + t.TempDir()},
	)
	require.Zero(t, code, errs)
	require.Contains(t, errs, `"msg":"serving"`)

	code, errs = serve(
		map[string]string{
			"DATABASE_URL": dbtest.Empty(t),
			"AUTO_MIGRATE": "true",
			"BROKER_URL":   "embedded:" + t.TempDir(),
		},
	)
	require.Zero(t, code, errs)
	require.Contains(t, errs, `"msg":"migrated"`)
	require.Contains(t, errs, `"msg":"serving"`)
}

// TestDatabaseOfOtherMigrations: the migrations were once numbered up to 56, and a
// database of theirs cannot be brought up to date.
func TestDatabaseOfOtherMigrations(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	_, err := pool.Raw().Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id IN (7, 8, 9)`)
	require.NoError(t, err)
	_, err = pool.Raw().Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (56, true)`)
	require.NoError(t, err)
	for _, command := range []string{"serve", "migrate", "migrate status"} {
		var out bytes.Buffer
		env := map[string]string{"DATABASE_URL": pool.Raw().Config().ConnString()}
		require.Equal(t, 1, run(t.Context(), strings.Fields(command), settings(env), &out, &out), command)
		require.Contains(t, out.String(), "other migrations", command)
		require.Contains(t, out.String(), "version 56", command)
		require.NotContains(t, out.String(), "AUTO_MIGRATE", command)
	}
}

// stopsAt is a log whose program is stopped when it says something.
type stopsAt struct {
	mu   sync.Mutex
	log  bytes.Buffer
	said []byte
	stop context.CancelFunc
}

func (s *stopsAt) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(line, s.said) {
		s.stop()
	}
	return s.log.Write(line)
}

func TestServeNamesTheAddressItCannotHave(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	dsn := dbtest.URL(t)
	for _, name := range []string{"HTTP_ADDR", "ADMIN_ADDR"} {
		var out, errs bytes.Buffer
		env := map[string]string{
			"DATABASE_URL": dsn,
			name:           taken.Addr().String(),
			"BROKER_URL":   "embedded:" + t.TempDir(),
		}
		require.Equal(t, 1, run(t.Context(), nil, settings(env), &out, &errs))
		require.Contains(t, errs.String(), "api: "+name+": cannot listen")
	}
}

// TestSIGTERM: requests in progress are completed, /readyz tells the load balancer to send
// no more, then the listener is closed, and the process exits with status 0.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process("STRIPE_TIMEOUT=10s", "IDEMPOTENCY_LEASE=31s") // Stripe may take as long as this test does
	require.Equal(t, http.StatusOK, p.Do("GET", "/readyz", "").Status)
	order := p.Order()
	moving := w.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	told := make(chan world.Answer, 1)
	go func() { told <- p.Pay("k", order, "pm_card_visa") }()
	world.WaitHeld(t, moving)
	p.Signal(syscall.SIGTERM)
	w.Until("it says that it is not ready", func() bool {
		return p.Do("GET", "/readyz", "").Status == http.StatusServiceUnavailable
	})
	moving.Release()
	a := <-told
	require.NoError(t, a.Err)
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Zero(t, p.Wait(world.Patience))
	require.Error(t, p.Do("GET", "/readyz", "").Err, "no new connection is accepted")
	p.RequireLogged(`"msg":"stopped"`)
	w.RequireChargedOnce(order)
}

// TestDrainDelay: for that time after SIGTERM only /readyz is different, so that a load balancer
// that has not noticed loses no request. New connections are accepted, and the loops still work.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process("DRAIN_DELAY=8s")
	order := p.Order()
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	w.Until("it says that it is not ready", func() bool {
		return p.Do("GET", "/readyz", "", "Connection: close").Status == http.StatusServiceUnavailable
	})
	require.Less(t, time.Since(began), 8*time.Second, "it says so at once")
	a := p.Pay("late", order, "pm_card_visa", "Connection: close")
	if time.Since(began) < 8*time.Second { // else the machine was too slow for this test, and it shows less
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, http.StatusOK, p.Do("GET", "/healthz", "", "Connection: close").Status)
	}
	require.Zero(t, p.Wait(world.Patience))
	require.GreaterOrEqual(t, time.Since(began), 8*time.Second)
	require.Error(t, p.Do("GET", "/readyz", "").Err)
	require.Zero(t, w.Count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL"), "the relay has stopped early")
	require.Regexp(t, `"msg":"request",.*"route":"/readyz","status":503`, process.LastLines(p.Log(), 40))
	p.RequireNotLogged(`"level":"ERROR"`, "a deployment is no error")
}

// TestProfilesOfTheProcess: its admin address shows memory and the command line to this machine, and
// not to a page of another site that has pointed its name here.
func TestProfilesOfTheProcess(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process()
	get := func(path, host string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Admin+path, nil)
		require.NoError(t, err)
		r.Host = host
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	require.Equal(t, http.StatusOK, get("/debug/pprof/heap", ""))
	require.Equal(t, http.StatusForbidden, get("/debug/pprof/heap", "rebound.example"))
	require.Equal(t, http.StatusOK, get("/metrics", "rebound.example"), "scrapers use any name")
}

// TestLog: every line about a payment can be found by its ids, and none holds
// what must not be in a log: a secret, a key of a caller, a client secret.
func TestLog(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p := w.Process("LOG_LEVEL=debug")
	order := p.Order()
	// a good part of the intent, its client secret too
	w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Cut, Bytes: 900})
	answer := p.Pay("callers-own-key", order, "pm_card_visa")
	require.Equal(t, http.StatusAccepted, answer.Status)
	p.PayUntilFinal("callers-own-key", order, "pm_card_visa")
	declined := p.Order()
	require.Equal(t, http.StatusPaymentRequired, p.Pay("callers-own-key-2", declined, "pm_card_chargeDeclined").Status)
	waits := p.Pay("callers-own-key-3", p.Order(), "pm_card_threeDSecure2Required")
	require.Equal(t, "requires_action", waits.Get("status"))
	require.NotEmpty(t, waits.Get("next_action", "client_secret"), "the customer's browser needs it")
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait(world.Patience))

	for _, secret := range []string{"callers-own-key", "_secret_", w.Tenant.APIKey, stripesim.DefaultKey,
		world.WebhookSecret} {
		p.RequireNotLogged(secret)
	}
	found := false
	for line := range strings.SplitSeq(p.Log(), "\n") {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "not JSON: %s", line)
		if entry["msg"] == "payment finished" {
			found = true
			for _, name := range []string{"payment_id", "tenant_id", "key_hash", "recovery_point", "lease_token",
				"request_id"} {
				require.Contains(t, entry, name, line)
			}
		}
	}
	require.True(t, found)
}
