//go:build brokers || rabbitmq

package rabbitmq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/testkit/brokertest"
)

// The contract at a real server, and what only a server can show, is in proof/broker. // part: proof

func TestOpenRejectsWrongRabbitMQSettings(t *testing.T) {
	t.Parallel()
	brokertest.RequireRejected(t, broker.Open, map[string]string{
		"amqp://":                       "must be amqp://host",
		"amqp://a?consumer=ledger":      `unknown setting "consumer"`,
		"amqp://a?replicas=many":        "replicas must be a number",
		"amqp://a?replicas=0":           "replicas must be a number",
		"amqp://u:secret%zz@a/":         "not a amqp:// URL",
		"amqps://u:secret@a:1:2/?x=y":   `unknown setting "x"`,
		"amqps://u:secret@a,,b/payonce": "must be amqps://host",
	})
}

func TestRabbitMQAddresses(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]struct {
		servers         []string
		vhost, exchange string
	}{
		"amqp://a":                             {[]string{"a:5672"}, "/", defaultExchange},
		"amqp://a/":                            {[]string{"a:5672"}, "/", defaultExchange},
		"amqp://a/%2F":                         {[]string{"a:5672"}, "/", defaultExchange},
		"amqps://u:p@a,b:1,[::1]/shop":         {[]string{"a:5671", "b:1", "[::1]:5671"}, "shop", defaultExchange},
		"amqp://a/shop?exchange=events":        {[]string{"a:5672"}, "shop", "events"},
		"amqp://u:p%40ss@a:7/?consumers=,a,b,": {[]string{"a:7"}, "/", defaultExchange},
	} {
		r, err := open(at, broker.Options{})
		require.NoError(t, err, at)
		require.Equal(t, want.servers, r.servers, at)
		require.Equal(t, []string{want.vhost, want.exchange}, []string{r.config.Vhost, r.exchange}, at)
		require.NoError(t, r.Close())
	}
}

// TestRabbitMQConsumersAreListed: a consumer without a queue would wait for ever.
func TestRabbitMQConsumersAreListed(t *testing.T) {
	t.Parallel()
	b, err := broker.Open(t.Context(), "amqp://127.0.0.1:1/?consumers=ledger", broker.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.ErrorContains(t, b.Consume(t.Context(), "notifier", nil), "consumers= does not list the consumer notifier")
}
