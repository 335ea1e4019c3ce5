package broker

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/brokertest"
)

// place is a broker under test.
type place interface {
	url() string
	raw(t testing.TB, body string) // publishes a message that our relay did not send
	stop()
	start(t testing.TB)
}

// adapter is a broker to be tested.
type adapter struct {
	name     string
	place    func(testing.TB) place
	dedupes  bool
	tooLarge int // bytes of a message that it rejects
}

// adapters has one line for each broker, like schemes.
var adapters = []adapter{
	jetStreamAdapter,
	kafkaAdapter, // part: kafka
	sqsAdapter,   // part: sqs
}

var jetStreamAdapter = adapter{
	name: "JetStream", dedupes: true, tooLarge: 2 << 20,
	place: func(t testing.TB) place { return newNATS(t) },
}

// TestContract holds every adapter to what the relay and the consumers rely on.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			brokertest.Suite{
				Server: a.name, Deduplicates: a.dedupes, TooLarge: a.tooLarge,
				Open: func(t testing.TB, url string) brokertest.Broker { return open(t, url) },
				Place: func(t testing.TB) brokertest.Place {
					at := a.place(t)
					return brokertest.Place{URL: at.url(), Raw: at.raw, Stop: at.stop, Kill: at.stop, Start: at.start}
				},
			}.Run(t)
		})
	}
}

func (p *natsPlace) raw(t testing.TB, body string) {
	nc, err := nats.Connect(p.url())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("payonce.foreign", []byte(body)))
	require.NoError(t, nc.Flush())
}
