// Package openapi checks responses of the API against its OpenAPI document. The
// document is written by hand and no code is generated from it, so this is what
// keeps the two together: every test that talks to the service does so through
// a Validator, and an answer with an undocumented status, header or field fails
// the test that caused it.
//
//	v := openapi.New(t, httpapi.OpenAPI())
//	client := &http.Client{Transport: v.Transport(t, nil)}
//
// The document is passed in, so that tests inside package http can use it too.
package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Validator knows one document. It may be used by many tests at once.
type Validator struct {
	doc    *openapi3.T
	router routers.Router

	mu   sync.Mutex
	seen map[string]bool
}

// loaded keeps a validator per document: loading takes longer than most tests.
var loaded sync.Map // string(document) → *loading

// loading is a document with the first test that could not use it.
type loading struct {
	once      sync.Once
	validator *Validator
	err       error
	failed    atomic.Pointer[string] // the name of that test
}

// New returns the validator of a document. If the document cannot be read, the first test of a process that needs it
// fails with the reason, and the others fail with a line that names that test: they would all fail for it. Whether the document is also right, its
// examples among them, is for [Validate] to say, which one test calls.
func New(tb testing.TB, document []byte) *Validator {
	tb.Helper()
	l := once(document)
	if l.err == nil {
		return l.validator
	}
	if name := tb.Name(); !l.failed.CompareAndSwap(nil, &name) {
		tb.Fatalf("the OpenAPI document cannot be read: see %s", *l.failed.Load())
	}
	tb.Fatalf("the OpenAPI document cannot be read: %s\n%s", brief(l.err), remedy)
	return nil
}

// once loads a document, if that has not been done.
func once(document []byte) *loading {
	found, _ := loaded.LoadOrStore(string(document), &loading{})
	l := found.(*loading)
	l.once.Do(func() { l.validator, l.err = load(document) })
	return l
}

// MustRead ends a test binary whose tests check answers against a document that cannot be read: all of them would fail
// for it. It is called in TestMain.
func MustRead(document []byte) {
	if err := once(document).err; err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "no test has run: the OpenAPI document cannot be read: %s\n%s\n", brief(err), remedy)
		os.Exit(1)
	}
}

// remedy is what to do about a document that is not valid.
const remedy = "Correct it in internal/http/openapi.yaml: add the example or the member, or take the reference or the " +
	"entry of \"required\" away."

func load(document []byte) (*Validator, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, err
	}
	return &Validator{doc: doc, router: router, seen: map[string]bool{}}, nil
}

// Validate returns the first error of a document: a reference to what is not there, a rule of OpenAPI that it breaks, or
// an example that its schema does not accept, with the member. The text has a few lines.
func Validate(document []byte) error {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(document)
	if err == nil {
		err = doc.Validate(loader.Context, openapi3.EnableExamplesValidation())
	}
	if err != nil {
		return fmt.Errorf("the OpenAPI document is not valid: %s\n%s", brief(err), remedy)
	}
	return nil
}

const briefMax = 600 // bytes of an error; a schema, or a document, is longer

// brief is an error without the schemas and the values that its text repeats: where it is, and what is wrong there.
func brief(err error) string {
	text := err.Error()
	var schema *openapi3.SchemaError
	if errors.As(err, &schema) {
		where, _, _ := strings.Cut(text, schema.Error())
		text = where + member(schema)
	}
	if len(text) > briefMax {
		text = text[:briefMax] + " …"
	}
	return text
}

// member says which member of a value breaks its schema, and how.
func member(err *openapi3.SchemaError) string {
	var inner *openapi3.SchemaError
	if errors.As(err.Origin, &inner) { // of several alternatives, or of all
		return member(inner)
	}
	return "/" + strings.Join(err.JSONPointer(), "/") + ": " + err.Reason
}

// Document is the parsed document.
func (v *Validator) Document() *openapi3.T { return v.doc }

