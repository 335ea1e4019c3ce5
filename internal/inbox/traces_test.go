package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/tracing"
)

// TestTraces: an event continues the trace in which it was received, whether it was stored alone or with others, and
// one without a trace begins none.
func TestTraces(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newCrowd(t)
	traced := event("a")
	traced.Traceparent = &[]string{parent}[0]
	c.send(t.Context(), traced, event("b"))
	require.Equal(t, []received{{fresh: true}, {fresh: true}}, c.answers())

	b := (&bundle{T: t, pool: c.pool}).start()
	spans := tracetest.NewInMemoryExporter()
	got := map[string]string{}
	b.processor = webhooks(b, func(ctx context.Context, e inbox.Event) (any, error) {
		got[e.ID] = e.Traceparent
		return fetch(ctx, e)
	}, inbox.ProcessorOptions{
		AtOnce: 1, Tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
	})
	b.process()
	require.Equal(t, parent, got["a"])
	require.Contains(t, got, "b")
	require.Empty(t, got["b"])
	require.Len(t, spans.GetSpans(), 1)
	span := spans.GetSpans()[0]
	require.Equal(t, "apply payment_intent.succeeded", span.Name)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String())
	require.Equal(t, codes.Unset, span.Status.Code)

	failing := event("c")
	failing.Traceparent = traced.Traceparent
	_, err := c.intake.Receive(t.Context(), failing)
	require.NoError(t, err)
	b.fail = func(inbox.Event) error { return errNotNow }
	spans.Reset()
	_, err = b.processor.RunOnce(t.Context())
	require.NoError(t, err)
	require.Len(t, spans.GetSpans(), 1)
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "not now"}, spans.GetSpans()[0].Status)
}

// TestTracesOfSettledEvents: an event with which nothing is to be done continues its trace as others do, once.
func TestTracesOfSettledEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	spans := tracetest.NewInMemoryExporter()
	p := inbox.NewProcessor(b.pool, map[string]inbox.Handler{stripe: {Apply: b.apply,
		Settled: func(context.Context, []inbox.Event) ([]string, error) { return []string{"settled"}, nil },
	}}, inbox.ProcessorOptions{Tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))})
	parents := map[string]string{"settled": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"applied": "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for id, parent := range parents {
		_, err := inbox.NewIntake(b.pool).Receive(t.Context(), inbox.Received{Consumer: stripe, ID: id, Type: "t",
			Payload: []byte("{}"), Traceparent: &parent})
		require.NoError(t, err)
	}
	_, err := p.RunOnce(t.Context())
	require.NoError(t, err)
	seen := map[string]int{}
	for _, span := range spans.GetSpans() {
		seen[span.SpanContext.TraceID().String()]++
	}
	for id, parent := range parents {
		require.Equal(t, 1, seen[parent[3:35]], id)
	}
}
