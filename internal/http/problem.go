package http

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

const (
	contentJSON    = "application/json"
	contentProblem = "application/problem+json"
)

// problem is an error that the client gets as an RFC 9457 document.
type problem struct {
	code       string
	detail     string
	retryAfter time.Duration
	allow      string // of a 405

	errors      []fieldError
	payment     *payments.Payment
	declineCode *string
	resource    *resourceLink
	checkout    any // *payments.Checkout
}

// fieldError is one thing wrong with the body, by RFC 6901 pointer.
type fieldError struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

type resourceLink struct {
	ID   string `json:"id"`
	Href string `json:"href"`
}

// document is the problem's JSON.
type document struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
	RequestID string `json:"request_id"`

	Errors      []fieldError      `json:"errors,omitempty"`
	Payment     *payments.Payment `json:"payment,omitempty"`
	DeclineCode **string          `json:"decline_code,omitempty"` // always present with payment; null if the issuer gave none
	Resource    *resourceLink     `json:"resource,omitempty"`
	Checkout    any               `json:"checkout,omitempty"`
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

// problemOf is the problem for an error. The parts come first, because they wrap the
// errors of the rest. An error that matches nothing is a 500 without a detail: it was
// not foreseen, so its text may contain anything.
func problemOf(err error) *problem {
	for _, problemFor := range partProblems {
		if p := problemFor(err); p != nil {
			return p
		}
	}
	var (
		p       *problem
		pay     *payments.PaymentError
		invalid *payments.InvalidError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &pay):
		return paymentProblem(pay)
	case errors.As(err, &invalid):
		return &problem{
			code: codeInvalidRequest, detail: invalidBodyDetail, errors: []fieldError{{invalid.Pointer, invalid.Message}},
		}
	}
	for _, row := range []struct {
		matches      error
		code, detail string
		retryAfter   time.Duration
	}{
		{payments.ErrNotFound, codeNotFound, "There is no such object.", 0},
		{payments.ErrPaymentInProgress, codePaymentInProgress, "Another request is paying or canceling this order. Ask again when it is done.", time.Second},
		{payments.ErrOrderAlreadyPaid, codeOrderAlreadyPaid, "The order is paid. It is never charged a second time.", 0},
		{payments.ErrOrderNotPayable, codeOrderNotPayable, "The order is canceled.", 0},
		{payments.ErrOrderNotCancelable, codeOrderNotCancelable, "The order is paid. Refund the payment instead.", 0},
		{payments.ErrPaymentNotCancelable, codePaymentNotCancelable, "Only a payment that requires action can be canceled.", 0},
		{payments.ErrPaymentNotRefundable, codePaymentNotRefundable, "There is nothing of this payment that can be refunded.", 0},
		{payments.ErrRefundExceedsPayment, codeRefundExceedsPayment, "The refund is greater than what is left of the payment.", 0},
		{payments.ErrKeyOfAnotherRefund, codeIdempotencyKeyMismatch, mismatch, 0},
		{payments.ErrStripeUnavailable, codeUnavailable, "The payment provider does not answer. Nothing was begun.", 5 * time.Second},
		{inbox.ErrFull, codeUnavailable, "Too many events wait for the database. This one was not kept.", webhookRetry},
		{postgres.ErrInDoubt, codeInternal, "", 0},
	} {
		if errors.Is(err, row.matches) {
			return &problem{code: row.code, detail: row.detail, retryAfter: row.retryAfter}
		}
	}
	if postgres.Unavailable(err) {
		return &problem{code: codeUnavailable, detail: "The service cannot reach its database. Nothing was begun.", retryAfter: time.Second}
	}
	return &problem{code: codeInternal}
}

// paymentProblem shows the payment with the reason why it failed.
func paymentProblem(e *payments.PaymentError) *problem {
	p := &problem{code: codePaymentFailed, detail: "The payment failed. No money was taken.", payment: &e.Payment}
	if f := e.Payment.Failure; f != nil {
		p.detail, p.declineCode = f.Message, f.DeclineCode
	}
	if e.Declined {
		p.code = codePaymentDeclined
	}
	return p
}

// answer renders the problem.
func (p *problem) answer(requestID string) idempotency.Answer {
	t, ok := problemTypeOf(p.code)
	if !ok {
		panic("bug: no problem type " + p.code)
	}
	d := document{
		Type: t.typeURI(), Title: t.Title, Status: t.Status, Detail: p.detail, Code: t.Code, Retryable: t.Retryable, RequestID: requestID,
		Errors: p.errors, Payment: p.payment, Resource: p.resource, Checkout: p.checkout,
	}
	if p.payment != nil {
		d.DeclineCode = &p.declineCode
	}
	if p.code == codeInvalidRequest && len(d.Errors) == 0 {
		d.Errors = []fieldError{{"", p.detail}} // There is always a pointer; an error without a place in the body is about the whole.
	}
	return idempotency.Answer{Status: t.Status, ContentType: contentProblem, Body: mustJSON(d)}
}

func problemTypeOf(code string) (problemType, bool) {
	for _, t := range problemTypes {
		if t.Code == code {
			return t, true
		}
	}
	return problemType{}, false
}

// Answers implements payments.Answers.
type Answers struct{}

// Object implements payments.Answers.
func (Answers) Object(status int, location string, object any) idempotency.Answer {
	return idempotency.Answer{Status: status, ContentType: contentJSON, Location: location, Body: mustJSON(object)}
}

// Problem implements payments.Answers.
func (Answers) Problem(err error, requestID string) idempotency.Answer {
	return problemOf(err).answer(requestID)
}

// statusClientGone is nginx's status for a client that hung up before it got an answer.
// Metrics and log have it, because a 500 would page someone for every impatient
// customer. The response is written all the same: a client that has only closed its own
// direction can still read it.
const statusClientGone = 499

// refuse answers with the problem for an error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	gone := errors.Is(err, context.Canceled) && r.Context().Err() != nil
	if seen, ok := w.(*statusWriter); ok && gone {
		seen.status = statusClientGone
	}
	p := problemOf(err)
	if !gone && (p.code == codeInternal || p.code == codeUnavailable) {
		s.o.Log.ErrorContext(r.Context(), "request failed", "request_id", visitOf(r).requestID, "route", routeOf(r), "code", p.code, "error", err.Error())
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.allow != "" {
		w.Header().Set("Allow", p.allow)
	}
	if strings.HasPrefix(p.code, "idempotency-key-") {
		w.Header().Set("Link", `</docs/idempotency>; rel="describedby"`)
	}
	if p.code == codeUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="payonce"`)
	}
	write(w, p.answer(visitOf(r).requestID))
}

// write sends an answer, and nothing but the answer: no date of its own, no
// rendering, no compression.
func write(w http.ResponseWriter, a idempotency.Answer) {
	h := w.Header()
	h.Set("Content-Type", a.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	h.Set("Cache-Control", "no-store")
	if a.Location != "" {
		h.Set("Location", a.Location)
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // If the client is gone, so be it: the answer is stored.
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("bug: an answer cannot be encoded as JSON: " + err.Error())
	}
	return b
}
