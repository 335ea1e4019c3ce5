package http

import (
	"net/http"
	"slices"
)

// Clients branch on the code, so a released code must never change its meaning. It is
// also the last part of the problem's type, /problems/<code>.
const (
	codeIdempotencyKeyMissing       = "idempotency-key-missing"
	codeIdempotencyKeyInvalid       = "idempotency-key-invalid"
	codeInvalidRequest              = "invalid-request"
	codeInvalidSignature            = "invalid-signature"
	codeUnauthenticated             = "unauthenticated"
	codeForbidden                   = "forbidden"
	codePaymentDeclined             = "payment-declined"
	codePaymentFailed               = "payment-failed"
	codeNotFound                    = "not-found"
	codeMethodNotAllowed            = "method-not-allowed"
	codeIdempotencyKeyInFlight      = "idempotency-key-in-flight"
	codePaymentInProgress           = "payment-in-progress"
	codeOrderAlreadyPaid            = "order-already-paid"
	codeOrderNotPayable             = "order-not-payable"
	codeOrderNotCancelable          = "order-not-cancelable"
	codePaymentNotCancelable        = "payment-not-cancelable"
	codePaymentNotCapturable        = "payment-not-capturable"
	codeCaptureExceedsAuthorization = "capture-exceeds-authorization"
	codePaymentNotRefundable        = "payment-not-refundable"
	codeRefundExceedsPayment        = "refund-exceeds-payment"
	codePaymentDisputed             = "payment-disputed"
	codeIdempotencyKeyExpired       = "idempotency-key-expired"
	codePayloadTooLarge             = "payload-too-large"
	codeUnsupportedMediaType        = "unsupported-media-type"
	codeHeadersTooLarge             = "headers-too-large"
	codeIdempotencyKeyMismatch      = "idempotency-key-mismatch"
	codeRateLimited                 = "rate-limited"
	codeInternal                    = "internal"
	codeUnavailable                 = "unavailable"
)

// problemType is one way in which a request can fail, as the problem document says it.
type problemType struct {
	Code   string
	Title  string
	Status int

	// Retryable tells a program to send the same request with the same key again. If
	// it is false, a corrected request or a new key may still help, but a program
	// cannot decide that.
	Retryable bool

	// Stored says whether the response is stored under the key and replayed. A response
	// that is not stored leaves the key unchanged.
	Stored bool
}

// problemTypes are all problems, ordered by status: serviceProblems and those of the
// parts. problem.go renders from them, problem_texts.go explains them, and the OpenAPI
// document lists the same codes; tests compare the three.
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

// serviceProblems are the problems of the service without its parts.
var serviceProblems = []problemType{
	{Code: codeIdempotencyKeyMissing, Title: "Idempotency-Key is missing", Status: http.StatusBadRequest},
	{Code: codeIdempotencyKeyInvalid, Title: "Idempotency-Key is invalid", Status: http.StatusBadRequest},
	{Code: codeInvalidRequest, Title: "The request is invalid", Status: http.StatusBadRequest},
	{Code: codeInvalidSignature, Title: "The webhook signature is invalid", Status: http.StatusBadRequest},
	{Code: codeUnauthenticated, Title: "The API key is missing or not valid", Status: http.StatusUnauthorized},
	{Code: codePaymentDeclined, Title: "The payment was declined", Status: http.StatusPaymentRequired, Stored: true},
	{Code: codePaymentFailed, Title: "The payment failed", Status: http.StatusPaymentRequired, Stored: true},
	{Code: codeForbidden, Title: "The API key may only read", Status: http.StatusForbidden},
	{Code: codeNotFound, Title: "Not found", Status: http.StatusNotFound},
	{Code: codeMethodNotAllowed, Title: "Method not allowed", Status: http.StatusMethodNotAllowed},
	{
		Code: codeIdempotencyKeyInFlight, Title: "A request with this key is in progress",
		Status: http.StatusConflict, Retryable: true,
	},
	{
		Code: codePaymentInProgress, Title: "Another request works on this order or payment",
		Status: http.StatusConflict, Retryable: true,
	},
	{Code: codeOrderAlreadyPaid, Title: "The order is already paid", Status: http.StatusConflict, Stored: true},
	{Code: codeOrderNotPayable, Title: "The order cannot be paid", Status: http.StatusConflict, Stored: true},
	{Code: codeOrderNotCancelable, Title: "The order cannot be canceled", Status: http.StatusConflict, Stored: true},
	{
		Code: codePaymentNotCancelable, Title: "The payment cannot be canceled",
		Status: http.StatusConflict, Stored: true,
	},
	{
		Code: codePaymentNotCapturable, Title: "The payment cannot be captured",
		Status: http.StatusConflict, Stored: true,
	},
	{
		Code: codeCaptureExceedsAuthorization, Title: "The capture exceeds the authorization",
		Status: http.StatusConflict, Stored: true,
	},
	{
		Code: codePaymentNotRefundable, Title: "The payment cannot be refunded",
		Status: http.StatusConflict, Stored: true,
	},
	{
		Code: codeRefundExceedsPayment, Title: "The refund exceeds the payment",
		Status: http.StatusConflict, Stored: true,
	},
	{Code: codePaymentDisputed, Title: "The payment is disputed", Status: http.StatusConflict, Stored: true},
	{Code: codeIdempotencyKeyExpired, Title: "The response for this key has expired", Status: http.StatusGone},
	{Code: codePayloadTooLarge, Title: "The body is too large", Status: http.StatusRequestEntityTooLarge},
	{
		Code: codeUnsupportedMediaType, Title: "The body is not application/json",
		Status: http.StatusUnsupportedMediaType,
	},
	{
		Code: codeIdempotencyKeyMismatch, Title: "This key was used for another request",
		Status: http.StatusUnprocessableEntity,
	},
	{
		Code: codeHeadersTooLarge, Title: "The headers are too large",
		Status: http.StatusRequestHeaderFieldsTooLarge,
	},
	{Code: codeRateLimited, Title: "Too many requests", Status: http.StatusTooManyRequests, Retryable: true},
	{Code: codeInternal, Title: "Internal error", Status: http.StatusInternalServerError, Retryable: true},
	{
		Code: codeUnavailable, Title: "The service is unavailable",
		Status: http.StatusServiceUnavailable, Retryable: true,
	},
}

// typeURI is the problem's "type". It is a path and not a URL, because the service does
// not know its public address; clients resolve it against the address they called.
func (t problemType) typeURI() string { return "/problems/" + t.Code }
