package outbox_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/relays"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const tenant = relays.Tenant

type (
	brokerLog = relays.Log
	publisher = relays.Publisher
)

var (
	event        = relays.Event
	appendEvents = relays.Append
	exec         = relays.Exec
	count        = relays.Count
	drain        = relays.Drain
	makeDue      = relays.MakeDue
	disorder     = relays.Disorder
	change       = relays.Change
	discard      = slog.New(slog.DiscardHandler)
)

// failing returns a pool whose statements can be made to fail.
func failing(t *testing.T) (*postgres.Pool, *pgproxy.Proxy) {
	t.Helper()
	proxy, err := pgproxy.Start(dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, proxy
}

// failOnce has the next such statement fail, and requires that do reports that.
func failOnce(t *testing.T, proxy *pgproxy.Proxy, query string, do func() error) {
	t.Helper()
	text := "-- name: " + query + " "
	fault := proxy.Fail(text, 1)
	err := do()
	require.True(t, fault.HasFired(), "%s was not sent", query)
	require.ErrorContains(t, err, pgproxy.FailureText(text))
}

// sent is how often a query was sent since it was last asked.
func sent(proxy *pgproxy.Proxy, query string) int { return among(proxy.Seen(), query) }

func among(statements []string, query string) (n int) {
	for _, s := range statements {
		n += strings.Count(s, "-- name: "+query+" ")
	}
	return n
}
