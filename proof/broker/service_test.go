//go:build brokers

package broker_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/world"
)

// paid starts the service on a broker and has it take a payment. Every event of it is read from the broker, in order.
func paid(t *testing.T, brokerURL string, consume brokertest.Consume) *world.World {
	t.Helper()
	w := world.New(t)
	p := w.Process(
		"BROKER_URL="+brokerURL,
		"AWS_ACCESS_KEY_ID="+os.Getenv("AWS_ACCESS_KEY_ID"), "AWS_SECRET_ACCESS_KEY="+os.Getenv("AWS_SECRET_ACCESS_KEY"),
	)
	order := p.Order()
	require.Equal(t, http.StatusCreated, p.Pay("k", order, "pm_card_visa").Status)
	w.RequireChargedOnce(order)
	if consume == nil {
		consume = open(t, brokerURL).Consume
	}
	r := brokertest.Read(t, consume, "reader", nil)
	events := w.Events()
	require.NotEmpty(t, events)
	r.Await(t, len(events))
	brokertest.RequireOrder(t, r.Messages())
	got := r.Distinct()
	for _, e := range events {
		require.Positive(t, got[e.ID], e.ID)
	}
	w.Until("the events are marked as published", func() bool {
		return w.Count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL") == 0
	})
	return w
}

// TestServiceWithKinesis: the ledger reads the outbox, because Kinesis delivers nothing to it.
func TestServiceWithKinesis(t *testing.T) {
	t.Parallel()
	k := newKinesalite(t)
	name := k.stream(t, 2)
	w := paid(t, k.brokerURL(name), k.reader(name).parentsFirst)
	w.Until("the ledger has booked it", func() bool { return w.Count("SELECT count(*) FROM ledger_entries") == 2 })
}
