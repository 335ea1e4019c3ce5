// Package tracing tells one payment's life as one story, though it is lived in
// several processes and may take days: OpenTelemetry's spans, and the two places
// in the database where the thread is picked up again.
//
// # How the story hangs together
//
// A request is a trace. Its phases and its calls to Stripe are spans of it. What
// goes on later, elsewhere, finds the thread in a row:
//
//   - outbox_events.traceparent is written with the event. The relay's publish is
//     a child of it. The CloudEvent carries it as the extension traceparent,
//     unchanged, whatever happened on the way, so the consumer is a child of it
//     too, and so is every consumer downstream that knows the extension.
//   - inbox_events.traceparent is the same for what was received first and is
//     applied later, Stripe's webhooks among it.
//   - idempotency_keys.traceparent is the request that first came with the key.
//     Whoever takes the claim over, the completer or a retry, begins or has a
//     trace of its own, linked to that one. A link and not a child: a payment
//     may be resumed for two days, and a trace that grows for two days is one that
//     no backend keeps.
//   - For the same reason an attempt to deliver an event to a tenant is linked to
//     the event's traceparent, and what the reconciler mends to that of the order's
//     first event, as long as the outbox has it.
//
// # What is in a span
//
// Operations, recovery points, verdicts, ids of ours and of Stripe's, and the
// hash of the key that the logs have too. Never a key, a secret or a body, and
// of a client's headers only a well-formed traceparent: whatever stands in its
// tracestate or baggage is dropped.
//
// # What it costs
//
// Off, which is the default, a nil *Tracer: the functions here look at a pointer
// and return. Nothing is allocated (TestOff). A span whose trace is not sampled
// costs the same from the second one on.
//
// There is no global provider. Where a story begins, a Tracer is passed; what
// happens within it, Start takes from the context.
package tracing
