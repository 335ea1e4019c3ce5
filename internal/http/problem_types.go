package http

import (
	"net/http"
	"slices"
)

// A code is what a client switches on. It is the last part of the problem's
// type, /problems/<code>, and once released it keeps its meaning for ever.
const (
	codeIdempotencyKeyMissing  = "idempotency-key-missing"
	codeIdempotencyKeyInvalid  = "idempotency-key-invalid"
	codeInvalidRequest         = "invalid-request"
	codeInvalidSignature       = "invalid-signature"
	codeUnauthenticated        = "unauthenticated"
	codePaymentDeclined        = "payment-declined"
	codePaymentFailed          = "payment-failed"
	codeNotFound               = "not-found"
	codeMethodNotAllowed       = "method-not-allowed"
	codeIdempotencyKeyInFlight = "idempotency-key-in-flight"
	codePaymentInProgress      = "payment-in-progress"
	codeOrderAlreadyPaid       = "order-already-paid"
	codeOrderNotPayable        = "order-not-payable"
	codeOrderNotCancelable     = "order-not-cancelable"
	codePaymentNotCancelable   = "payment-not-cancelable"
	codePaymentNotRefundable   = "payment-not-refundable"
	codeRefundExceedsPayment   = "refund-exceeds-payment"
	codeIdempotencyKeyExpired  = "idempotency-key-expired"
	codePayloadTooLarge        = "payload-too-large"
	codeUnsupportedMediaType   = "unsupported-media-type"
	codeIdempotencyKeyMismatch = "idempotency-key-mismatch"
	codeRateLimited            = "rate-limited"
	codeInternal               = "internal"
	codeUnavailable            = "unavailable"
)

// problemType is one way a request can go wrong: what the problem document
// says, and what its page explains.
type problemType struct {
	Code   string
	Title  string
	Status int

	// Retryable tells a program to send the same request with the same key
	// again. False does not always mean "give up": Retry may ask for a
	// corrected request or a new key, which takes somebody who understands it.
	Retryable bool

	// Stored tells whether the answer is kept under the key and replayed. An
	// answer that is not stored leaves the key as it found it.
	Stored bool

	What  string // for the page: what happened, and what did not
	Retry string // for the page: whether to retry, how, and with which key
}

// problemTypes is the whole catalogue, in the order of status: serviceProblems and
// those that the parts bring. problem.go renders from it, the pages under /problems/
// print it, and the OpenAPI document lists the same codes; tests compare the three.
var problemTypes []problemType

// partProblems turn errors that only a part knows into its problems.
var partProblems []func(error) *problem

// These are filled here, and not where they are declared, because parts have handlers
// and handlers refuse requests with problems: Go reports that as an initialization
// cycle.
func init() {
	problemTypes = slices.Clone(serviceProblems)
	for _, p := range parts() {
		problemTypes = append(problemTypes, p.problems...)
		if p.problemFor != nil {
			partProblems = append(partProblems, p.problemFor)
		}
	}
	slices.SortStableFunc(problemTypes, func(a, b problemType) int { return a.Status - b.Status })
}

