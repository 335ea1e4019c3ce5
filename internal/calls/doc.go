// Package calls records every POST to Stripe before its first byte is sent, and its
// outcome afterwards.
//
// A call has an identity, its Stripe idempotency key, and parameters, and both are the
// same for every attempt: so however often it is attempted, by however many processes,
// it takes effect at most once for as long as Stripe remembers the key. Past half of
// that time it is not sent again (ResendWithin); what it may have made is read instead.
//
// Attempts are recorded under the fence of the claim, so a holder that lost its lease
// neither sends nor concludes anything. A doubt is kept: once an attempt ended without a
// definite answer, a refusal of a later one proves nothing (stripe.Call.InDoubt).
package calls
