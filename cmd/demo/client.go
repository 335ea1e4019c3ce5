package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const responseTimeout = 30 * time.Second

// shop is a client of the API. It keeps the first final response to every key, to
// check that a retry gets the same bytes and that the database still has them.
type shop struct {
	key  string
	http *http.Client

	mu               sync.Mutex
	finalResponses   map[string]response // by idempotency key
	changedResponses []string            // keys with two different final responses
}

func newShop(apiKey string) *shop {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	transport.DisableCompression = true // so that bodies can be compared byte for byte
	return &shop{
		key: apiKey, finalResponses: map[string]response{},
		http: &http.Client{Timeout: responseTimeout, Transport: transport},
	}
}

// request is an HTTP request to the API; a GET has no key and no body.
type request struct {
	method, path, key, body string

	preferWait bool // send Prefer: wait, so that a duplicate waits for the first instead of getting 409
}

// response is a response of the API, or the error if there was none.
type response struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
	err    error
}

// send sends a request exactly once. Go's client resends some requests by itself,
// also those with an Idempotency-Key. Without GetBody it cannot, so the number of
// requests in the table is the number that was sent.
func (s *shop) send(ctx context.Context, to *endpoint, r request) response {
	req, err := http.NewRequestWithContext(ctx, r.method, to.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return response{err: err}
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+s.key)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.preferWait {
		req.Header.Set("Prefer", "wait=5")
	}
	began := time.Now()
	res, err := s.http.Do(req)
	if err != nil {
		return response{err: err, took: time.Since(began)}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	a := response{status: res.StatusCode, header: res.Header, body: body, err: err, took: time.Since(began)}
	s.recordFinal(r, a)
	return a
}

// final reports whether every later response with this key must be the same.
func (a response) final() bool {
	ok := a.status >= 200 && a.status < 300 && a.status != http.StatusAccepted
	return a.err == nil && (ok || a.status == http.StatusPaymentRequired)
}

// dropRecorded removes keys whose responses are no longer guaranteed.
func (s *shop) dropRecorded(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.finalResponses, key)
	}
}

// retryable reports whether a retry with the same key can get another response.
func (a response) retryable() bool {
	var problem struct{ Retryable bool }
	_ = json.Unmarshal(a.body, &problem) // a body that is no problem document is not retryable
	return a.status == http.StatusAccepted || problem.Retryable
}

func (s *shop) recordFinal(r request, a response) {
	if r.key == "" || !a.final() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.Trim(r.key, `"`)
	first, known := s.finalResponses[key]
	switch {
	case !known:
		s.finalResponses[key] = a
	case first.status != a.status || !bytes.Equal(first.body, a.body) ||
		first.header.Get("Location") != a.header.Get("Location"):
		s.changedResponses = append(s.changedResponses,
			fmt.Sprintf("key %s: first %d %s, later %d %s", key, first.status, first.body, a.status, a.body))
	}
}

// object has the members that the scenes read of the API's objects and problems.
// Null or absent members are empty.
type object struct {
	ID          string
	Object      string
	Status      any    // a string in an object, a number in a problem
	Code        string // of a problem
	DeclineCode string `json:"decline_code"`
	AmountPaid  int64  `json:"amount_paid"`     // of an order
	Disputed    int64  `json:"amount_disputed"` // of an order or payment
	Stripe      struct {
		PaymentIntent string `json:"payment_intent"`
		Charge        string
		Refund        string
	}
}

func (a response) object() (o object) {
	_ = json.Unmarshal(a.body, &o) // what is no object runs nothing, and no expectation is met by it
	return o
}

func (a response) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// summary is a response without its request: "201 payment succeeded (replayed)".
func (a response) summary() string {
	if a.replayed() {
		return a.describe() + " (replayed)"
	}
	return a.describe()
}

// String is a response on the line of its request: "201 succeeded, replayed".
func (a response) String() string {
	if a.err != nil {
		return a.describe()
	}
	o := a.object()
	text := fmt.Sprint(a.status)
	switch {
	case o.Code != "":
		text += " " + o.Code
	case o.Object != "":
		text += fmt.Sprintf(" %v", o.Status)
	}
	if a.replayed() {
		text += ", replayed"
	}
	if v := a.header.Get("Retry-After"); v != "" {
		text += ", Retry-After: " + v
	}
	return text
}

func (a response) describe() string {
	if a.err != nil {
		return "no response: " + rootCause(a.err)
	}
	o, text := a.object(), ""
	switch {
	case o.Code != "":
		text = o.Code
		if o.DeclineCode != "" {
			text += " (" + o.DeclineCode + ")"
		}
	case o.Object != "":
		text = fmt.Sprintf("%s %v", o.Object, o.Status)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, text))
}

// rootCause drops what wraps an error: the address and the method are already on
// the same line.
func rootCause(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}
