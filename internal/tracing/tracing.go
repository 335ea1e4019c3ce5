package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names this program as the origin of its spans.
const scope = "example.com/payonce"

// Names of attributes that more than one package sets. Where OpenTelemetry has
// a name, that is it.
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

// Tracer begins stories. Nil is off.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer; with nil, one that is off.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is an interval of a story. The zero value is none, and all its methods
// do nothing.
type Span struct{ span trace.Span }

// Begin starts a span that goes on where parent, a traceparent, left off; with an
// empty or malformed one, a new story. Its name is prefix and name.
func (t *Tracer) Begin(ctx context.Context, kind trace.SpanKind, parent, prefix, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parse(parent))
	}
	return begin(ctx, t.tracer, prefix+name, kind)
}

// Continue is Begin for something that has no story unless there is a parent.
func (t *Tracer) Continue(ctx context.Context, kind trace.SpanKind, parent, prefix, name string) (context.Context, Span) {
	if t == nil || parent == "" || !parse(parent).IsValid() {
		return ctx, Span{}
	}
	return t.Begin(ctx, kind, parent, prefix, name)
}

// Resume starts a story of its own that is linked to the one where it all began.
func (t *Tracer) Resume(ctx context.Context, origin, prefix, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := begin(ctx, t.tracer, prefix+name, trace.SpanKindInternal)
	span.Link(origin)
	return ctx, span
}

// Start starts a span within the story that ctx is part of, if it is part of one.
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
		return ctx, Span{} // but ctx knows the decision not to, and what follows obeys it
	}
	return ctx, Span{span}
}

// Current is the span that ctx is in.
func Current(ctx context.Context) Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return Span{span}
	}
	return Span{}
}

// Recording reports whether it is worth finding out what to set.
func (s Span) Recording() bool { return s.span != nil }

// Rename is for a name that is only known at the end.
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

// Event notes that something happened.
func (s Span) Event(name string) {
	if s.span != nil {
		s.span.AddEvent(name)
	}
}

// Link ties the span to the one that a traceparent names.
func (s Span) Link(origin string) {
	if s.span == nil {
		return
	}
	if o := parse(origin); o.IsValid() {
		s.span.AddLink(trace.Link{SpanContext: o})
	}
}

// Fail says that it went wrong, and how. The text must be one that may be logged.
func (s Span) Fail(why string) {
	if s.span != nil {
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends it. An error is how it went wrong; nil changes nothing.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// TraceID is how the story is called in the backend; empty if nobody tells it.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Traceparent is the W3C trace context of the span in ctx, nil without one. It
// is stored beside what happens, so that the story goes on from there.
func Traceparent(ctx context.Context) *string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	s := "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
	return &s
}

// parse reads a traceparent. What is not one is no span context.
func parse(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
