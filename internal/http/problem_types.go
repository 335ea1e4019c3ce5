package http

import (
	"net/http"
	"slices"
)

// Clients branch on the code, so a released code must never change its meaning. It is
// also the last part of the problem's type, /problems/<code>.
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

// problemType is one way in which a request can fail, with the texts of the problem
// document and of its page.
type problemType struct {
	Code   string
	Title  string
	Status int

	// Retryable tells a program to send the same request with the same key again. If
	// it is false, Retry may still suggest a corrected request or a new key, but a
	// program cannot decide that.
	Retryable bool

	// Stored says whether the response is stored under the key and replayed. A response
	// that is not stored leaves the key unchanged.
	Stored bool

	What  string // for the page: what happened, and what did not
	Retry string // for the page: whether to retry, how, and with which key
}

// problemTypes are all problems, ordered by status: serviceProblems and those of the
// parts. problem.go renders from them, the pages under /problems/ print them, and the
// OpenAPI document lists the same codes; tests compare the three.
var problemTypes []problemType

// partProblems map errors that only one part knows to its problems.
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

// serviceProblems are written for a developer whose request has failed: first what was and
// was not executed, then whether to retry and with which key.
var serviceProblems = []problemType{
	{
		Code: codeIdempotencyKeyMissing, Title: "Idempotency-Key is missing", Status: http.StatusBadRequest,
		What: "The request changes something, but has no Idempotency-Key. Without a key the service " +
			"cannot tell a retry from a new request, so nothing was executed.",
		Retry: "Create a key, save it together with what you want to pay for, and send the request again " +
			"with it. A random UUID is a good key.",
	},
	{
		Code: codeIdempotencyKeyInvalid, Title: "Idempotency-Key is invalid", Status: http.StatusBadRequest,
		What: "A key has 1 to 200 visible ASCII characters, bare or as a quoted string, on one header " +
			"line. This key does not, so nothing was executed.",
		Retry: "Correct the key and send the request again. If an earlier attempt at the same payment, " +
			"order or refund was accepted with another spelling of the key, use exactly that key.",
	},
	{
		Code: codeInvalidRequest, Title: "The request is invalid", Status: http.StatusBadRequest,
		What: "The body or a query parameter does not have the form that the API requires. The member " +
			"errors lists each mistake with its place as a JSON Pointer. Nothing was executed, and the " +
			"key was not looked up.",
		Retry: "Not unchanged: the same request fails again. Correct it. You may use the same key, because " +
			"a request that was refused here has not used it.",
	},
	{
		Code: codeInvalidSignature, Title: "The webhook signature is invalid", Status: http.StatusBadRequest,
		What: "The Stripe-Signature header is missing, does not match the body, was made with a secret " +
			"that this service does not have, or is older than 300 seconds. The event was not stored.",
		Retry: "Stripe sends the event again automatically. If all events are refused, compare the " +
			"endpoint's signing secret with STRIPE_WEBHOOK_SECRET and check the clock of the server.",
	},
	{
		Code: codeUnauthenticated, Title: "The API key is missing or not valid", Status: http.StatusUnauthorized,
		What: "The request has no header “Authorization: Bearer <api key>”, or the API key is unknown or " +
			"revoked. Nothing was executed.",
		Retry: "Correct the API key and send the request again with the same Idempotency-Key, which was not " +
			"looked up.",
	},
	{
		Code: codePaymentDeclined, Title: "The payment was declined",
		Status: http.StatusPaymentRequired, Stored: true,
		What: "The card's issuer declined the payment, and no money moved. The member decline_code has " +
			"the issuer's reason, if it gave one, and the member payment has the failed payment. The " +
			"order is open again; in a checkout, the completed steps were compensated.",
		Retry: "Not with this key: it returns this response every time, without another attempt. Let the " +
			"customer choose another payment method and send a new request with a new key.",
	},
	{
		Code: codePaymentFailed, Title: "The payment failed",
		Status: http.StatusPaymentRequired, Stored: true,
		What: "The payment failed for another reason than a decline: the payment method does not exist, " +
			"the customer did not authenticate in time, the payment was canceled, or it was canceled at " +
			"the provider after an error there. No money moved, and none will.",
		Retry: "Not with this key: it returns this response every time. The order is open again. Send a " +
			"new request with a new key, and with another payment method if that was the reason.",
	},
	{
		Code: codeNotFound, Title: "Not found", Status: http.StatusNotFound,
		What: "There is no such page, or your tenant has no object with this id. An object of another " +
			"tenant gets 404, too.",
		Retry: "Check the id, and that you use the API key of the tenant that created the object. You may use " +
			"the same Idempotency-Key, because this request has not used it.",
	},
	{
		Code: codeMethodNotAllowed, Title: "Method not allowed", Status: http.StatusMethodNotAllowed,
		What: "The path exists, but does not support this method. The header Allow lists the methods that " +
			"it supports.",
		Retry: "Use one of the methods in Allow.",
	},
	{
		Code: codeIdempotencyKeyInFlight, Title: "A request with this key is in progress",
		Status: http.StatusConflict, Retryable: true,
		What: "A process is working on the first request with this Idempotency-Key, or has crashed while " +
			"its lease has not expired. This request did nothing. The first one is completed even if its " +
			"client has disconnected or its process has crashed.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After. With “Prefer: " +
			"wait=10” the retry waits up to 10 seconds for the response. Do not use a new key: an order " +
			"would be created, or a part of a payment refunded, a second time. A payment would not: an " +
			"order is paid at most once, whatever keys are used.",
	},
	{
		Code: codePaymentInProgress, Title: "Another payment of this order is in progress",
		Status: http.StatusConflict, Retryable: true,
		What: "The order is being paid or canceled under another key. Until that has an outcome, no " +
			"second payment of the order can start, and the order cannot be canceled. Nothing was " +
			"executed or stored under this key.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After. If the other " +
			"payment succeeds, you get order-already-paid (or order-not-cancelable); if it fails, your " +
			"request is executed.",
	},
	{
		Code: codeOrderAlreadyPaid, Title: "The order is already paid",
		Status: http.StatusConflict, Stored: true,
		What: "A payment of this order succeeded; it may have been refunded since. An order is paid at " +
			"most once, whatever keys are used. The card was not charged again.",
		Retry: "No. Read the order: its payment_id is the payment that succeeded. To charge for something " +
			"else, create another order.",
	},
	{
		Code: codeOrderNotPayable, Title: "The order cannot be paid",
		Status: http.StatusConflict, Stored: true,
		What: "The order is canceled, or its cancellation is in progress, so no payment can start. No " +
			"money moved.",
		Retry: "No. Create a new order and pay that one, with a new key.",
	},
	{
		Code: codeOrderNotCancelable, Title: "The order cannot be canceled",
		Status: http.StatusConflict, Stored: true,
		What:  "The order is paid. A paid order cannot be canceled, only refunded. Nothing was changed.",
		Retry: "No. Refund the order's payment (its payment_id), with a new key.",
	},
	{
		Code: codePaymentNotCancelable, Title: "The payment cannot be canceled",
		Status: http.StatusConflict, Stored: true,
		What: "Only a payment that waits for the customer (requires_action) can be canceled. This one has " +
			"another status. Nothing was changed.",
		Retry: "No. If the payment succeeded, refund it. If it is processing, read it again later: it " +
			"becomes final without you. To cancel it then, use a new key.",
	},
	{
		Code: codePaymentNotRefundable, Title: "The payment cannot be refunded",
		Status: http.StatusConflict, Stored: true,
		What: "The payment did not succeed, or all of it is refunded. No money was refunded by this " +
			"request.",
		Retry: "No. Read the payment; see its status and amount_refunded.",
	},
	{
		Code: codeRefundExceedsPayment, Title: "The refund exceeds the payment",
		Status: http.StatusConflict, Stored: true,
		What: "Together with the refunds that succeeded or are pending, this refund would exceed the " +
			"payment. No money was refunded by this request.",
		Retry: "Not with this key. Read the payment and send a new request with a new key and a smaller " +
			"amount, or without amount to refund the rest.",
	},
	{
		Code: codeIdempotencyKeyExpired, Title: "The response for this key has expired", Status: http.StatusGone,
		What: "This request was executed so long ago that its response is no longer stored. It was not " +
			"executed again, and never will be with this key. The member resource identifies the object " +
			"that it created or changed.",
		Retry: "No. Read the object at resource.href. To do the same thing a second time, use a new key.",
	},
	{
		Code: codePayloadTooLarge, Title: "The body is too large", Status: http.StatusRequestEntityTooLarge,
		What: "The limit is 64 KiB, and 1 MiB for a webhook. Nothing was executed, and the key was not " +
			"looked up.",
		Retry: "Only with a smaller body.",
	},
	{
		Code: codeUnsupportedMediaType, Title: "The body is not application/json",
		Status: http.StatusUnsupportedMediaType,
		What: "Bodies must be JSON with “Content-Type: application/json”. Nothing was executed, and the " +
			"key was not looked up.",
		Retry: "Set the header and send the request again with the same key.",
	},
	{
		Code: codeIdempotencyKeyMismatch, Title: "This key was used for another request",
		Status: http.StatusUnprocessableEntity,
		What: "The Idempotency-Key was used with another method, path or body. Nothing was executed. This " +
			"response reveals nothing about the first request.",
		Retry: "Not unchanged. To retry the first request, send it exactly as before. For a new request " +
			"use a new key. The cause is a bug in the client: its keys are not unique, or it changes a " +
			"request between retries.",
	},
	{
		Code: codeRateLimited, Title: "Too many requests",
		Status: http.StatusTooManyRequests, Retryable: true,
		What: "Your tenant sends more new requests per second than the service allows. This request " +
			"did nothing. Replays of finished requests are not limited.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After, and then at a " +
			"lower rate.",
	},
	{
		Code: codeInternal, Title: "Internal error",
		Status: http.StatusInternalServerError, Retryable: true,
		What: "An unexpected error occurred in the service. This response does not say whether the " +
			"request was executed. If the service has started it, it completes it.",
		Retry: "Yes: the same request with the same key. That is safe in every case; a new key is not. If " +
			"the error persists, send the request_id to the operator.",
	},
	{
		Code: codeUnavailable, Title: "The service is unavailable",
		Status: http.StatusServiceUnavailable, Retryable: true,
		What: "The service cannot reach its database or its payment provider, or it is shutting down. It " +
			"refused this request before it started anything. That says nothing about an earlier request " +
			"with the same key.",
		Retry: "Yes: the same request with the same key, after the seconds in Retry-After, with a longer " +
			"pause each time.",
	},
}

// typeURI is the problem's "type". It is a path and not a URL, because the service does
// not know its public address; clients resolve it against the address they called.
func (t problemType) typeURI() string { return "/problems/" + t.Code }
