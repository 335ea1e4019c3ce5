package broker

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/flood"
)

// TestLongAnswersOfSQSAreNotHeld: a response of 300 MB is an error, after a part of it.
func TestLongAnswersOfSQSAreNotHeld(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "only-for-tests")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "only-for-tests")
	server := flood.Start(t, http.StatusOK)
	b, err := openSQS(t.Context(), "sqs://sqs.eu-central-1.amazonaws.com/1/payonce?consumers=a&endpoint="+server.URL, Options{})
	require.NoError(t, err)
	errs := b.Publish(t.Context(), []outbox.Envelope{{ID: "ord_1-1", Type: "order.created", Subject: "ord_1", TenantID: "ten_a", Data: json.RawMessage(`{}`)}})
	require.Error(t, errs[0])
	require.NotErrorIs(t, errs[0], outbox.ErrPermanent)
	require.Less(t, server.Sent(), int64(sqsAttempts*80<<20), "it was read for longer than it may be")
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
