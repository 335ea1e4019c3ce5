package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
)

// TestEveryBrokerIsLinked: a program that is built without tags has all of them.
func TestEveryBrokerIsLinked(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{
		"embedded",
		"nats", "tls",
		"kafka",         // part: kafka
		"sqs",           // part: sqs
		"amqp", "amqps", // part: rabbitmq
		"kinesis", // part: kinesis
		"cdc",     // part: cdc
	} {
		_, err := broker.Examine(t.Context(), scheme+"://?unknown=1")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "unsupported scheme")
	}
}
