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

const answerWithin = 30 * time.Second

// shop is a client of the API. It keeps every final answer it was given, because
// what a client was told is a promise.
type shop struct {
	key  string
	http *http.Client

	mu       sync.Mutex
	told     map[string]answer // by idempotency key: the first final answer
	breaches []string          // where a later answer was another one
}

func newShop(apiKey string) *shop {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	transport.DisableCompression = true // the bytes as they were stored
	return &shop{key: apiKey, told: map[string]answer{}, http: &http.Client{Timeout: answerWithin, Transport: transport}}
}

// request is what is sent; a GET has no key and no body.
type request struct {
	method, path, key, body string

	patient bool // Prefer: wait, for a duplicate of a request that is in flight
}

// answer is what came back: err, if nothing did.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
	err    error
}

// send sends a request once. Go's client would resend some requests unasked,
// those with an Idempotency-Key among them; without GetBody it cannot, and the
// number of requests that we report is the number that were sent.
func (s *shop) send(ctx context.Context, to *door, r request) answer {
	req, err := http.NewRequestWithContext(ctx, r.method, to.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return answer{err: err}
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+s.key)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.patient {
		req.Header.Set("Prefer", "wait=5")
	}
	began := time.Now()
	res, err := s.http.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, header: res.Header, body: body, err: err, took: time.Since(began)}
	s.remember(r, a)
	return a
}

// final reports whether an answer to a key is the last word on it.
func (a answer) final() bool {
	return a.err == nil && (a.status >= 200 && a.status < 300 && a.status != http.StatusAccepted || a.status == http.StatusPaymentRequired)
}

// disown forgets what was told about keys.
func (s *shop) disown(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.told, key)
	}
}

// mayChange reports whether the same request can have another answer later.
func (a answer) mayChange() bool {
	var problem struct{ Retryable bool }
	_ = json.Unmarshal(a.body, &problem) // no problem, or none that may be retried
	return a.status == http.StatusAccepted || problem.Retryable
}

func (s *shop) remember(r request, a answer) {
	if r.key == "" || !a.final() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.Trim(r.key, `"`)
	first, known := s.told[key]
	switch {
	case !known:
		s.told[key] = a
	case first.status != a.status || !bytes.Equal(first.body, a.body) || first.header.Get("Location") != a.header.Get("Location"):
		s.breaches = append(s.breaches, fmt.Sprintf("key %s was answered %d %s, and later %d %s", key, first.status, first.body, a.status, a.body))
	}
}

// object is what the scenes read of the API's objects and problems. Members that
// are null or absent are empty.
type object struct {
	ID          string
	Object      string
	Status      any    // a word; in a problem a number
	Code        string // of a problem
	DeclineCode string `json:"decline_code"`
	Stripe      struct {
		PaymentIntent string `json:"payment_intent"`
		Charge        string
		Refund        string
	}
}

func (a answer) object() (o object) {
	_ = json.Unmarshal(a.body, &o) // what is no object shows nothing, and no expectation is met by it
	return o
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// gist says it in a few words: "201 payment succeeded (replayed)".
func (a answer) gist() string {
	if a.replayed() {
		return a.what() + " (replayed)"
	}
	return a.what()
}

// String is what fits into a line that has the request already: "201 succeeded, replayed".
func (a answer) String() string {
	if a.err != nil {
		return a.what()
	}
	o := a.object()
	said := fmt.Sprint(a.status)
	switch {
	case o.Code != "":
		said += " " + o.Code
	case o.Object != "":
		said += fmt.Sprintf(" %v", o.Status)
	}
	if a.replayed() {
		said += ", replayed"
	}
	if v := a.header.Get("Retry-After"); v != "" {
		said += ", Retry-After: " + v
	}
	return said
}

func (a answer) what() string {
	if a.err != nil {
		return "no answer: " + rootOf(a.err)
	}
	o, what := a.object(), ""
	switch {
	case o.Code != "":
		what = o.Code
		if o.DeclineCode != "" {
			what += " (" + o.DeclineCode + ")"
		}
	case o.Object != "":
		what = fmt.Sprintf("%s %v", o.Object, o.Status)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, what))
}

// rootOf is the last part of an error's story: the address and the method stand
// on the same line already.
func rootOf(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}
