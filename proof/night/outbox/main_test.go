package outbox_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
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
	disorder     = relays.Disorder
	change       = relays.Change
	discard      = slog.New(slog.DiscardHandler)
)

var errAway = errors.New("connection refused")

// gathered is the value of a counter without labels.
func gathered(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
