package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/tracing"
)

// TestTraces: each phase is a span with the claim's attributes, and a retry or the completer that continues the work
// links to the request that began it.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := newCompleting(t)
	spans := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	c.store = idempotency.NewStore(c.pool, idempotency.Options{Lease: time.Minute, Tracer: tracer})

	ctx, first := tracer.Begin(t.Context(), trace.SpanKindServer, "", "POST ", "/v1/things")
	_, err := c.store.Begin(ctx, request("k"), "thing_k", "thing_recorded", nothing)
	require.NoError(t, err)
	_, err = c.store.Begin(ctx, request("k"), "thing_k", "thing_recorded", nothing)
	require.ErrorIs(t, err, idempotency.ErrTaken)
	first.End(nil)
	begun := spans.GetSpans()
	require.Len(t, begun, 3)
	attributes := func(s tracetest.SpanStub) map[string]any {
		all := map[string]any{}
		for _, a := range s.Attributes {
			all[string(a.Key)] = a.Value.AsInterface()
		}
		return all
	}
	require.Equal(t, map[string]any{
		tracing.Operation: thing, tracing.Tenant: "ten_a", tracing.KeyHash: idempotency.HashForLog("k"),
		tracing.Resource: "thing_k", tracing.Point: "thing_recorded", tracing.LeaseToken: int64(1),
	}, attributes(begun[0]))
	require.Empty(t, attributes(begun[1]), "there is no claim")

	c.expire()
	spans.Reset()
	ctx, retry := tracer.Begin(t.Context(), trace.SpanKindServer, "", "POST ", "/v1/things")
	claim, err := c.store.TakeOver(ctx, request("k"), c.state("k"))
	require.NoError(t, err)
	require.NoError(t, claim.Yield(ctx, 0, "for the completer"))
	retry.End(nil)
	require.Equal(t, 1, c.runOnce(c.completer(thing)))
	for _, s := range spans.GetSpans() {
		if s.Name == "POST /v1/things" || s.Name == "complete "+thing {
			require.Len(t, s.Links, 1, s.Name)
			require.Equal(t, begun[2].SpanContext.TraceID(), s.Links[0].SpanContext.TraceID(), s.Name)
		}
	}
	require.Contains(t, attributes(spans.GetSpans()[len(spans.GetSpans())-1]), tracing.KeyHash)
}
