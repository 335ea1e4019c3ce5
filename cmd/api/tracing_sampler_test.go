//go:build !notracing

package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TestClientDoesNotDecideAboutSampling: neither by the flag of its traceparent, nor by an id of the trace that the ratio lets
// pass. Within the service the decision of the request holds.
func TestClientDoesNotDecideAboutSampling(t *testing.T) {
	t.Parallel()
	sampled := func(name, arg string, kind trace.SpanKind, flags trace.TraceFlags) (n int) {
		s := newSampler(name, arg, slog.New(slog.DiscardHandler))
		id := trace.TraceID{15: 1} // the least, which each ratio lets pass
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}))
		for range 1000 {
			r := s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: id, Kind: kind})
			if r.Decision == sdktrace.RecordAndSample {
				n++
			}
		}
		return n
	}
	for _, flags := range []trace.TraceFlags{0, trace.FlagsSampled} {
		require.Equal(t, 1000, sampled("", "", trace.SpanKindServer, flags))
		require.Zero(t, sampled("parentbased_always_off", "", trace.SpanKindServer, flags))
		require.InDelta(t, 100, sampled("parentbased_traceidratio", "0.1", trace.SpanKindServer, flags), 60)
		require.Equal(t, 1000, sampled("always_on", "", trace.SpanKindConsumer, flags))
	}
	for _, name := range []string{"", "parentbased_always_off", "parentbased_traceidratio"} {
		require.Equal(t, 1000, sampled(name, "0.1", trace.SpanKindConsumer, trace.FlagsSampled), name)
		require.Zero(t, sampled(name, "0.1", trace.SpanKindConsumer, 0), name)
	}
}
