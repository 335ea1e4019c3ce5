package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"example.com/payonce/internal/tracing"
)

// flushWithin bounds how long the end of the process waits for a collector.
const flushWithin = 5 * time.Second

// tracesURL is where spans are sent: the URL for traces as it is, or the
// collector's with the path that OTLP has for them. Empty: nowhere.
func (c config) tracesURL() string {
	switch {
	case c.TracesDisabled:
		return ""
	case c.TracesEndpoint != "":
		return c.TracesEndpoint
	case c.OTLPEndpoint != "":
		return strings.TrimSuffix(c.OTLPEndpoint, "/") + "/v1/traces"
	}
	return ""
}

// startTracing returns a tracer that sends its spans to the collector of the
// settings, and what sends the last of them. Without a collector it is nil, and
// nothing is started. What else OpenTelemetry has variables for, the sampler,
// headers, the name of the service, its own library reads.
//
// A collector that is away costs spans, and a line in the log; never a payment.
func startTracing(ctx context.Context, c config, log *slog.Logger) (t *tracing.Tracer, flush func(), err error) {
	url := c.tracesURL()
	if url == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT cannot be used: %w", err)
	}
	// The later detector wins: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	origin, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "payonce")), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		log.Warn("traces say less about their origin than they could", "error", err.Error())
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not sent", "error", err.Error()) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(origin))
	return tracing.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not sent", "error", err.Error())
		}
	}, nil
}
