package broker

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/flood"
)

var sqsAdapter = adapter{
	name: "SQS", dedupes: true, tooLarge: 300 << 10,
	place: func(t testing.TB) place { return newSQS(t) },
}

func TestOpenRejectsWrongSQSSettings(t *testing.T) {
	t.Parallel()
	requireRejected(t, map[string]string{
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce": "?consumers= is missing",
		"sqs://host": "sqs://host/account/prefix",
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce?consumer=a": `unknown setting "consumer"`,
	})
}

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
		p := newSQS(t)
		p.attributes = map[string]string{row.attribute: row.value}
		st, err := Examine(t.Context(), p.url())
		require.NoError(t, err, name)
		require.Equal(t, "2 FIFO queues", st.Stream)
		require.Contains(t, append(st.Loses, ""), row.loses, name)
		require.Contains(t, append(st.Differs, ""), row.differs, name)
		require.Len(t, append(st.Loses, st.Differs...), 2, "of both queues")
	}
}
