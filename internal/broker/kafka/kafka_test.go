//go:build brokers || kafka

package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openAt(t testing.TB, url string) brokertest.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// TestContract has few failures of a handler: each is followed by the pause of production.
func TestContract(t *testing.T) {
	t.Parallel()
	brokertest.Suite{
		Server: "Kafka", TooLarge: 2 << 20, Failures: 2, // it deduplicates one producer's own retries only
		Open: openAt,
		Place: func(t testing.TB) brokertest.Place {
			at := newServer(t)
			return brokertest.Place{URL: at.url(), Raw: at.raw, Stop: at.stop, Kill: at.stop, Start: at.start}
		},
	}.Run(t)
}

func TestOpenRejectsWrongKafkaSettings(t *testing.T) {
	t.Parallel()
	brokertest.RequireRejected(t, broker.Open, map[string]string{
		"kafka://a:1/topic?acks=0":           `unknown setting "acks"`,
		"kafka://u:secret@a:1?sasl=kerberos": "sasl must be",
		"kafka://a:1?partitions=many":        "partitions must be a number",
		"kafka://a:1?replicas=many":          "replicas must be a number",
	})
}

// server is kfake, which keeps its log in a folder.
type server struct {
	dir     string
	port    int
	cluster *kfake.Cluster
}

func newServer(t testing.TB) *server {
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	p := &server{dir: t.TempDir(), port: int(at.Port())}
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

func (p *server) start(t testing.TB) {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(p.port),
		kfake.DataDir(p.dir),
		kfake.DefaultNumPartitions(3),
	)
	require.NoError(t, err)
	p.cluster = cluster
}

func (p *server) stop() { p.cluster.Close() }

func (p *server) url() string { return fmt.Sprintf("kafka://127.0.0.1:%d/payonce.events", p.port) }

func (p *server) raw(t testing.TB, body string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", p.port)))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(
		t,
		client.ProduceSync(t.Context(), &kgo.Record{Topic: "payonce.events", Value: []byte(body)}).FirstErr(),
	)
}

// TestLongAnswersOfKafkaAreNotRead: the client has a limit of its own, a hundred megabytes without one of ours.
func TestLongAnswersOfKafkaAreNotRead(t *testing.T) {
	t.Parallel()
	b, err := open("kafka://127.0.0.1:1/payonce", broker.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	require.EqualValues(t, answerMax, b.producer.OptValue(kgo.BrokerMaxReadBytes))
	require.EqualValues(t, fetchMax, b.producer.OptValue(kgo.FetchMaxBytes))
	require.Less(t, fetchMax, answerMax)
}

func TestExamineKafkaWithoutItsTopic(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	for range 2 {
		st, err := broker.Examine(t.Context(), p.url())
		require.NoError(t, err)
		require.True(t, st.Missing, "to ask does not make it")
		require.Equal(t, "Kafka, 1 brokers", st.Reached)
	}
	b := openAt(t, p.url()+"?partitions=3")
	require.NoError(t, b.Publish(t.Context(), []outbox.Envelope{brokertest.Event("ord_1", 1)})[0])
	st, err := broker.Examine(t.Context(), p.url())
	require.NoError(t, err, "beside the service")
	require.Equal(t, "topic payonce.events: 3 partitions, 1 replicas", st.Stream)
	require.Empty(t, append(st.Loses, st.Differs...))
	require.False(t, st.Missing)
	st, err = broker.Examine(t.Context(), p.url()+"?partitions=6")
	require.NoError(t, err)
	require.Equal(t, []string{"it has 3 partitions, not 6"}, st.Differs)
}

// TestExamineAKafkaThatIsAway: it is bounded by the context.
func TestExamineAKafkaThatIsAway(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	p.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := broker.Examine(ctx, p.url())
	require.Error(t, err)
}
