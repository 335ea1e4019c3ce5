package stripe

import "net/http"

// reply is an HTTP response of Stripe's, independent of the library that read it.
type reply struct {
	sent        bool   // there was a connection to write to; without one, nothing left this process
	status      int    // zero: no complete response
	readable    bool   // the body was a Stripe object or a Stripe error
	errorType   string // Stripe's type of error
	code        string // Stripe's code
	param       string
	replayed    bool   // Idempotent-Replayed: this is what the first attempt got
	shouldRetry string // Stripe-Should-Retry: "true", "false" or absent
}

// effect classifies the response to a POST (https://docs.stripe.com/error-low-level).
// The first rule: while an earlier attempt under the key is in doubt, only a response
// that settles that attempt settles anything. A success does, a decline does, a
// replayed refusal does. A rate limit, a rotated API key or a failed validation says
// something about this attempt only.
func (r reply) effect(inDoubt bool) Effect {
	undecided := NotExecuted
	if inDoubt {
		undecided = Unknown
	}
	switch {
	case !r.sent:
		return undecided
	case r.status == 0 || !r.readable:
		return Unknown // Cut short, or sent by a proxy: behind it, the call may have been executed.
	case r.status < 300:
		return Done
	case r.status == http.StatusPaymentRequired:
		return Refused
	case r.status == http.StatusConflict && r.code == "idempotency_key_in_use":
		return Unknown // Another attempt is running right now.
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden,
		r.status == http.StatusConflict, r.status == http.StatusTooManyRequests:
		return undecided // Rejected before anything was executed.
	case r.status >= 500, r.status == http.StatusFailedDependency, r.shouldRetry == "true":
		return Unknown
	case stateConflicts[r.code]:
		return Conflict
	case r.replayed || !inDoubt:
		return Refused
	default:
		return Conflict
	}
}

// errorCached reports whether Stripe has stored this error under the key, so that
// sending again can only repeat it.
func (r reply) errorCached() bool {
	stored := r.status == http.StatusInternalServerError || r.status == http.StatusFailedDependency
	return r.readable && r.shouldRetry != "true" && stored
}

// stateConflicts are the refusals that our own earlier success can cause.
var stateConflicts = map[string]bool{
	"payment_intent_unexpected_state": true,
	"charge_already_refunded":         true,
	"charge_disputed":                 true,
	"refund_disputed_payment":         true,
	"amount_too_large":                true,
}
