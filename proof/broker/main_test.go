//go:build brokers

package broker_test

import (
	"cmp"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	_ "example.com/payonce/internal/broker/kafka"
	_ "example.com/payonce/internal/broker/kinesis"
	_ "example.com/payonce/internal/broker/rabbitmq"
	_ "example.com/payonce/internal/broker/sqs"
	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/process"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "only-for-tests"); err != nil {
			panic(err)
		}
	}
	world.Main(m)
}

// stage is a folder and a group of processes that end with the test.
func stage(t testing.TB) *process.Stage {
	t.Helper()
	s, err := process.NewStage("payonce-broker")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Strike(t.Failed())) })
	return s
}

func open(t testing.TB, url string) brokertest.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// kills is how often a server is killed while it is published to: once, and in the night BROKER_KILLS times.
func kills(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("BROKER_KILLS"), "1"))
	require.NoError(t, err)
	return n
}
