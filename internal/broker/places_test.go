package broker

import (
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// natsPlace is a NATS server that can be stopped and started with its store.
type natsPlace struct {
	dir    string
	port   int
	server *server.Server
}

func newNATS(t testing.TB) *natsPlace {
	p := &natsPlace{dir: t.TempDir(), port: server.RANDOM_PORT}
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

func (p *natsPlace) start(t testing.TB) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: p.port, JetStream: true, StoreDir: p.dir, NoSigs: true, NoLog: true, SyncAlways: true})
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(startWithin))
	p.server, p.port = s, s.Addr().(*net.TCPAddr).Port
}

func (p *natsPlace) stop() { stop(p.server) }

func (p *natsPlace) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.port) }

func (p *natsPlace) raw(t *testing.T, body string) {
	nc, err := nats.Connect(p.url())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("payonce.stranger", []byte(body)))
	require.NoError(t, nc.Flush())
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
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(p.port), kfake.DataDir(p.dir), kfake.DefaultNumPartitions(3))
	require.NoError(t, err)
	p.cluster = cluster
}

func (p *kafkaPlace) stop() { p.cluster.Close() }

func (p *kafkaPlace) url() string { return fmt.Sprintf("kafka://127.0.0.1:%d/payonce.events", p.port) }

func (p *kafkaPlace) raw(t *testing.T, body string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", p.port)))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "payonce.events", Value: []byte(body)}).FirstErr())
}
