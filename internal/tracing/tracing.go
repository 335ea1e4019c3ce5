package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is OpenTelemetry's instrumentation scope of our spans.
const scope = "example.com/payonce"

// Names of attributes that more than one package sets. OpenTelemetry's own names are
// used where there is one, so that backends recognize them.
const (
	Operation  = "payonce.operation"
	Tenant     = "payonce.tenant_id"
	KeyHash    = "payonce.key_hash"
	Resource   = "payonce.resource_id"
	Point      = "payonce.recovery_point"
	LeaseToken = "payonce.lease_token"
	RequestID  = "payonce.request_id"
	EventID    = "messaging.message.id"
)

// Tracer starts traces. A nil Tracer is off.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer, or nil if there is no provider.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is a span that is being recorded. The methods of the zero value do nothing, so
// that callers need not check whether tracing is on.
type Span struct{ span trace.Span }

// Begin starts a span as a child of parent, a traceparent. If that is empty or malformed,
// it starts a new trace. The name is passed in two parts, so that they are joined only if
// tracing is on.
func (t *Tracer) Begin(ctx context.Context, kind trace.SpanKind, parent, prefix, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parse(parent))
	}
	return begin(ctx, t.tracer, prefix+name, kind)
}

// Continue is Begin for work that is not worth a trace unless it has a parent.
func (t *Tracer) Continue(ctx context.Context, kind trace.SpanKind, parent, prefix, name string) (context.Context,
	Span) {
	if t == nil || parent == "" || !parse(parent).IsValid() {
		return ctx, Span{}
	}
	return t.Begin(ctx, kind, parent, prefix, name)
}

// Resume starts a new trace with a link to origin, the traceparent of the request that
// started the work.
func (t *Tracer) Resume(ctx context.Context, origin, prefix, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := begin(ctx, t.tracer, prefix+name, trace.SpanKindInternal)
	span.Link(origin)
	return ctx, span
}

// Start starts a child of the span in ctx, if there is one.
func Start(ctx context.Context, kind trace.SpanKind, prefix, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	return begin(ctx, parent.TracerProvider().Tracer(scope), prefix+name, kind)
}

func begin(ctx context.Context, t trace.Tracer, name string, kind trace.SpanKind) (context.Context, Span) {
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		return ctx, Span{} // ctx carries the decision not to sample, so that children are not sampled either.
	}
	return ctx, Span{span}
}

// Current is the span in ctx.
func Current(ctx context.Context) Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return Span{span}
	}
	return Span{}
}

// Recording reports whether attributes are recorded. Callers check it before they compute
// one that costs something.
func (s Span) Recording() bool { return s.span != nil }

// Rename is for a name that is known only at the end, such as a request's route.
func (s Span) Rename(prefix, name string) {
	if s.span != nil {
		s.span.SetName(prefix + name)
	}
}

// Set sets an attribute. An empty one is left out.
func (s Span) Set(name, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(name, value))
	}
}

// SetInt sets an attribute.
func (s Span) SetInt(name string, value int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(name, value))
	}
}

// Event adds an event, with its time, to the span.
func (s Span) Event(name string) {
	if s.span != nil {
		s.span.AddEvent(name)
	}
}

// Link adds a link to the span of a traceparent.
func (s Span) Link(origin string) {
	if s.span == nil {
		return
	}
	if o := parse(origin); o.IsValid() {
		s.span.AddLink(trace.Link{SpanContext: o})
	}
}

// Fail marks the span as failed. The text is sent to the tracing backend, so it must be
// one that may be logged.
func (s Span) Fail(why string) {
	if s.span != nil {
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends the span. An error marks it as failed; nil keeps its status.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// TraceID is the trace's id in the backend; empty if nothing is recorded.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Traceparent is the W3C trace context of the span in ctx, nil without one. It is stored
// in a row, so that another process can continue the trace.
func Traceparent(ctx context.Context) *string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	s := "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
	return &s
}

// parse reads a traceparent. If it is malformed, the result is not valid.
func parse(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
