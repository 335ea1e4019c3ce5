//go:build brokers || sqs

package sqs

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
	goleak.VerifyTestMain(m)
}

func openAt(t testing.TB, url string) brokertest.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestContract(t *testing.T) {
	t.Parallel()
	brokertest.Suite{
		Server: "SQS", Deduplicates: true, TooLarge: 300 << 10,
		Open: openAt,
		Place: func(t testing.TB) brokertest.Place {
			at := newServer(t)
			return brokertest.Place{URL: at.url(), Raw: at.raw, Stop: at.stop, Kill: at.stop, Start: at.start}
		},
	}.Run(t)
}

func TestOpenRejectsWrongSQSSettings(t *testing.T) {
	t.Parallel()
	brokertest.RequireRejected(t, broker.Open, map[string]string{
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce": "?consumers= is missing",
		"sqs://host": "sqs://host/account/prefix",
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce?consumer=a": `unknown setting "consumer"`,
	})
}

// TestLongAnswersOfSQSAreNotHeld: a response of 300 MB is an error, after a part of it.
func TestLongAnswersOfSQSAreNotHeld(t *testing.T) {
	t.Parallel()
	server := flood.Start(t, http.StatusOK)
	b, err := open(t.Context(), "sqs://sqs.eu-central-1.amazonaws.com/1/payonce?consumers=a&endpoint="+server.URL, broker.Options{})
	require.NoError(t, err)
	errs := b.Publish(t.Context(), []outbox.Envelope{{ID: "ord_1-1", Type: "order.created", Subject: "ord_1", TenantID: "ten_a", Data: json.RawMessage(`{}`)}})
	require.Error(t, errs[0])
	require.NotErrorIs(t, errs[0], outbox.ErrPermanent)
	require.Less(t, server.Sent(), int64(attempts*80<<20), "it was read for longer than it may be")
}

func TestExamineSQSQueues(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		attribute, value string
		loses, differs   string
	}{
		"Redrive":      {attribute: "RedrivePolicy", value: "{}", loses: "the queue of ledger has a redrive policy, which breaks the order"},
		"Standard":     {attribute: "FifoQueue", value: "false", loses: "the queue of ledger is not FIFO"},
		"ContentBased": {attribute: "ContentBasedDeduplication", value: "true", differs: "the queue of ledger has content-based deduplication"},
	} {
		p := newServer(t)
		p.attributes = map[string]string{row.attribute: row.value}
		st, err := broker.Examine(t.Context(), p.url())
		require.NoError(t, err, name)
		require.Equal(t, "2 FIFO queues", st.Stream)
		require.Contains(t, append(st.Loses, ""), row.loses, name)
		require.Contains(t, append(st.Differs, ""), row.differs, name)
		require.Len(t, append(st.Loses, st.Differs...), 2, "of both queues")
	}
}

// TestExamineQueues: queues that are as they should be, and queues that are away, which the context bounds.
func TestExamineQueues(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	require.NoError(t, openAt(t, p.url()).Publish(t.Context(), []outbox.Envelope{brokertest.Event("ord_1", 1)})[0])
	st, err := broker.Examine(t.Context(), p.url())
	require.NoError(t, err, "beside the service")
	require.Equal(t, broker.State{Reached: "SQS", Stream: "2 FIFO queues"}, st)
	p.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = broker.Examine(ctx, p.url())
	require.Error(t, err)
}
