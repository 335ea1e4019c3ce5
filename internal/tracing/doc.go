// Package tracing connects what belongs to one payment, although several processes
// work on it and it may take days: OpenTelemetry's spans, and the columns of the
// database in which the trace context is stored until the work is resumed.
//
// # How the spans are connected
//
// A request is a trace. Its phases and its calls to Stripe are spans of that trace.
// Later work in other processes reads the trace context from a row:
//
//   - outbox_events.traceparent is written with the event. The relay's publish is a
//     child of it. The CloudEvent carries it unchanged as the extension traceparent,
//     so the consumer's span is a child of it, too, and so is that of every consumer
//     downstream that supports the extension.
//   - inbox_events.traceparent is the same for events that are received first and
//     applied later, Stripe's webhooks among them.
//   - idempotency_keys.traceparent is the request that first used the key. The
//     completer or a retry that takes over the claim has a trace of its own, with a
//     link to that one. It is a link and not a child, because a payment may be
//     resumed for two days, and no backend keeps a trace that grows for two days.
//   - For the same reason an attempt to deliver an event to a tenant is linked to
//     the event's traceparent, and a repair by the reconciler to that of the order's
//     first event, as long as the outbox still has it.
//
// # What a span contains
//
// Operations, recovery points, verdicts, ids of ours and of Stripe's, and the hash
// of the key that the logs have, too. Never a key, a secret or a body. Of a client's
// headers only a well-formed traceparent is used; its tracestate and baggage are
// dropped, because they may contain anything.
//
// # What it costs
//
// Tracing is off by default, and then the *Tracer is nil: the functions here check a
// pointer and return, and allocate nothing (TestTracingOffAllocatesNothing). In a trace that is not sampled
// the same is true from the second span on.
//
// There is no global provider. A Tracer is passed to what starts a trace; inside a
// trace, Start takes the provider from the context.
package tracing
