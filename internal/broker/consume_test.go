package broker

import (
	"testing"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/testkit/brokertest"
)

func read(t testing.TB, b Broker, name string, fail func(inbox.Message) error) *brokertest.Reader {
	t.Helper()
	return brokertest.Read(t, b.Consume, name, fail)
}
