package notifier_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/logs"
)

// TestMissingKeyUsesUpNoAttempt: while DATA_KEY lacks the key of a tenant's secret, its deliveries wait, however often
// they are tried, and no other tenant's do. They are sent when the key is back.
func TestMissingKeyUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	with := func(c byte) *postgres.Pool {
		box, err := sealed.New(base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{c}, 31), '!')))
		require.NoError(t, err)
		pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConn: 4, Box: box})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	right, wrong := with('a'), with('b')
	b := setupIn(t, right)
	const other = "tnt_other"
	require.NoError(t, right.TenantCreate(t.Context(), db.TenantCreateParams{ID: other, Name: "B", FingerprintSecret: secret}))
	require.NoError(t, notifier.SetEndpoint(t.Context(), wrong, other, b.server.URL,
		"whsec_"+base64.StdEncoding.EncodeToString(secret)))
	for i := range 20 {
		b.publish(fmt.Sprintf("ord_%d", i))
	}
	var log logs.Buffer
	registry := prometheus.NewRegistry()
	start := func() {
		b.notifier = notifier.New(wrong, notifier.Options{AllowPrivate: true, Log: log.Logger(slog.LevelInfo),
			Metrics: notifier.NewMetrics(registry)})
	}
	start()
	b.publishTo(other, "ord_other")
	leased, err := b.notifier.RunOnce(t.Context())
	require.NoError(t, err)
	require.Less(t, leased, 20, "it has not tried each")
	require.Len(t, b.requests(), 1, "the other tenant's")
	b.due()
	b.runOnce(0)
	require.Equal(t, 1, strings.Count(log.String(), "deliveries are postponed"), log.String())
	require.Contains(t, log.String(), "DATA_KEY has no key with the id "+right.Box().KeyIDs()[0])
	require.EqualValues(t, leased-1, postponed(t, registry))

	for range 12 { // more often than a delivery is attempted
		b.due()
		registry = prometheus.NewRegistry()
		start()
		_, err := b.notifier.RunOnce(t.Context())
		require.NoError(t, err)
	}
	count := func(condition string) (n int) {
		t.Helper()
		require.NoError(t, right.Raw().QueryRow(t.Context(), "SELECT count(*) FROM webhook_deliveries WHERE "+condition).Scan(&n))
		return n
	}
	require.Equal(t, 20, count("status = 'pending' AND attempts = 0"))
	require.NotZero(t, count("status = 'pending' AND last_error LIKE '%DATA_KEY has no key%'"))

	b.due()
	b.notifier = notifier.New(right, notifier.Options{AllowPrivate: true})
	for sent := 0; sent < 20; {
		n, err := b.notifier.RunOnce(t.Context())
		require.NoError(t, err)
		sent += n
	}
	require.Equal(t, 20, count("tenant_id = '"+tenant+"' AND status = 'delivered' AND attempts = 1"))
}

// TestChangedSecretUsesUpNoAttempt: one that was copied from another row, for example by a restore of a single table.
func TestChangedSecretUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	box, err := sealed.New(base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{'a'}, 31), '!')))
	require.NoError(t, err)
	pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConn: 4, Box: box})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := setupIn(t, pool)
	dbtest.Unguarded(t, pool, "UPDATE webhook_secrets SET secret = $1",
		box.Seal(sealed.WebhookSecret("another", notifier.OperatorEndpoint("another")+" 1"), secret))
	b.publish("ord_1")
	b.runOnce(1)
	status, lastError, attempts, pause := b.row()
	require.Equal(t, "pending", status)
	require.Zero(t, attempts)
	require.Contains(t, lastError, "belongs to another row")
	require.InDelta(t, 60, pause, 30)
}

func postponed(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "postponed" {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return -1
}
