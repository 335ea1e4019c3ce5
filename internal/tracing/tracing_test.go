package tracing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/internal/tracing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTracingOffAllocatesNothing: these calls are in the hot path of every request.
func TestTracingOffAllocatesNothing(t *testing.T) {
	var off *tracing.Tracer
	ctx, failed := context.Background(), errors.New("it failed")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, request := off.Begin(ctx, trace.SpanKindServer, parent, "request", "")
		ctx, phase := tracing.Start(ctx, trace.SpanKindInternal, "phase ", "finished")
		phase.Set(tracing.Operation, "create_payment")
		phase.SetInt(tracing.LeaseToken, 7)
		phase.Event("something")
		phase.End(failed)
		if tracing.Traceparent(ctx) != nil {
			t.Error("a story that nobody tells")
		}
		tracing.Current(ctx).Link(parent)
		request.Rename("POST ", "/v1/payments")
		request.End(nil)
		_, again := off.Resume(ctx, parent, "complete ", "create_payment")
		again.End(nil)
		_, event := off.Continue(ctx, trace.SpanKindConsumer, parent, "consume ", "order.paid")
		event.End(nil)
	}))
}

func TestOn(t *testing.T) {
	t.Parallel()
	setup := func(o ...sdktrace.TracerProviderOption) (*tracing.Tracer, *tracetest.InMemoryExporter) {
		told := tracetest.NewInMemoryExporter()
		return tracing.New(sdktrace.NewTracerProvider(append(o, sdktrace.WithSyncer(told))...)), told
	}

	t.Run("ContinuesTheParentsTrace", func(t *testing.T) {
		t.Parallel()
		tracer, told := setup()
		ctx, span := tracer.Begin(t.Context(), trace.SpanKindServer, parent, "a ", "b")
		_, inner := tracing.Start(ctx, trace.SpanKindClient, "c ", "d")
		inner.End(errors.New("it failed"))
		span.End(nil)
		spans := told.GetSpans()
		require.Len(t, spans, 2)
		require.Equal(t, "c d", spans[0].Name)
		require.Equal(t, "it failed", spans[0].Status.Description)
		require.Equal(t, spans[1].SpanContext.SpanID(), spans[0].Parent.SpanID())
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", spans[1].SpanContext.TraceID().String())
		require.Equal(t, "b7ad6b7169203331", spans[1].Parent.SpanID().String())
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+spans[1].SpanContext.SpanID().String()+"-01",
			*tracing.Traceparent(ctx))
	})

	t.Run("ResumesWithALink", func(t *testing.T) {
		t.Parallel()
		tracer, told := setup()
		_, span := tracer.Resume(t.Context(), parent, "complete ", "x")
		span.End(nil)
		_, span = tracer.Resume(t.Context(), "", "complete ", "what came before tracing did")
		span.End(nil)
		spans := told.GetSpans()
		require.Equal(t, "b7ad6b7169203331", spans[0].Links[0].SpanContext.SpanID().String())
		require.NotEqual(t, spans[0].Links[0].SpanContext.TraceID(), spans[0].SpanContext.TraceID())
		require.Empty(t, spans[1].Links)
	})

	t.Run("MalformedTraceparentStartsANewTrace", func(t *testing.T) {
		t.Parallel()
		tracer, told := setup()
		for _, malformed := range []string{"", "4242424242424242", parent[1:],
			"00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
			_, span := tracer.Begin(t.Context(), trace.SpanKindServer, malformed, "a", "")
			span.End(nil)
			_, none := tracer.Continue(t.Context(), trace.SpanKindConsumer, malformed, "b", "")
			require.False(t, none.Recording(), malformed)
		}
		for _, s := range told.GetSpans() {
			require.False(t, s.Parent.IsValid())
		}
		require.Len(t, told.GetSpans(), 4)
	})

	t.Run("ChildOfAnUnsampledSpanIsNotRecorded", func(t *testing.T) {
		t.Parallel()
		tracer, told := setup(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
		ctx, span := tracer.Begin(t.Context(), trace.SpanKindServer, parent[:len(parent)-1]+"0", "a", "")
		require.False(t, span.Recording())
		require.Equal(t, "00", (*tracing.Traceparent(ctx))[53:], "and passes it on")
		_, inner := tracing.Start(ctx, trace.SpanKindInternal, "b", "")
		inner.End(nil)
		span.End(nil)
		require.Empty(t, told.GetSpans())
	})
}
