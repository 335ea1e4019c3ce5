package broker

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/port"
)

// natsPlace is a NATS server that can be stopped and started with its store.
type natsPlace struct {
	dir       string
	port      int
	configure []func(*server.Options)
	server    *server.Server
}

func newNATS(t testing.TB, configure ...func(*server.Options)) *natsPlace {
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	p := &natsPlace{dir: t.TempDir(), port: int(at.Port()), configure: configure}
	p.start(t)
	t.Cleanup(p.stop)
	return p
}

func (p *natsPlace) start(t testing.TB) {
	o := &server.Options{
		Host: "127.0.0.1", Port: p.port, JetStream: true, StoreDir: p.dir, NoSigs: true, NoLog: true, SyncAlways: true,
	}
	for _, configure := range p.configure {
		configure(o)
	}
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(startWithin))
	p.server = s
}

func (p *natsPlace) stop() { stop(p.server) }

func (p *natsPlace) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

func (p *natsPlace) url() string { return "nats://" + p.addr() }
