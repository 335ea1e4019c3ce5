package main

import (
	"context"
	"log/slog"
	"strings"
)

// tracingPart sends traces to an OpenTelemetry collector. Without it spans are never recorded:
// internal/tracing stays, because operations, events and webhooks carry a traceparent, but the SDK
// and its exporter are not linked; nor are they in a program that is built with the tag notracing.
var tracingPart = part{name: "tracing", read: readTraces}

func readTraces(e *environment) partSettings {
	t := traces{
		endpoint:       e.baseURL("OTEL_EXPORTER_OTLP_ENDPOINT"),
		tracesEndpoint: e.baseURL("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		disabled:       e.boolean("OTEL_SDK_DISABLED", false),
	}
	e.oneOf("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf") // the exporter that is linked supports no other
	if t.url() != "" && !exporterLinked {
		e.fail("OTEL_EXPORTER_OTLP_ENDPOINT", "and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be unset: this program was "+
			"built with the tag notracing, and sends no traces")
	}
	return t
}

type traces struct {
	endpoint       string // a collector's base URL; empty: no tracing
	tracesEndpoint string // for traces only, with its path; takes precedence
	disabled       bool
}

// url is where spans are sent: the URL for traces unchanged, or the collector's with the path that OTLP defines for
// them. Empty: nowhere.
func (t traces) url() string {
	switch {
	case t.disabled:
		return ""
	case t.tracesEndpoint != "":
		return t.tracesEndpoint
	case t.endpoint != "":
		return strings.TrimSuffix(t.endpoint, "/") + "/v1/traces"
	}
	return ""
}

// wire adds nothing: the tracer exists before the service is wired.
func (traces) wire(context.Context, *service) error { return nil }

func (t traces) logAttrs() []slog.Attr {
	return []slog.Attr{slog.String("traces", withoutUser(t.url()))}
}
