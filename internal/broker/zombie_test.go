package broker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest" // part: consumers
)

// TestZombieRelay: a relay that stood still past its lease sends what another has
// sent long ago, and so does one whose acknowledgement was lost. No fence at the
// broker keeps it out: JetStream's expected sequence would turn away both, and the
// second of them would hold its aggregate up for ever. So every repetition is taken,
// inside the window of the broker's own dedupe and after it; what keeps it harmless
// is that it follows the first occurrences, and that consumers know its id.
func TestZombieRelay(t *testing.T) {
	t.Parallel()
	at := newNATS(t)
	alive, zombie := open(t, at.url()), open(t, at.url())
	first := envelope("ord_1", 1)
	publish(t, zombie, first) // and its acknowledgement was lost
	publish(t, alive, first)
	publish(t, alive, envelope("ord_1", 2), envelope("ord_2", 1)) // on the same subject
	publish(t, zombie, first)

	nc, err := nats.Connect(at.url())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	require.EqualValues(t, 3, stored(t, stream), "inside the window a repetition is acknowledged and not stored")

	shorter := stream.CachedInfo().Config
	shorter.Duplicates = 100 * time.Millisecond
	_, err = js.UpdateStream(t.Context(), shorter)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		publish(t, zombie, first)
		return stored(t, stream) >= 4 // more, if the publish was itself repeated after the window
	}, 30*time.Second, 50*time.Millisecond, "after the window it is stored again")
	publish(t, alive, envelope("ord_1", 3))

	// part: consumers {
	r := read(t, alive, "ledger", nil)
	r.Await(t, 4)
	brokertest.RequireOrder(t, r.Messages())
	require.Greater(t, r.Distinct()[outbox.EventID("ord_1", 1)], 1, "the repetition has the id of the event")
	// part: consumers }
}

func stored(t *testing.T, stream jetstream.Stream) uint64 {
	t.Helper()
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	return info.State.Msgs
}
