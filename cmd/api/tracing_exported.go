//go:build !notracing

package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/internal/tracing"
)

// exporterLinked is whether this program can send traces.
const exporterLinked = true

// flushWithin bounds how long a process that stops waits for the collector.
const flushWithin = 5 * time.Second

// startTracing returns a tracer that exports spans, and a function that sends the last of them.
// Without a collector the tracer is nil, and nothing is started. The library reads OpenTelemetry's
// other variables itself: headers, the service's name.
//
// If the collector cannot be reached, spans are lost and a line is logged. Payments are never affected.
func (t traces) startTracing(ctx context.Context, log *slog.Logger) (_ *tracing.Tracer, flush func(), err error) {
	url := t.url()
	if url == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT cannot be used: %w", err)
	}
	// A later detector takes precedence: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override our name.
	origin, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "payonce")),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		log.Warn("attributes of the traces' resource are incomplete", "error", err.Error())
	}
	otel.SetErrorHandler(
		otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not sent", "error", err.Error()) }),
	)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(origin),
		sdktrace.WithSampler(newSampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"), log)))
	return tracing.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not sent", "error", err.Error())
		}
	}, nil
}

// sampler decides which traces are sent. A request's traceparent is its client's, who decides neither by its flag nor by
// the trace's id, so requests are sampled as if each began a trace. Within the service the decision is kept.
type sampler struct {
	requests sdktrace.Sampler
	others   sdktrace.Sampler
}

// newSampler reads OpenTelemetry's OTEL_TRACES_SAMPLER and its argument. The default is parentbased_always_on.
func newSampler(name, arg string, log *slog.Logger) sdktrace.Sampler {
	root := sdktrace.AlwaysSample()
	name, parentBased := strings.CutPrefix(strings.TrimSpace(name), "parentbased_")
	switch name {
	case "always_off":
		root = sdktrace.NeverSample()
	case "traceidratio":
		ratio, err := strconv.ParseFloat(strings.TrimSpace(arg), 64)
		if err != nil || ratio < 0 || ratio > 1 {
			log.Warn("OTEL_TRACES_SAMPLER_ARG is no ratio of 0 to 1; every trace is sampled")
			ratio = 1
		}
		root = sdktrace.TraceIDRatioBased(ratio)
	case "", "always_on":
	default:
		log.Warn("OTEL_TRACES_SAMPLER is unknown; every trace is sampled")
	}
	if parentBased || name == "" {
		return sampler{root, sdktrace.ParentBased(root)}
	}
	return sampler{root, root}
}

func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return s.others.ShouldSample(p)
	}
	for i := range p.TraceID { // a ratio looks at nothing else
		p.TraceID[i] = byte(rand.N(256)) //nolint:gosec // below 256
	}
	return s.requests.ShouldSample(p)
}

func (s sampler) Description() string {
	return "requests: " + s.requests.Description() + "; others: " + s.others.Description()
}
