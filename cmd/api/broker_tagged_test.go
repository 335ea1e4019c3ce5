//go:build brokers

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
)

// TestEveryBrokerIsLinked: a program that is built with the tag brokers, as a release and an image are, has all of them.
func TestEveryBrokerIsLinked(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"embedded", "nats", "tls", "kafka", "sqs", "amqp", "amqps", "kinesis", "cdc"} {
		_, err := broker.Examine(t.Context(), scheme+"://?unknown=1")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "unsupported scheme")
	}
}
