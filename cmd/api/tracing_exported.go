//go:build !notracing

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"example.com/payonce/internal/tracing"
)

// exporterLinked is whether this program can send traces.
const exporterLinked = true

// flushWithin bounds how long a process that stops waits for the collector.
const flushWithin = 5 * time.Second

// startTracing returns a tracer that exports spans, and a function that sends the last of them.
// Without a collector the tracer is nil, and nothing is started. The library reads OpenTelemetry's
// other variables itself: the sampler, headers, the service's name.
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
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(origin))
	return tracing.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not sent", "error", err.Error())
		}
	}, nil
}
