package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/operations"
	"example.com/payonce/testkit/openapi"
)

// Client is one who uses the API. It is a value: With… return another.
type Client struct {
	t      testing.TB
	Base   string
	APIKey string
	http   *http.Client
}

func newClient(t testing.TB, base string, tenant Tenant, own ...operations.Operation) Client {
	next := &http.Transport{MaxIdleConnsPerHost: 128}
	t.Cleanup(next.CloseIdleConnections)
	checked := openapi.New(t, httpapi.OpenAPIWith(own)).Transport(t, next)
	return Client{t: t, Base: base, APIKey: tenant.APIKey,
		http: &http.Client{Transport: checked, Timeout: 30 * time.Second}}
}

// ClientAt is a client of a server that the test has started on its own.
func (w *World) ClientAt(base string) Client { return newClient(w.T, base, w.Tenant) }

// As is the same client for another tenant.
func (c Client) As(tenant Tenant) Client {
	c.APIKey = tenant.APIKey
	return c
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Err    error // no answer at all, or only a part of one
}

// Identity is what must be the same in every final answer for a key.
func (a Answer) Identity() string {
	return fmt.Sprintf("%d\n%s\n%s\n\n%s", a.Status, a.Header.Get("Content-Type"), a.Header.Get("Location"), a.Body)
}

// Replayed reports whether the answer was stored before.
func (a Answer) Replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// Problem is a problem document.
type Problem struct {
	Type, Title, Detail, Code string
	Status                    int
	Retryable                 bool
	RequestID                 string `json:"request_id"`
	Errors                    []struct{ Pointer, Message string }
	Payment                   map[string]any
	DeclineCode               *string `json:"decline_code"`
	Resource                  struct{ ID, Href string }
}

// Problem reads the answer as one.
func (a Answer) Problem() (p Problem) {
	_ = json.Unmarshal(a.Body, &p)
	return p
}

// Final reports whether the answer is the last word: it is stored, and every retry gets it.
func (a Answer) Final() bool {
	return a.Err == nil && a.Status != http.StatusAccepted && a.Status < 500 && !a.Problem().Retryable
}

// Code is the problem's, empty if it is none.
func (a Answer) Code() string { return a.Problem().Code }

// Get reads a member of the answer's object by its path: Get("stripe", "charge").
func (a Answer) Get(path ...string) any {
	var v any
	_ = json.Unmarshal(a.Body, &v)
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// ID is the object's.
func (a Answer) ID() string {
	id, _ := a.Get("id").(string)
	return id
}

func (a Answer) String() string { return fmt.Sprintf("%d %v %s %v", a.Status, a.Header, a.Body, a.Err) }

// Do sends a request and reads the whole answer. Headers are "Name: value".
func (c Client) Do(method, path, body string, headers ...string) Answer {
	return c.DoContext(context.Background(), method, path, body, headers...)
}

// DoContext is Do for a client that may hang up.
func (c Client) DoContext(ctx context.Context, method, path, body string, headers ...string) Answer {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, reader)
	if err != nil {
		return Answer{Err: err}
	}
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case value == "-": // without it
			req.Header.Del(name)
		case name == "Authorization" || name == "Content-Type":
			req.Header.Set(name, value)
		default:
			req.Header.Add(name, value)
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: b.Bytes(), Err: err}
}

// Get reads.
func (c Client) Get(path string, headers ...string) Answer { return c.Do("GET", path, "", headers...) }

// Post sends a request with a key.
func (c Client) Post(path, key, body string, headers ...string) Answer {
	return c.Do("POST", path, body, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

// Order makes an order of ten dollars and returns its id.
func (c Client) Order() string {
	c.t.Helper()
	a := c.Post("/v1/orders", "order-"+unique(),
		`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`)
	require.Equal(c.t, http.StatusCreated, a.Status, a)
	return a.ID()
}

// PayBody is the request that Pay sends.
func PayBody(order, method string) string {
	return fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, method)
}

// Pay asks for a payment.
func (c Client) Pay(key, order, method string, headers ...string) Answer {
	return c.Post("/v1/payments", key, PayBody(order, method), headers...)
}

// Authorize asks for a payment that only reserves the money.
func (c Client) Authorize(key, order, method string, headers ...string) Answer {
	return c.Post("/v1/payments", key,
		fmt.Sprintf(`{"order_id":%q,"payment_method":%q,"capture":"manual"}`, order, method), headers...)
}

// Capture asks for an authorized payment to be captured; amount 0 asks for all of it.
func (c Client) Capture(key, payment string, amount int64, headers ...string) Answer {
	body := "{}"
	if amount != 0 {
		body = fmt.Sprintf(`{"amount":%d}`, amount)
	}
	return c.Post("/v1/payments/"+payment+"/capture", key, body, headers...)
}

// CancelPayment asks for a payment to be canceled.
func (c Client) CancelPayment(key, payment string, headers ...string) Answer {
	return c.Post("/v1/payments/"+payment+"/cancel", key, "{}", headers...)
}

// PayUntilFinal asks again with the same key for as long as the answer says that it is not the last word.
func (c Client) PayUntilFinal(key, order, method string) (a Answer) {
	c.t.Helper()
	Eventually(c.t, Patience, "the payment of "+key+" is final", func() bool {
		a = c.Pay(key, order, method)
		return a.Err == nil && a.Status != http.StatusAccepted && !a.Problem().Retryable
	})
	return a
}
