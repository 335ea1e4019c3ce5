//go:build brokers

package broker_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/testkit/brokertest"
)

// fauxqs is npm's SQS.
type fauxqs struct {
	*nodeServer
	client *sqs.Client
	places atomic.Int32
}

func newFauxqs(t testing.TB) *fauxqs {
	t.Helper()
	n := newNodeServer(t, "fauxqs.js")
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(region))
	require.NoError(t, err)
	return &fauxqs{nodeServer: n, client: sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.BaseEndpoint = aws.String(n.url) })}
}

// place is two FIFO queues. What stops the server would lose them, so it is frozen.
func (f *fauxqs) place(t testing.TB) brokertest.Place {
	prefix := fmt.Sprintf("payonce-%d", f.places.Add(1))
	var queues []*string
	for _, consumer := range []string{"ledger", "notifier"} {
		out, err := f.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{
			QueueName: aws.String(prefix + "-" + consumer + ".fifo"), Attributes: map[string]string{"FifoQueue": "true"},
		})
		require.NoError(t, err)
		queues = append(queues, out.QueueUrl)
	}
	var thaw func()
	return brokertest.Place{
		URL:  "sqs://sqs." + region + ".amazonaws.com/000000000000/" + prefix + "?consumers=ledger,notifier&endpoint=" + f.url,
		Stop: func() { thaw = f.freeze(t) }, Start: func(testing.TB) { thaw() }, Freeze: f.freeze,
		Raw: func(t testing.TB, body string) {
			for _, queue := range queues {
				_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{
					QueueUrl: queue, MessageBody: &body, MessageGroupId: aws.String("stranger"), MessageDeduplicationId: aws.String("stranger-1"),
				})
				require.NoError(t, err)
			}
		},
	}
}

func TestSQS(t *testing.T) {
	t.Parallel()
	f := newFauxqs(t)
	brokertest.Suite{
		Server: "fauxqs", Place: f.place, Open: open, Shared: true, Deduplicates: true, TooLarge: 2 << 20, Failures: 2,
	}.Run(t)
}

func TestExamineSQS(t *testing.T) {
	t.Parallel()
	at := newFauxqs(t).place(t)
	st, err := broker.Examine(t.Context(), at.URL)
	require.NoError(t, err)
	require.Equal(t, "2 FIFO queues", st.Stream)
	require.Empty(t, st.Loses)
	require.Empty(t, st.Differs)
}