// Check says how an answer differs from what the document promises for its
// request; nil if it does not. The request's body is not looked at: tests send
// wrong ones on purpose.
func (v *Validator) Check(req *http.Request, status int, header http.Header, body []byte) error {
	if err := checkHonesty(header, body); err != nil {
		return fmt.Errorf("%s %s → %d: %w", req.Method, req.URL.Path, status, err)
	}
	// The document's server is "/", and the router compares paths only if the
	// request names no other host.
	routed := req.Clone(context.Background())
	routed.URL.Scheme, routed.URL.Host, routed.Host = "", "", ""
	route, params, err := v.router.FindRoute(routed)
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge: // The path may not even have been read.
		route, err = v.fallback(status, status, "HeadersTooLarge")
	case err == nil && route.Operation.Responses.Status(status) == nil && status != http.StatusMethodNotAllowed:
		err = errors.New("status is not supported") // The default is what a request to any path may get, and no more.
	case err == nil:
	case errors.Is(err, routers.ErrPathNotFound) && leadsWithoutSlash(req, status, header):
		return nil
	case errors.Is(err, routers.ErrPathNotFound):
		route, err = v.fallback(status, http.StatusNotFound, "NotFound")
	case errors.Is(err, routers.ErrMethodNotAllowed):
		route, err = v.fallback(status, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
	if err != nil {
		return fmt.Errorf("%s %s → %d: %w", req.Method, req.URL.Path, status, err)
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true}
	options.WithCustomSchemaErrorFunc(member)
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: routed, PathParams: params,
			Route: route},
		Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: options,
	})
	if err != nil {
		return fmt.Errorf("%s %s → %d: %w\n%.2000s", req.Method, req.URL.Path, status, err, body)
	}
	if route.Path != "" {
		v.mu.Lock()
		v.seen[fmt.Sprintf("%s %s %d", route.Method, route.Path, status)] = true
		v.mu.Unlock()
	}
	return nil
}

// Seen reports whether some checked answer was this operation's with this
// status: a contract that is not exercised proves nothing.
func (v *Validator) Seen(method, path string, status int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[fmt.Sprintf("%s %s %d", method, path, status)]
}

// Transport checks every answer that passes through it and fails the test on
// the first difference. With a nil next it uses http.DefaultTransport.
func (v *Validator) Transport(tb testing.TB, next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{v, tb, next}
}

type transport struct {
	v    *Validator
	tb   testing.TB
	next http.RoundTripper
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err // The response was cut off; there is nothing whole to check.
	}
	if err := res.Body.Close(); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err := t.v.Check(req, res.StatusCode, res.Header, body); err != nil {
		t.tb.Errorf("answer breaks the contract: %v", err) // Errorf, as the goroutine may not be the test's
	}
	return res, nil
}

// leadsWithoutSlash: a page with a slash at its end redirects to the page without.
func leadsWithoutSlash(req *http.Request, status int, header http.Header) bool {
	to := header.Get("Location")
	return status == http.StatusPermanentRedirect && to != "" && strings.TrimRight(req.URL.EscapedPath(), "/") == to
}

// fallback is a route for requests that match no operation. They have the
// answers that every path has, and no other.
func (v *Validator) fallback(status, want int, response string) (*routers.Route, error) {
	if status != want {
		return nil, fmt.Errorf("a request without an operation is answered %d", want)
	}
	responses := openapi3.NewResponses(openapi3.WithStatus(status, v.doc.Components.Responses[response]))
	return &routers.Route{Spec: v.doc, Operation: &openapi3.Operation{Responses: responses}}, nil
}

// checkHonesty finds what a schema cannot express: a problem whose members
// contradict each other, and a header that does not belong to the answer.
func checkHonesty(header http.Header, body []byte) error {
	for _, name := range []string{"Content-Type", "Request-Id", "Idempotent-Replayed", "Retry-After", "Location"} {
		if len(header.Values(name)) > 1 {
			return fmt.Errorf("%d %s headers", len(header.Values(name)), name)
		}
	}
	if mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type")); mediaType != "application/problem+json" {
		return nil
	}
	var problem struct {
		Type, Code string
		Retryable  bool
		RequestID  string `json:"request_id"`
	}
	if err := json.Unmarshal(body, &problem); err != nil {
		return err
	}
	if problem.Type != "/problems/"+problem.Code {
		return fmt.Errorf("type %q is not the page of code %q", problem.Type, problem.Code)
	}
	if own := header.Get("Request-Id"); problem.RequestID != "" && problem.RequestID != own &&
		header.Get("Idempotent-Replayed") == "" {
		return fmt.Errorf("request_id is %q in an answer to %q: only a replay bears another's", problem.RequestID, own)
	}
	if problem.Retryable && header.Get("Idempotent-Replayed") != "" {
		return fmt.Errorf("%s is retryable, so it cannot have been stored", problem.Code)
	}
	if waits := header.Get("Retry-After") != ""; problem.Retryable != waits && problem.Code != "internal" {
		return fmt.Errorf("retryable is %v, Retry-After is %q", problem.Retryable, header.Get("Retry-After"))
	}
	// part: docs {
	if aboutKeys := strings.HasPrefix(problem.Code, "idempotency-key-"); aboutKeys != (header.Get("Link") != "") {
		return fmt.Errorf("%s with Link %q: problems about keys, and no others, link to how keys work", problem.Code,
			header.Get("Link"))
	}
	// part: docs }
	return nil
}

func init() {
	// What has no structure that a schema describes is one string.
	for _, mediaType := range []string{"text/html", "text/css", "text/javascript", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(mediaType, openapi3filter.PlainBodyDecoder)
	}
}
