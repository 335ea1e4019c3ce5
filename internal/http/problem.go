package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// Packages below return errors and know nothing of HTTP. Here, and only here, an error
// becomes a status, a code and a text, so that one error is the same problem wherever it
// occurs. That includes the responses that an operation stores. A replay has the text
// that was stored, perhaps by an earlier release, so clients must not depend on texts:
// texts may change, codes must not.

const (
	contentJSON    = "application/json"
	contentProblem = "application/problem+json"
)

// problem is an error that the client gets as an RFC 9457 document. Its detail is sent
// to the client, so it must not contain an error's text.
type problem struct {
	code       string
	detail     string // one sentence about this case; empty for what is not known
	retryAfter time.Duration
	reason     refusalReason // of a 429 and a 503
	allow      string        // of a 405

	errors      []fieldError
	payment     *payments.Payment
	declineCode *string
	resource    *resourceLink
	checkout    any // *checkout.Checkout // part: checkouts
}

// fieldError is one mistake, with its place in the body as an RFC 6901 pointer, or the
// query parameter that it is in.
type fieldError struct {
	Pointer   string `json:"pointer"`
	Parameter string `json:"parameter,omitempty"`
	Message   string `json:"message"`
}

// resourceLink lets a client find the object of an expired key without knowing its type.
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
	DeclineCode **string          `json:"decline_code,omitempty"` // present with payment; null if the issuer gave none
	Resource    *resourceLink     `json:"resource,omitempty"`
	Checkout    any               `json:"checkout,omitempty"` // part: checkouts
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

// problemOf maps an error to its problem. The first match wins. Parts come first,
// because their errors wrap those of the payments. An unexpected error is a 500 without
// a detail, because its text may contain anything.
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
		full    *stripe.QueueFullError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &pay):
		return paymentProblem(pay)
	case errors.As(err, &invalid):
		return &problem{
			code: codeInvalidRequest, detail: invalidBodyDetail,
			errors: []fieldError{{Pointer: invalid.Pointer, Message: invalid.Message}},
		}
	case errors.As(err, &full):
		return rateLimited(reasonTenantStripe, max(full.RetryAfter, time.Second),
			"Too many payments of this tenant are waiting for the payment provider. Retry with the same key.")
	}
	switch {
	case errors.Is(err, payments.ErrRefundsWaiting):
		return rateLimited(reasonTenantQueue, time.Second,
			"Too many refunds of this payment are waiting for one another. Retry with the same key.")
	case errors.Is(err, stripe.ErrUnavailable):
		return unavailable(reasonStripe, 5*time.Second, "The payment provider is unavailable. Retry with the same key.")
	case errors.Is(err, postgres.ErrFull):
		return unavailable(reasonDatabase, webhookRetry,
			"Too many events are waiting for the database. This one was not stored.")
	}
	for _, row := range []struct {
		matches      error
		code, detail string
		retryAfter   time.Duration
	}{
		{payments.ErrNotFound, codeNotFound, "There is no such object.", 0},
		{payments.ErrCaptureInProgress, codePaymentInProgress,
			"Another request is capturing or canceling this payment, or canceling its order. Retry when it is done.",
			time.Second},
		{payments.ErrOrderAuthorized, codePaymentInProgress,
			"A payment of this order is authorized. Capture or cancel that one; once it is canceled or has expired, this " +
				"request can be retried.", time.Minute},
		{payments.ErrPaymentInProgress, codePaymentInProgress,
			"Another request is paying or canceling this order. Retry when it is done.", time.Second},
		{payments.ErrOrderAlreadyPaid, codeOrderAlreadyPaid,
			"The order is paid. It is never charged a second time.", 0},
		{payments.ErrOrderNotPayable, codeOrderNotPayable, "The order is canceled.", 0},
		{payments.ErrOrderNotCancelable, codeOrderNotCancelable, "The order is paid. Refund the payment instead.", 0},
		{payments.ErrPaymentNotCancelable, codePaymentNotCancelable,
			"Only a payment that requires action or is authorized can be canceled.", 0},
		{payments.ErrPaymentNotCapturable, codePaymentNotCapturable, "Only an authorized payment can be captured, and only once. Read the payment for its status.", 0},
		{payments.ErrCaptureExceedsAuthorization, codeCaptureExceedsAuthorization,
			"The capture exceeds what is authorized, which is the amount of the payment.", 0},
		{payments.ErrPaymentNotRefundable, codePaymentNotRefundable,
			"The payment did not succeed, all of it is refunded, or Stripe refuses to refund it. To release a payment that " +
				"is authorized, cancel it.", 0},
		{payments.ErrRefundExceedsPayment, codeRefundExceedsPayment,
			"The refund exceeds the amount that is left to refund.", 0},
		{payments.ErrPaymentDisputed, codePaymentDisputed,
			"A dispute of the payment is open or lost. While it is open the bank decides about the money; if it is " +
				"won, refund with a new key. If it is lost, the customer has the money.", 0},
		{payments.ErrKeyOfAnotherRefund, codeIdempotencyKeyMismatch, mismatch, 0},
		{postgres.ErrInDoubt, codeInternal, "", 0}, // It may be committed, so a 503 would be wrong.
	} {
		if errors.Is(err, row.matches) {
			return &problem{code: row.code, detail: row.detail, retryAfter: row.retryAfter}
		}
	}
	if postgres.DiskFull(err) {
		return unavailable(reasonDatabase, time.Second,
			"The disk of the database is full. Retry the request unchanged.")
	}
	if postgres.Unavailable(err) {
		return unavailable(reasonDatabase, time.Second,
			"The service cannot reach its database. Retry the request unchanged.")
	}
	return &problem{code: codeInternal}
}

