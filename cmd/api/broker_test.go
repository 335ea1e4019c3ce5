//go:build !brokers

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
)

// TestBrokersAreLinkedByATag: a program that is built without tags has the embedded broker, NATS and PostgreSQL's log. It
// says how the others are linked, and has their client libraries only then.
func TestBrokersAreLinkedByATag(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{
		"embedded",
		"nats", "tls",
		"cdc", // part: cdc
	} {
		_, err := broker.Examine(t.Context(), scheme+"://?unknown=1")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "unsupported scheme")
	}
	for scheme, tag := range map[string]string{
		"kafka":   "kafka",    // part: kafka
		"sqs":     "sqs",      // part: sqs
		"amqps":   "rabbitmq", // part: rabbitmq
		"kinesis": "kinesis",  // part: kinesis
	} {
		_, err := broker.Examine(t.Context(), scheme+"://127.0.0.1/x/y")
		require.ErrorContains(t, err, "go build -tags "+tag+" links "+scheme+":")
	}
}
