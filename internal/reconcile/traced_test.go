package reconcile_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/payonce/internal/tracing"
	"example.com/payonce/testkit/world"
)

// TestRepairIsTraced: a trace of a round has a span for each object that is repaired, which links to the trace in which
// the order was made. An object that agrees has none.
func TestRepairIsTraced(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order, untraced := b.API.Order(), b.API.Order()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b.Unguarded(`UPDATE outbox_events SET traceparent = $2 WHERE aggregate_id = $1`, order, parent)
	ids := map[string]string{}
	for _, o := range []string{order, untraced} {
		ids[b.OrphanIntent(o).ID] = o
	}
	require.Equal(t, http.StatusCreated, b.API.Pay("agrees", b.API.Order(), "pm_card_visa").Status)
	declined(b) // is read by itself, and agrees
	spans := tracetest.NewInMemoryExporter()
	b.Reconciler.Traced(tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))))
	b.Reconcile()
	links := map[string]int{}
	for _, span := range spans.GetSpans() {
		if span.Name != "repair payment_intent" {
			continue
		}
		attributes := map[string]string{}
		for _, a := range span.Attributes {
			attributes[string(a.Key)] = a.Value.String()
		}
		require.Equal(t, "adoptable", attributes["payonce.result"])
		object := attributes["stripe.object_id"]
		require.Contains(t, ids, object)
		links[ids[object]] = len(span.Links)
		if len(span.Links) > 0 {
			require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.Links[0].SpanContext.TraceID().String())
		}
	}
	require.Equal(t, map[string]int{order: 1, untraced: 0}, links)
}
