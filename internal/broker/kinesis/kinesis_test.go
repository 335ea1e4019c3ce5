//go:build brokers || kinesis

package kinesis

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/flood"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "only-for-tests"); err != nil {
			panic(err)
		}
	}
	m.Run()
}

func openAt(t testing.TB, url string) broker.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// The contract at a server, and what happens when shards are split, is in proof/broker. // part: proof

func TestOpenRejectsWrongKinesisSettings(t *testing.T) {
	t.Parallel()
	brokertest.RequireRejected(t, broker.Open, map[string]string{
		"kinesis://":                     form,
		"kinesis://eu-central-1":         form,
		"kinesis://eu-central-1/":        form,
		"kinesis://eu-central-1/a/b":     form,
		"kinesis:///payonce":             form,
		"kinesis://eu-central-1/a?shard": `unknown setting "shard"`,
	})
}

// TestKinesisRequests: as many records, and as many bytes, as one may have.
func TestKinesisRequests(t *testing.T) {
	t.Parallel()
	parts := func(sizes ...int) (lengths []int) {
		var events []outbox.Envelope
		var bodies [][]byte
		var waiting []int
		for i, size := range sizes {
			events = append(events, outbox.Envelope{Subject: "0123456789"})
			bodies = append(bodies, make([]byte, size))
			waiting = append(waiting, i)
		}
		for _, part := range partsOf(events, bodies, waiting) {
			lengths = append(lengths, len(part))
		}
		return lengths
	}
	require.Empty(t, parts())
	require.Equal(t, []int{500, 1}, parts(make([]int, 501)...))
	require.Equal(t, []int{2}, parts(bytesMax/2-10, bytesMax/2-10))
	require.Equal(t, []int{1, 1}, parts(bytesMax/2-10, bytesMax/2-9), "the keys count")
	require.Equal(t, []int{1, 1}, parts(bytesMax+1, 1))
}

func TestKinesisRejectsKeysThatItCannotHave(t *testing.T) {
	t.Parallel()
	b := openAt(t, "kinesis://eu-central-1/payonce?endpoint=http://127.0.0.1:1")
	for _, subject := range []string{"", strings.Repeat("x", 257)} {
		require.ErrorIs(t, b.Publish(t.Context(), []outbox.Envelope{brokertest.Event(subject, 1)})[0], outbox.ErrPermanent)
	}
}

// TestLongAnswersOfKinesisAreNotHeld: a response of 300 MB is an error, after a part of it.
func TestLongAnswersOfKinesisAreNotHeld(t *testing.T) {
	t.Parallel()
	server := flood.Start(t, http.StatusOK)
	b := openAt(t, "kinesis://eu-central-1/payonce?endpoint="+server.URL)
	errs := b.Publish(t.Context(), []outbox.Envelope{{ID: "ord_1-1", Type: "order.created", Subject: "ord_1", TenantID: "ten_a", Data: json.RawMessage(`{}`)}})
	require.Error(t, errs[0])
	require.NotErrorIs(t, errs[0], outbox.ErrPermanent)
	require.Less(t, server.Sent(), int64(attempts*80<<20), "it was read for longer than it may be")
}
