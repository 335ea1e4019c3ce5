//go:build brokers

package broker_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/payonce/testkit/brokertest"
)

// TestKafkaByURL holds the Kafka of PAYONCE_TEST_KAFKA to the contract, or kfake where none is named. Each rule has a topic
// of its own, payonce.test.…, which stays there.
func TestKafkaByURL(t *testing.T) {
	t.Parallel()
	at := os.Getenv("PAYONCE_TEST_KAFKA")
	if at == "" {
		t.Log("PAYONCE_TEST_KAFKA names no Kafka, so this is kfake; no distribution has a package of Kafka")
		cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DefaultNumPartitions(3))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		at = "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
	}
	servers, query, _ := strings.Cut(strings.TrimPrefix(at, "kafka://"), "?")
	servers = strings.TrimSuffix(servers, "/")
	var topics atomic.Int32
	run := time.Now().UnixNano()
	brokertest.Suite{
		Server: "Kafka by URL", Open: open, TooLarge: 2 << 20, Failures: 2,
		Place: func(testing.TB) brokertest.Place {
			topic := fmt.Sprintf("payonce.test.%d.%d", run, topics.Add(1))
			return brokertest.Place{
				URL: "kafka://" + servers + "/" + topic + "?" + query,
				Raw: func(t testing.TB, body string) {
					_, hosts, _ := cutLast(servers, "@")
					values, err := url.ParseQuery(query)
					require.NoError(t, err)
					require.Empty(t, values.Get("sasl")+values.Get("tls"), "the test itself speaks neither TLS nor SASL")
					client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(hosts, ",")...))
					require.NoError(t, err)
					defer client.Close()
					require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(body)}).FirstErr())
				},
			}
		},
	}.Run(t)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}