// paymentProblem shows the payment with the reason why it failed.
func paymentProblem(e *payments.PaymentError) *problem {
	p := &problem{code: codePaymentFailed, detail: "The payment failed. No money was taken.", payment: &e.Payment}
	if e.Payment.Status == db.PaymentStatusAuthorized { // A capture took nothing.
		p.detail = "Nothing was captured. The payment is still authorized: another key may capture it."
	}
	if f := e.Payment.Failure; f != nil {
		p.detail, p.declineCode = f.Message, f.DeclineCode
	}
	if e.Declined {
		p.code = codePaymentDeclined
	}
	return p
}

// answer renders the problem. What it returns may be stored and replayed, so it depends
// on nothing but the problem and the id of the request that caused it.
func (p *problem) answer(requestID string) idempotency.Answer {
	t, ok := problemTypeOf(p.code)
	if !ok {
		panic("bug: no problem type " + p.code)
	}
	d := document{
		Type: t.typeURI(), Title: t.Title, Status: t.Status, Detail: p.detail, Code: t.Code, Retryable: t.Retryable,
		RequestID: requestID, Errors: withoutCardsIn(p.errors), Payment: p.payment, Resource: p.resource,
		Checkout: p.checkout, // part: checkouts
	}
	if p.payment != nil {
		d.DeclineCode = &p.declineCode
	}
	if p.code == codeInvalidRequest && len(d.Errors) == 0 {
		d.Errors = []fieldError{{Message: p.detail}} // Clients may rely on errors; the empty pointer is the whole body.
	}
	return idempotency.Answer{Status: t.Status, ContentType: contentProblem, Body: readableJSON(d)}
}

func problemTypeOf(code string) (problemType, bool) {
	for _, t := range problemTypes {
		if t.Code == code {
			return t, true
		}
	}
	return problemType{}, false
}

// Answers implements payments.Answers. Operations render their responses with it, because
// they store the response in the transaction of its effect.
type Answers struct{}

// Object implements payments.Answers.
func (Answers) Object(status int, location string, object any) idempotency.Answer {
	return idempotency.Answer{Status: status, ContentType: contentJSON, Location: location, Body: mustJSON(object)}
}

// Problem implements payments.Answers.
func (Answers) Problem(err error, requestID string) idempotency.Answer {
	return problemOf(err).answer(requestID)
}

// queued reports whether the problem is sent in its client's turn (classRefusal), because a client could else cause as
// many as it can send. The others follow from what is stored, or from the state of the service.
func (p *problem) queued() bool {
	switch p {
	case errTenantQueueFull, errTenantQueueSlow, errAnonymousQueueFull, errOverloaded: // They come from a queue.
		return false
	}
	if p.code == codeUnavailable {
		return p.reason == reasonAnonymous || p.reason == reasonNotConfigured
	}
	t, _ := problemTypeOf(p.code)
	return costsNothing(t.Status)
}

// costsNothing reports whether requests with the status have taken no effect, and are refused for what they contain or
// how many they are.
func costsNothing(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return false
}

// refuse responds with the problem for an error, in its client's turn if that could have any number of them.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p, v := problemOf(err), visitOf(r)
	if p.queued() && v.slot.class != classDocument { // That has a rate limit already.
		ctx, cancel := s.bounded(r.Context(), 0)
		defer cancel()
		if full := s.admit(ctx, r, classRefusal); full != nil {
			p, err = problemOf(full), full
		}
	}
	if p.code == codeInternal || // A probe's 503 in a drain is as it should be: its line is that of every request.
		p.code == codeUnavailable && p.reason != reasonDraining && s.logs.allow("request failed", http.StatusServiceUnavailable, v.tenant.id) {
		line := []any{"request_id", v.requestID, "route", routeOf(r), "code", p.code, "error", err.Error()}
		if v.tenant.id != "" {
			line = append(line, "tenant_id", v.tenant.id)
		}
		s.o.Log.ErrorContext(r.Context(), "request failed", line...)
	}
	if p.reason != "" {
		s.refused.WithLabelValues(string(p.reason)).Inc()
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.allow != "" { // RFC 9110 requires it in a 405.
		w.Header().Set("Allow", p.allow)
	}
	// part: docs {
	if strings.HasPrefix(p.code, "idempotency-key-") {
		w.Header().Set("Link", `</docs/idempotency>; rel="describedby"`)
	}
	// part: docs }
	if p.code == codeUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="payonce"`)
	}
	lingerAfter(w, r, p.code == codePayloadTooLarge)
	write(w, p.answer(v.requestID))
}

// write sends the stored bytes unchanged: any rendering or compression here would make
// a replay differ from the first response.
func write(w http.ResponseWriter, a idempotency.Answer) {
	h := w.Header()
	h.Set("Content-Type", a.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	h.Set("Cache-Control", "no-store")
	if a.Location != "" {
		h.Set("Location", a.Location)
	}
	if n := cap(a.Body); n > unreadCounted {
		if seen, ok := w.(*statusWriter); ok && seen.visit.tenant.id != "" {
			seen.visit.slot.sent(len(a.Body))
			seen.unread.add(seen.visit.tenant.id, n)
			defer seen.unread.add(seen.visit.tenant.id, -n)
		}
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // If the client has disconnected, it retries and gets the stored response.
}

// readableJSON is mustJSON with <, > and & as they are: people read problems in logs, and no page contains them.
func readableJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("bug: a response cannot be encoded as JSON: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// mustJSON is for our own types, whose encoding cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("bug: a response cannot be encoded as JSON: " + err.Error())
	}
	return b
}