var serviceProblems = []problemType{
	{
		Code: codeIdempotencyKeyMissing, Title: "Idempotency-Key is missing", Status: http.StatusBadRequest,
		What:  "The request changes something and came without an Idempotency-Key. Without a key a retry could not be told from a second request, so nothing was done.",
		Retry: "Make a key, store it beside whatever you are about to pay for, and send the request again with it. A random UUID is a good key.",
	},
	{
		Code: codeIdempotencyKeyInvalid, Title: "Idempotency-Key is invalid", Status: http.StatusBadRequest,
		What:  "A key has 1 to 200 visible ASCII characters, bare or as a quoted string, on one header line. This one has not, and nothing was done.",
		Retry: "Correct how the key is written and send the request again. If an earlier request of the same intent went through with another spelling, use exactly that key.",
	},
	{
		Code: codeInvalidRequest, Title: "The request is invalid", Status: http.StatusBadRequest,
		What:  "The body or a query parameter does not have the form the API describes. The member errors names each place with a JSON Pointer and says what is wrong there. Nothing was done, and the key was not used up.",
		Retry: "The same request will fail again. Correct it; the same key may be used, because a request that was refused here never claimed it.",
	},
	{
		Code: codeInvalidSignature, Title: "The webhook signature is invalid", Status: http.StatusBadRequest,
		What:  "The Stripe-Signature header is missing, does not belong to this body, was made with a secret this service does not know, or is older than 300 seconds. The event was not stored.",
		Retry: "Stripe sends the event again by itself. If every event is refused, compare the endpoint's signing secret with STRIPE_WEBHOOK_SECRET and check the clock of this machine.",
	},
	{
		Code: codeUnauthenticated, Title: "The API key is missing or not valid", Status: http.StatusUnauthorized,
		What:  "The request has no Authorization header of the form “Bearer <api key>”, or the key is unknown or revoked. Nothing was done.",
		Retry: "Correct the API key. The Idempotency-Key of the request was not used up and stays the right one for this intent.",
	},
	{
		Code: codePaymentDeclined, Title: "The payment was declined", Status: http.StatusPaymentRequired, Stored: true,
		What:  "The issuer of the card said no, and no money moved. The member decline_code holds the issuer's reason where it gave one, and payment the failed payment. The order is open again; a checkout has undone its earlier steps.",
		Retry: "Not with this key: it answers the same decline for ever, and asks nobody. Let the customer choose another payment method and send a new request with a new key.",
	},
	{
		Code: codePaymentFailed, Title: "The payment failed", Status: http.StatusPaymentRequired, Stored: true,
		What:  "The payment ended without success for another reason than the issuer's: the payment method does not exist, the customer did not authenticate in time, the payment was canceled, or the provider failed and the payment was called off there. No money moved and none will.",
		Retry: "Not with this key: it repeats this answer. The order is open again; correct the payment method if it was at fault, and send a new request with a new key.",
	},
	{
		Code: codeNotFound, Title: "Not found", Status: http.StatusNotFound,
		What:  "There is no such page, or no object with this id among those of your API key. Objects of others look exactly like objects that do not exist.",
		Retry: "Check the id, and that the API key is the one the object was made with. The Idempotency-Key, if there was one, was not used up.",
	},
	{
		Code: codeMethodNotAllowed, Title: "Method not allowed", Status: http.StatusMethodNotAllowed,
		What:  "The path exists, the method does not. The header Allow names the methods that do.",
		Retry: "Use one of the methods in Allow.",
	},
	{
		Code: codeIdempotencyKeyInFlight, Title: "A request with this key is in progress", Status: http.StatusConflict, Retryable: true,
		What:  "The first request with this Idempotency-Key has not finished. This one did nothing; the first goes on, and will be finished even if its client has gone.",
		Retry: "Yes: the same request, the same key, after the seconds in Retry-After. With “Prefer: wait=10” the next one waits for the answer instead. Never change the key to get past this answer: a new key is a new payment.",
	},
	{
		Code: codePaymentInProgress, Title: "Another payment of this order is in progress", Status: http.StatusConflict, Retryable: true,
		What:  "The order is being paid under another key, and until that has an outcome nobody may begin a second payment or cancel the order. Nothing was done, and this key was not used up.",
		Retry: "Yes: the same request, the same key, after the seconds in Retry-After. If the other payment succeeds the answer becomes order-already-paid (or order-not-cancelable); if it fails, yours begins.",
	},
	{
		Code: codeOrderAlreadyPaid, Title: "The order is already paid", Status: http.StatusConflict, Stored: true,
		What:  "The order has a payment that succeeded, perhaps refunded since, and an order is paid at most once, whatever key is used. The card was not charged again.",
		Retry: "No. Read the order: its payment_id names the payment that succeeded. Something else to be paid is another order.",
	},
	{
		Code: codeOrderNotPayable, Title: "The order cannot be paid", Status: http.StatusConflict, Stored: true,
		What:  "The order is canceled, or is just being canceled, so no payment may begin. No money moved.",
		Retry: "No. Create a new order and pay that one, with a new key.",
	},
	{
		Code: codeOrderNotCancelable, Title: "The order cannot be canceled", Status: http.StatusConflict, Stored: true,
		What:  "The order is paid, and a paid order is refunded, not canceled. It was left as it is.",
		Retry: "No. Refund the payment named by the order's payment_id, with a new key.",
	},
	{
		Code: codePaymentNotCancelable, Title: "The payment cannot be canceled", Status: http.StatusConflict, Stored: true,
		What:  "Only a payment that waits for the customer (requires_action) can be canceled; this one is in another state and was left as it is.",
		Retry: "No. A payment that succeeded is refunded; one that is processing becomes final by itself, so read it again in a moment, and if you then still want to cancel, use a new key.",
	},
	{
		Code: codePaymentNotRefundable, Title: "The payment cannot be refunded", Status: http.StatusConflict, Stored: true,
		What:  "Only a payment that succeeded, and of which something is left, can be refunded. No money went back.",
		Retry: "No. Read the payment: its status and amount_refunded say why.",
	},
	{
		Code: codeRefundExceedsPayment, Title: "The refund exceeds the payment", Status: http.StatusConflict, Stored: true,
		What:  "Together with the refunds that succeeded or still may, this one would give back more than was paid. No money went back.",
		Retry: "Not with this key. Read the payment, choose an amount of at most what is left (or leave amount out, to refund the rest), and use a new key.",
	},
	{
		Code: codeIdempotencyKeyExpired, Title: "The answer for this key has expired", Status: http.StatusGone,
		What:  "This request was executed, but so long ago that its stored answer is gone. It was not executed again, and never will be under this key. The member resource says what it made.",
		Retry: "No. Read the object that resource.href names. If you mean to do the same thing a second time, that is a new intent with a new key.",
	},
	{
		Code: codePayloadTooLarge, Title: "The body is too large", Status: http.StatusRequestEntityTooLarge,
		What:  "A body may have at most 64 KiB, a webhook's at most 1 MiB. Nothing was done, and the key was not used up.",
		Retry: "Only with a smaller body.",
	},
	{
		Code: codeUnsupportedMediaType, Title: "The body is not application/json", Status: http.StatusUnsupportedMediaType,
		What:  "Bodies are JSON and say so with “Content-Type: application/json”. Nothing was done, and the key was not used up.",
		Retry: "Set the header and send the request again, with the same key.",
	},
	{
		Code: codeIdempotencyKeyMismatch, Title: "This key was used for another request", Status: http.StatusUnprocessableEntity,
		What:  "The Idempotency-Key has been used with another method, path or body. One key names one intent, so nothing was done; nothing of the first request is told here either.",
		Retry: "Find out which request is the right one. If it is the first, repeat exactly that. If this is a new intent, give it a new key. A program that sees this has a bug: it makes keys that are not unique, or changes a request between retries.",
	},
	{
		Code: codeRateLimited, Title: "Too many requests", Status: http.StatusTooManyRequests, Retryable: true,
		What:  "Your API key begins new work faster than the service allows. Nothing was done, and the key was not used up. Repeating a finished request is never limited.",
		Retry: "Yes: the same request, the same key, after the seconds in Retry-After, and then more slowly.",
	},
	{
		Code: codeInternal, Title: "Internal error", Status: http.StatusInternalServerError, Retryable: true,
		What:  "Something in the service broke. Whether anything was done is not told by this answer; the service itself knows, and finishes what it began.",
		Retry: "Yes: the same request, the same key. That is safe whatever happened; a new key is not. If it stays, tell the operator the request_id.",
	},
	{
		Code: codeUnavailable, Title: "The service is unavailable", Status: http.StatusServiceUnavailable, Retryable: true,
		What:  "The service cannot reach its database or its payment provider, or is shutting down, and refused the request before it began anything. Nothing was done.",
		Retry: "Yes: the same request, the same key, after the seconds in Retry-After, and less often each time.",
	},
}

// typeURI is the problem's "type": a path, resolved against the API's own
// address, where its page is served.
func (t problemType) typeURI() string { return "/problems/" + t.Code }
