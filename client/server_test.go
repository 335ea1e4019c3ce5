package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// server is an API that keeps payonce's promises, in memory, and counts what it has done. It is the transport of the
// client under test. faults are what becomes of the next requests, in their order.
type server struct {
	mu       sync.Mutex
	stored   map[string]stored
	done     map[string]int // by body
	requests int
	faults   []fault
	last     *http.Request
}

type stored struct {
	body   string
	answer *http.Response
	bytes  string
}

// fault has the server answer something else. execute does what was asked, and returns the true answer.
type fault func(q *http.Request, execute func() *http.Response) (*http.Response, error)

func (s *server) RoundTrip(q *http.Request) (*http.Response, error) {
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.last = q
	execute := func() *http.Response { return s.execute(q, string(body)) }
	if len(s.faults) > 0 {
		next := s.faults[0]
		s.faults = s.faults[1:]
		return next(q, execute)
	}
	return execute(), nil
}

func (s *server) execute(q *http.Request, body string) *http.Response {
	if s.stored == nil {
		s.stored, s.done = map[string]stored{}, map[string]int{}
	}
	key := q.Header.Get("Idempotency-Key")
	if before, ok := s.stored[key]; ok {
		if before.body != body {
			return answer(422, problem(422, "idempotency-key-mismatch"))
		}
		return answer(before.answer.StatusCode, before.bytes, "Idempotent-Replayed", "true", "Request-Id", "req_2")
	}
	s.done[body]++
	var sent map[string]any
	_ = json.Unmarshal([]byte(body), &sent)
	sent["id"] = fmt.Sprint("obj_", len(s.stored))
	sent["object"] = "payment"
	text, _ := json.Marshal(sent)
	s.stored[key] = stored{body, answer(201, ""), string(text)}
	return answer(201, string(text), "Request-Id", "req_1")
}

func answer(status int, body string, headers ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(body))}
	for i := 0; i+1 < len(headers); i += 2 {
		res.Header.Set(headers[i], headers[i+1])
	}
	return res
}

// problem is a problem document as payonce sends it.
func problem(status int, code string) string {
	retryable := code == "idempotency-key-in-flight" || code == "payment-in-progress" || code == "rate-limited" ||
		code == "unavailable" || code == "internal"
	return fmt.Sprintf(`{"type":"/problems/%s","title":"…","status":%d,"code":%q,"retryable":%t,"request_id":"req_1"}`,
		code, status, code, retryable)
}

// The faults.

func says(status int, body string, headers ...string) fault {
	return func(*http.Request, func() *http.Response) (*http.Response, error) {
		return answer(status, body, headers...), nil
	}
}

func doesAndSays(status int, body string, headers ...string) fault {
	return func(_ *http.Request, execute func() *http.Response) (*http.Response, error) {
		execute()
		return answer(status, body, headers...), nil
	}
}

var errCut = errors.New("the connection was cut")

func cutBefore(*http.Request, func() *http.Response) (*http.Response, error) { return nil, errCut }

func cutAfter(_ *http.Request, execute func() *http.Response) (*http.Response, error) {
	execute()
	return nil, errCut
}

// cutInBody loses the answer after its status.
func cutInBody(_ *http.Request, execute func() *http.Response) (*http.Response, error) {
	res := execute()
	res.Body = io.NopCloser(io.MultiReader(bytes.NewBufferString(`{"id`), failing{}))
	return res, nil
}

// cutInBodyOf loses the answer after its Location.
func cutInBodyOf(location string) fault {
	return func(q *http.Request, execute func() *http.Response) (*http.Response, error) {
		res, err := cutInBody(q, execute)
		res.Header.Set("Location", location)
		return res, err
	}
}

// dropsTheMark is a gateway that lets pass only the headers that it knows.
func dropsTheMark(_ *http.Request, execute func() *http.Response) (*http.Response, error) {
	res := execute()
	res.Header.Del("Idempotent-Replayed")
	return res, nil
}

// cutPage is the page of a proxy, of which the end is lost.
func cutPage(*http.Request, func() *http.Response) (*http.Response, error) {
	res := answer(200, "", "Content-Type", "text/html; charset=utf-8")
	res.Body = io.NopCloser(io.MultiReader(bytes.NewBufferString(`<html`), failing{}))
	return res, nil
}

// cutMaintenance is what a gateway says by itself, and of which the end is lost.
func cutMaintenance(*http.Request, func() *http.Response) (*http.Response, error) {
	res := answer(201, "", "Content-Type", "application/json")
	res.Body = io.NopCloser(io.MultiReader(bytes.NewBufferString(`{"message`), failing{}))
	return res, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errCut }

// kill is the end of the process: what follows it in the program is never run.
func kill(fault fault) fault {
	return func(q *http.Request, execute func() *http.Response) (*http.Response, error) {
		_, _ = fault(q, execute)
		panic(killed{})
	}
}

type killed struct{}

// dies runs what ends in a kill.
func dies(t *testing.T, run func()) {
	t.Helper()
	defer func() {
		if r := recover(); r == nil {
			t.Fatal("it was not killed")
		} else if _, ok := r.(killed); !ok {
			panic(r)
		}
	}()
	run()
}

func openFile(t *testing.T, path string) *File {
	t.Helper()
	j, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.file.Close() })
	return j
}

func newClient(t *testing.T, s http.RoundTripper, j Journal, changes ...func(*Options)) *Client {
	t.Helper()
	o := Options{Base: "http://pay.example", Journal: j, HTTP: s, Timeout: time.Minute}
	for _, change := range changes {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.retries.scale = 1e-4
	return c
}

func payment(n int) Request {
	return Request{Intent: fmt.Sprintf("order %d, payment 1", n), Path: "/v1/payments",
		Body: fmt.Appendf(nil, `{"order_id":"ord_%d","payment_method":"pm_card_visa"}`, n)}
}

// once fails unless the server has done each of n payments once.
func (s *server) once(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		if got := s.done[string(payment(i).Body)]; got != 1 {
			t.Fatalf("payment %d was made %d times", i, got)
		}
	}
	if len(s.done) != n {
		t.Fatalf("%d payments were made, and %d were asked for", len(s.done), n)
	}
}
