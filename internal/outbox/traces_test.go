package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/tracing"
	"example.com/payonce/testkit/dbtest"
)

// TestTraces: publishing an event is part of the trace in which it was written, with the outcome of that event.
func TestTraces(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	appendEvents(t, pool, event("ord_1", 1), event("ord_2", 1), event("ord_3", 1))
	exec(t, pool, "UPDATE outbox_events SET traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' "+
		"WHERE aggregate_id <> 'ord_3'")
	spans := tracetest.NewInMemoryExporter()
	relay := outbox.NewRelay(pool, &brokerLog{Before: func(e outbox.Envelope) error {
		if e.Subject == "ord_2" {
			return errAway
		}
		return nil
	}}, outbox.RelayOptions{Tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))})
	n, err := relay.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	outcomes := map[string]codes.Code{}
	for _, s := range spans.GetSpans() {
		require.Equal(t, "publish order.created", s.Name)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.SpanContext.TraceID().String())
		for _, a := range s.Attributes {
			if string(a.Key) == tracing.Resource {
				outcomes[a.Value.AsString()] = s.Status.Code
			}
		}
	}
	require.Equal(t, map[string]codes.Code{"ord_1": codes.Unset, "ord_2": codes.Error}, outcomes)
}
