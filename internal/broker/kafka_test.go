package broker

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/payonce/internal/outbox"
)

var kafkaAdapter = adapter{
	name: "Kafka", tooLarge: 2 << 20, // deduplicates one producer's own retries only
	place: func(t testing.TB) place { return newKafka(t) },
}

func TestOpenRejectsWrongKafkaSettings(t *testing.T) {
	t.Parallel()
	requireRejected(t, map[string]string{
		"kafka://a:1/topic?acks=0":           `unknown setting "acks"`,
		"kafka://u:secret@a:1?sasl=kerberos": "sasl must be",
		"kafka://a:1?partitions=many":        "partitions must be a number",
		"kafka://a:1?replicas=many":          "replicas must be a number",
	})
}

// kafkaPlace is kfake, which keeps its log in a folder.
type kafkaPlace struct {
	dir     string
	port    int
	cluster *kfake.Cluster
}

func newKafka(t testing.TB) *kafkaPlace {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &kafkaPlace{dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	require.NoError(t, l.Close())
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

func (p *kafkaPlace) start(t testing.TB) {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(p.port),
		kfake.DataDir(p.dir),
		kfake.DefaultNumPartitions(3),
	)
	require.NoError(t, err)
	p.cluster = cluster
}

func (p *kafkaPlace) stop() { p.cluster.Close() }

func (p *kafkaPlace) url() string { return fmt.Sprintf("kafka://127.0.0.1:%d/payonce.events", p.port) }

func (p *kafkaPlace) raw(t testing.TB, body string) {
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
	b, err := openKafka("kafka://127.0.0.1:1/payonce", Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	require.EqualValues(t, kafkaAnswerMax, b.producer.OptValue(kgo.BrokerMaxReadBytes))
	require.EqualValues(t, kafkaFetchMax, b.producer.OptValue(kgo.FetchMaxBytes))
	require.Less(t, kafkaFetchMax, kafkaAnswerMax)
}

func TestExamineKafkaWithoutItsTopic(t *testing.T) {
	t.Parallel()
	p := newKafka(t)
	for range 2 {
		st, err := Examine(t.Context(), p.url())
		require.NoError(t, err)
		require.True(t, st.Missing, "to ask does not make it")
	}
	b := open(t, p.url()+"?partitions=3")
	require.NoError(t, b.Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1)})[0])
	st, err := Examine(t.Context(), p.url()+"?partitions=6")
	require.NoError(t, err)
	require.Equal(t, []string{"it has 3 partitions, not 6"}, st.Differs)
}
