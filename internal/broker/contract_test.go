package broker

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/brokertest"
)

// TestContract holds the adapter to what the relay and the consumers rely on.
func TestContract(t *testing.T) {
	t.Parallel()
	brokertest.Suite{
		Server: "JetStream", Deduplicates: true, TooLarge: 2 << 20,
		Open: func(t testing.TB, url string) brokertest.Broker { return open(t, url) },
		Place: func(t testing.TB) brokertest.Place {
			at := newNATS(t)
			return brokertest.Place{URL: at.url(), Raw: at.raw, Stop: at.stop, Kill: at.stop, Start: at.start}
		},
	}.Run(t)
}

func (p *natsPlace) raw(t testing.TB, body string) {
	nc, err := nats.Connect(p.url())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("payonce.foreign", []byte(body)))
	require.NoError(t, nc.Flush())
}
