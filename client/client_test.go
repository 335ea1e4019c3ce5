package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What Do returns, after each fault on the way.
func TestDo(t *testing.T) {
	html := []string{"Content-Type", "text/html"}
	paying := func(id, status string) string {
		return fmt.Sprintf(`{"id":%q,"object":"payment","status":%q,"order_id":"ord_0","payment_method":"pm_card_visa"}`, id, status)
	}
	for name, test := range map[string]struct {
		faults   []fault
		status   int // of a final response
		final    bool
		err      error // its type, if there is no final response
		made     int
		requests int
	}{
		"Done":             {status: 201, final: true, made: 1, requests: 1},
		"CutBefore":        {faults: []fault{cutBefore, cutBefore}, status: 201, final: true, made: 1, requests: 3},
		"CutAfter":         {faults: []fault{cutAfter}, status: 201, final: true, made: 1, requests: 2},
		"CutInBody":        {faults: []fault{cutInBody, cutInBody}, status: 201, final: true, made: 1, requests: 3},
		"Unavailable":      {faults: []fault{says(503, problem(503, "unavailable"), "Retry-After", "0"), says(503, problem(503, "unavailable"))}, status: 201, final: true, made: 1, requests: 3},
		"InternalAfter":    {faults: []fault{doesAndSays(500, problem(500, "internal"))}, status: 201, final: true, made: 1, requests: 2},
		"ProxyPages":       {faults: []fault{doesAndSays(502, `<html>`), says(200, `<html>`), says(404, `<html>`), says(401, `{}`)}, status: 201, final: true, made: 1, requests: 5},
		"Maintenance":      {faults: []fault{says(200, `{"message":"maintenance"}`), says(201, `{"id":"req_1","message":"maintenance"}`)}, status: 201, final: true, made: 1, requests: 3},
		"GatewayConflict":  {faults: []fault{doesAndSays(409, `{"code":"Conflict","message":"the upstream closed the connection"}`), says(402, `{"status":402,"code":"quota_exceeded"}`)}, status: 201, final: true, made: 1, requests: 3},
		"GatewayObject":    {faults: []fault{says(200, `{"object":"error","status":503,"message":"maintenance"}`)}, status: 201, final: true, made: 1, requests: 2},
		"AbsoluteLocation": {faults: []fault{says(202, paying("obj_0", "processing"), "Location", "https://gateway/v1/payments/obj_0"), doesAndSays(202, paying("obj_0", "processing"), "Location", "/v1/payments/obj_0")}, status: 201, final: true, made: 1, requests: 3},
		"MaintenanceCut":   {faults: []fault{cutMaintenance, says(402, problem(402, "payment-declined"))}, status: 402, final: true, requests: 2},
		"MarkDropped":      {faults: []fault{cutInBodyOf("/v1/payments/obj_0"), dropsTheMark}, status: 201, final: true, made: 1, requests: 2},
		"ProxyPageFirst":   {faults: []fault{says(200, `<html>`), says(200, `<html`, html...)}, status: 201, final: true, made: 1, requests: 3},
		"ProxyPageCut":     {faults: []fault{cutPage}, status: 201, final: true, made: 1, requests: 2},
		"InFlight":         {faults: []fault{doesAndSays(409, problem(409, "idempotency-key-in-flight")), says(409, problem(409, "idempotency-key-in-flight"))}, status: 201, final: true, made: 1, requests: 3},
		"OtherPayment":     {faults: []fault{says(409, problem(409, "payment-in-progress"))}, status: 201, final: true, made: 1, requests: 2},
		"RateLimited":      {faults: []fault{says(429, problem(429, "rate-limited"))}, status: 201, final: true, made: 1, requests: 2},
		"Processing":       {faults: []fault{doesAndSays(202, paying("obj_0", "processing")), says(202, paying("obj_0", "processing"))}, status: 201, final: true, made: 1, requests: 3},
		"RequiresAction":   {faults: []fault{says(202, paying("obj_0", "requires_action"))}, status: 202, requests: 1},
		"Declined":         {faults: []fault{says(402, problem(402, "payment-declined"))}, status: 402, final: true, requests: 1},
		"Conflict":         {faults: []fault{says(409, problem(409, "order-already-paid"))}, status: 409, final: true, requests: 1},
		"Refused":          {faults: []fault{says(400, problem(400, "invalid-request"))}, err: new(RefusedError), requests: 1},
		"LimitedRefused":   {faults: []fault{says(429, problem(429, "rate-limited")), says(401, problem(401, "unauthenticated"))}, err: new(RefusedError), requests: 2},
		"CutThenRefused":   {faults: []fault{cutAfter, says(401, problem(401, "unauthenticated"))}, err: new(UnknownError), made: 1, requests: 2},
		"Mismatch":         {faults: []fault{says(422, problem(422, "idempotency-key-mismatch"))}, err: new(MismatchError), requests: 1},
		"Expired":          {faults: []fault{says(410, `{"type":"/problems/idempotency-key-expired","status":410,"code":"idempotency-key-expired","resource":{"id":"pay_1","href":"/v1/payments/pay_1"}}`)}, err: new(ExpiredError), requests: 1},
		"Redirect":         {faults: []fault{says(307, `{}`, "Location", "http://elsewhere.example/")}, err: new(UnknownError), requests: 1},
		"OtherOrder":       {faults: []fault{says(201, `{"id":"obj_0","object":"payment","order_id":"ord_9","payment_method":"pm_card_visa"}`)}, err: new(BrokenPromiseError), requests: 1},
		"OtherID":          {faults: []fault{says(202, paying("pay_1", "processing"))}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"OtherLocation":    {faults: []fault{says(202, paying("pay_1", "processing"), "Location", "/1"), says(202, paying("pay_1", "processing"), "Location", "/2")}, err: new(BrokenPromiseError), requests: 2},
		"DoneTwice":        {faults: []fault{cutInBody, says(201, paying("obj_0", "succeeded"))}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"DoneThenPending":  {faults: []fault{cutInBody, says(202, paying("obj_0", "processing"))}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"DoneThenDeclined": {faults: []fault{cutInBody, says(402, problem(402, "payment-declined"))}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"DoneThenNoKey":    {faults: []fault{cutInBody, says(401, problem(401, "unauthenticated"))}, err: new(UnknownError), made: 1, requests: 2},
		"LongBody":         {faults: []fault{says(201, strings.Repeat(" ", bodyMax+1), "Request-Id", "req_1")}, err: new(BrokenPromiseError), made: 1, requests: 2}, // it was a 201, and the next one is no replay
		"NotFound":         {faults: []fault{says(404, problem(404, "not-found"))}, err: new(RefusedError), requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{faults: test.faults}
			c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
			res, err := c.Do(t.Context(), payment(0))
			if test.err == nil && (err != nil || res.Status != test.status || res.Final != test.final) {
				t.Fatalf("it returned %+v, %v", res, err)
			}
			if test.err != nil && reflect.TypeOf(err) != reflect.TypeOf(test.err) {
				t.Fatalf("it returned %+v, %T %v", res, err, err)
			}
			if len(s.stored) != test.made || s.requests != test.requests {
				t.Fatalf("%d payments were made with %d requests", len(s.stored), s.requests)
			}
			if broken := new(BrokenPromiseError); errors.As(err, &broken) {
				// It is kept, and nothing is sent any more: each attempt could be another charge.
				for range 2 {
					_, err = c.Do(t.Context(), payment(0))
					again := new(BrokenPromiseError)
					if !errors.As(err, &again) || again.What != broken.What || again.Response.Status != broken.Response.Status || s.requests != test.requests {
						t.Fatalf("again it returned %v, with %d requests", err, s.requests)
					}
				}
				if open, err := c.o.Journal.Open(t.Context()); err != nil || len(open) != 0 {
					t.Fatal(open, err)
				}
			}
			if !test.final {
				return
			}
			again, err := c.Do(t.Context(), payment(0))
			if err != nil || again.Status != res.Status || string(again.Body) != string(res.Body) || !again.Final || s.requests != test.requests {
				t.Fatalf("again it returned %+v, %v, with %d requests", again, err, s.requests)
			}
		})
	}
}

// A refusal leaves the name free for the request that is right; all else keeps it.
func TestIntentKeepsItsRequest(t *testing.T) {
	s := &server{}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	s.faults = []fault{says(400, problem(400, "invalid-request"))}
	wrong := payment(0)
	wrong.Body = []byte(`{"order":"ord_0"}`)
	if _, err := c.Do(t.Context(), wrong); !errors.As(err, new(*RefusedError)) {
		t.Fatal(err)
	}
	if res, err := c.Do(t.Context(), payment(0)); err != nil || res.Status != 201 {
		t.Fatal(res, err)
	}
	if _, err := c.Do(t.Context(), wrong); !errors.Is(err, ErrIntentChanged) || !errors.Is(err, ErrNotSent) {
		t.Fatal(err)
	}
	other := payment(0)
	other.Body = []byte(` {"payment_method":"pm_card_visa", "order_id":"ord_0"}`) // means the same
	if res, err := c.Do(t.Context(), other); err != nil || !res.OK() {
		t.Fatal(res, err)
	}
	s.once(t, 1)
}

func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	s := &server{}
	for i, end := range []fault{kill(cutBefore), kill(cutAfter), kill(cutInBody)} {
		j := openFile(t, path)
		s.faults = []fault{end}
		s.mu = sync.Mutex{} // which the kill before left locked
		dies(t, func() { _, _ = newClient(t, s, j).Do(t.Context(), payment(i)) })
		_ = j.file.Close()
	}
	s.mu = sync.Mutex{}
	c := newClient(t, s, openFile(t, path))
	ended, err := c.Resume(t.Context())
	if err != nil || len(ended) != 3 {
		t.Fatal(ended, err)
	}
	for _, e := range ended {
		if e.Err != nil || !e.Response.OK() {
			t.Fatal(e)
		}
	}
	s.once(t, 3)
	if ended, err = c.Resume(t.Context()); err != nil || len(ended) != 0 {
		t.Fatal(ended, err)
	}
}

// What Do says was not sent, Resume does not send either.
func TestNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	_ = l.Close()
	c := newClient(t, nil, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Base, o.Timeout, o.HTTP = base, 100*time.Millisecond, nil })
	if _, err := c.Do(t.Context(), payment(0)); !errors.Is(err, ErrNotSent) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(canceled, payment(1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if outcomes, err := c.Resume(t.Context()); err != nil || len(outcomes) != 0 {
		t.Fatal(outcomes, err)
	}
}

// An attempt that was connected may have arrived, whatever refuses the later ones.
func TestConnectionLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if connection, err := l.Accept(); err == nil {
			_ = l.Close()
			_, _ = connection.Read(make([]byte, 1))
			_ = connection.Close()
		}
	}()
	c := newClient(t, nil, openFile(t, filepath.Join(t.TempDir(), "j")),
		func(o *Options) { o.Base, o.Timeout, o.HTTP = "http://"+l.Addr().String(), time.Second, nil })
	if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, new(*UnknownError)) || errors.Is(err, ErrNotSent) {
		t.Fatal(err)
	}
	if open, err := c.o.Journal.Open(t.Context()); err != nil || len(open) != 1 {
		t.Fatal(open, err)
	}
}

// net/http sends a request with an Idempotency-Key again if an idle connection turns out to be closed, and does not
// tell. The first may have arrived, so a refusal of the second says nothing.
func TestHiddenRetryOfTransport(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1: // leaves a connection that is idle
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id":"obj_0","object":"payment"}`)
		case 2:
			_, _ = io.ReadAll(r.Body)
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, problem(401, "unauthenticated"))
		}
	}))
	t.Cleanup(s.Close)
	c := newClient(t, nil, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Base, o.HTTP = s.URL, nil })
	order := Request{Intent: "other", Path: "/v1/other"}
	if _, err := c.Do(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	order.Intent = "another"
	if _, err := c.Do(t.Context(), order); !errors.As(err, new(*UnknownError)) {
		t.Fatal(err)
	}
	if requests.Load() != 3 {
		t.Fatalf("%d requests arrived, and not the one that net/http adds", requests.Load())
	}
}

// A refusal for the time being is a refusal when the time is over, and leaves the request free to be changed.
func TestLaterUntilTheDeadline(t *testing.T) {
	s := &server{faults: []fault{says(503, problem(503, "unavailable")), says(429, problem(429, "rate-limited"), "Retry-After", "3600")}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, new(*RefusedError)) {
		t.Fatal(err)
	}
	if open, err := c.o.Journal.Open(t.Context()); err != nil || len(open) != 0 {
		t.Fatal(open, err)
	}
}

// A server that wants more time than there is ends the call at once, not at the deadline.
func TestRetryAfterTheDeadline(t *testing.T) {
	s := &server{faults: []fault{doesAndSays(503, problem(503, "internal"), "Retry-After", "3600")}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	began := time.Now()
	var unknown *UnknownError
	if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, &unknown) || unknown.Response.Status != 503 || time.Since(began) > 30*time.Second {
		t.Fatal(err, time.Since(began))
	}
}

// A transport that reports no connections may have sent anything.
func TestUntracedTransportIsUnknown(t *testing.T) {
	s := &server{}
	for range 1000 {
		s.faults = append(s.faults, cutAfter)
	}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Timeout = 300 * time.Millisecond })
	_, err := c.Do(t.Context(), payment(0))
	if !errors.As(err, new(*UnknownError)) || errors.Is(err, ErrNotSent) {
		t.Fatal(err)
	}
	s.faults = nil
	if res, err := c.Do(t.Context(), payment(0)); err != nil || !res.OK() {
		t.Fatal(res, err)
	}
	s.once(t, 1)
}

// A server that refuses now what it may have executed before leaves an intent unknown, until the caller says what it was.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	s := &server{faults: []fault{cutBefore}}
	for range 100 {
		s.faults = append(s.faults, says(400, problem(400, "invalid-request")))
	}
	j := openFile(t, path)
	c := newClient(t, s, j)
	var unknown *UnknownError
	for range 2 {
		if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, &unknown) || unknown.Response.Status != 400 {
			t.Fatal(err)
		}
	}
	if err := c.Settle(t.Context(), unknown.Intent, *unknown.Response); err != nil {
		t.Fatal(err)
	}
	requests := s.requests
	_ = j.Close()
	c = newClient(t, s, openFile(t, path))
	if outcomes, err := c.Resume(t.Context()); err != nil || len(outcomes) != 0 {
		t.Fatal(outcomes, err)
	}
	if res, err := c.Do(t.Context(), payment(0)); err != nil || res.OK() || !res.Final || res.Status != 400 || s.requests != requests {
		t.Fatal(res, err)
	}
	for _, intent := range []string{unknown.Intent, "another"} {
		if err := c.Settle(t.Context(), intent, *unknown.Response); err == nil {
			t.Fatal("what is not open was settled")
		}
	}
}

// Two journals never give two intents one key, nor one intent two keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	if a, b := keyFor("A", "x"), keyFor("A", "x"); a != b || len(a) != 36 {
		t.Fatal(a, b)
	}
	if got := keyFor("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "order 17, payment 1"); got != "pk1-bsam526oo50dn2mn69taoetfn0dlveit" {
		t.Errorf("%s: another key for the same intent is another charge", got)
	}
	if keyFor("A", "x") == keyFor("B", "x") || keyFor("A", "x") == keyFor("A", "y") {
		t.Fatal("two things have one key")
	}
}

// What a response said is compared with one that another process gets.
func TestContradictionAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	s := &server{faults: []fault{says(202, `{"id":"pay_1","object":"payment","status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`), kill(cutBefore)}}
	j := openFile(t, path)
	dies(t, func() { _, _ = newClient(t, s, j).Do(t.Context(), payment(0)) })
	_ = j.file.Close()
	s.mu = sync.Mutex{}
	c := newClient(t, s, openFile(t, path))
	if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, new(*BrokenPromiseError)) {
		t.Fatal(err)
	}
}

// That a request was refused, or a server contradicted itself, is on the disk before the caller is told.
func TestRefusedAndBrokenAreDurable(t *testing.T) {
	for name, f := range map[string]fault{"Refused": says(400, problem(400, "invalid-request")), "Broken": says(201, `{"id":"pay_9","object":"payment","order_id":"ord_9"}`)} {
		t.Run(name, func(t *testing.T) {
			j := openFile(t, filepath.Join(t.TempDir(), "j"))
			if _, err := newClient(t, &server{faults: []fault{f}}, j).Do(t.Context(), payment(0)); err == nil || j.synced != j.size {
				t.Fatal(err, j.synced, j.size)
			}
		})
	}
}

// A journal that is used with another server, such as a copy of staging's in production: neither what is open nor what
// is final there is sent to it, or taken for what it has done.
func TestOtherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := openFile(t, path)
	staging, production := &server{faults: []fault{says(400, problem(400, "invalid-request"))}}, &server{}
	at := func(base string, former ...string) func(*Options) {
		return func(o *Options) { o.Base, o.FormerBases = base, former }
	}
	c := newClient(t, staging, j, at("HTTPS://user:secret@Staging.example:443/api/"))
	if _, err := c.Do(t.Context(), payment(2)); !errors.As(err, new(*RefusedError)) {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), payment(0)); err != nil {
		t.Fatal(err)
	}
	staging.faults = []fault{cutAfter, says(401, problem(401, "unauthenticated"))}
	if _, err := c.Do(t.Context(), payment(1)); !isUnknown(err) {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"base":"https://staging.example/api"`) || strings.Contains(string(text), "secret") {
		t.Fatalf("%s, %v", text, err)
	}

	c = newClient(t, production, j, at("https://pay.example"))
	refuses := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrOtherServer) || !errors.Is(err, ErrNotSent) || production.requests != 0 {
			t.Fatalf("%d requests, %v", production.requests, err)
		}
		for _, part := range []string{"https://staging.example/api", "https://pay.example", "FormerBases"} {
			if !strings.Contains(err.Error(), part) {
				t.Error("the message does not have ", part, ": ", err)
			}
		}
	}
	for i := range 2 {
		_, err := c.Do(t.Context(), payment(i))
		refuses(err)
	}
	outcomes, err := c.Resume(t.Context())
	if err != nil || len(outcomes) != 1 {
		t.Fatal(outcomes, err)
	}
	refuses(outcomes[0].Err)
	refuses(c.Settle(t.Context(), payment(1).Intent, Response{Status: 201}))
	stale := newClient(t, production, staleJournal{j, []Record{{Intent: payment(1).Intent, Base: "https://pay.example"}}}, at("https://pay.example"))
	if outcomes, err = stale.Resume(t.Context()); err != nil || len(outcomes) != 1 {
		t.Fatal(outcomes, err)
	}
	refuses(outcomes[0].Err)
	// What staging has refused it does not hold: this server may be asked.
	if _, err := c.Do(t.Context(), payment(2)); err != nil || production.requests != 1 {
		t.Fatal(err)
	}

	// The same server at another address.
	c = newClient(t, staging, j, at("https://moved.example", "https://STAGING.example/api//", "https://pay.example"))
	if outcomes, err := c.Resume(t.Context()); err != nil || len(outcomes) != 1 || outcomes[0].Err != nil || staging.last.URL.Host != "moved.example" {
		t.Fatal(outcomes, err)
	}
	for i := range 3 {
		if res, err := c.Do(t.Context(), payment(i)); err != nil || !res.OK() {
			t.Fatal(res, err)
		}
	}
	if _, err := New(Options{Base: "https://a.example", Journal: j, FormerBases: []string{"b.example"}}); err == nil {
		t.Error("a former base that is no URL was taken")
	}
}

// What reads needs no key, and is not written to the journal.
func TestReadsAreRefused(t *testing.T) {
	s := &server{}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	for _, method := range []string{"GET", "HEAD", "get"} {
		_, err := c.Do(t.Context(), Request{Intent: "read", Path: "/v1/payments/pay_1", Method: method})
		if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "needs no key") {
			t.Error(method, err)
		}
	}
	if open, err := c.o.Journal.Open(t.Context()); err != nil || len(open) != 0 || s.requests != 0 {
		t.Fatal(open, err, s.requests)
	}
}

func TestSameJSON(t *testing.T) {
	for _, other := range []string{`{"a":1}}`, `{"a":1}]`, `{"a":1} {}`, `{"a":1},`} {
		if sameJSON([]byte(`{"a":1}`), []byte(other)) {
			t.Error(other)
		}
	}
	if !sameJSON([]byte(`{"a":1}`), []byte(" { \"a\" : 1 }\n")) {
		t.Error("white space makes another request")
	}
}

func TestResponsePrintsAsText(t *testing.T) {
	r := response(402, `{"code":"payment-declined"}`, "Content-Type", "application/problem+json")
	if got := fmt.Sprintf("%v", r); got != `402 application/problem+json {"code":"payment-declined"}` {
		t.Error(got)
	}
	if got := response(500, strings.Repeat("a", 199)+"ä").String(); got != "500 (no Content-Type) "+strings.Repeat("a", 199)+"…" {
		t.Error(got)
	}
	if got := fmt.Sprint((*Response)(nil), response(204, "")); got != "no response 204 (no Content-Type)" {
		t.Error(got)
	}
}

func TestNormalBase(t *testing.T) {
	for base, want := range map[string]string{
		"https://pay.example.com": "https://pay.example.com", "HTTPS://Pay.Example.com:443/": "https://pay.example.com",
		"http://pay.example:80/a/": "http://pay.example/a", "http://pay.example:443": "http://pay.example:443", "http://pay.example:/A%2fb": "http://pay.example/A%2fb",
		"http://[::1]:8080/": "http://[::1]:8080", "https://user:secret@pay.example": "https://pay.example",
	} {
		if got, err := normalBase(base); err != nil || got != want {
			t.Errorf("%s: %s, %v", base, got, err)
		}
	}
	if _, err := normalBase("https://user:secret@pay.example:port"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// staleJournal lists what was open a while ago.
type staleJournal struct {
	Journal
	listed []Record
}

func (j staleJournal) Open(context.Context) ([]Record, error) { return j.listed, nil }

// An intent that is refused after Resume has listed it is not begun again, and one that has become final is not sent again.
func TestResumeOfWhatHasEnded(t *testing.T) {
	j := openFile(t, filepath.Join(t.TempDir(), "j"))
	s := &server{faults: []fault{says(401, problem(401, "unauthenticated"))}}
	c := newClient(t, s, j)
	if _, err := c.Do(t.Context(), payment(0)); !errors.As(err, new(*RefusedError)) {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), payment(1)); err != nil {
		t.Fatal(err)
	}
	c = newClient(t, s, staleJournal{j, []Record{{Intent: payment(0).Intent, Base: "http://pay.example"}, {Intent: payment(1).Intent, Base: "http://pay.example"}}})
	if outcomes, err := c.Resume(t.Context()); err != nil || len(outcomes) != 0 || s.requests != 2 {
		t.Fatal(outcomes, err, s.requests)
	}
}

func TestConcurrentCallsOfOneIntent(t *testing.T) {
	s := &server{faults: []fault{cutAfter}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	var all sync.WaitGroup
	for range 100 {
		all.Add(1)
		go func() {
			defer all.Done()
			if res, err := c.Do(t.Context(), payment(0)); err != nil || !res.OK() {
				t.Error(res, err)
			}
		}()
	}
	all.Wait()
	s.once(t, 1)
	if s.requests != 2 {
		t.Fatalf("%d requests were sent", s.requests)
	}
	if len(c.turns.busy) != 0 {
		t.Fatal("turns are left")
	}
}

// Two clients of one process, with other headers perhaps, may share a journal in a file. What one of them is refused says
// nothing of what the other sent under the same key.
func TestRefusalOfOneClientDoesNotUndoAnother(t *testing.T) {
	t.Parallel()
	for name, resumes := range map[string]bool{"Do": false, "Resume": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openFile(t, filepath.Join(t.TempDir(), "intents"))
			s, other := &server{}, &server{}
			arrived, refuse := make(chan struct{}), make(chan struct{})
			other.faults = []fault{func(*http.Request, func() *http.Response) (*http.Response, error) {
				close(arrived)
				<-refuse
				return answer(401, problem(401, "unauthenticated")), nil
			}}
			refused := make(chan error, 1)
			go func() {
				_, err := newClient(t, other, j).Do(context.Background(), payment(0))
				refused <- err
			}()
			<-arrived
			c := newClient(t, s, j)
			if resumes {
				if outcomes, err := c.Resume(t.Context()); err != nil || len(outcomes) != 1 || outcomes[0].Err != nil {
					t.Fatal(outcomes, err)
				}
			} else if _, err := c.Do(t.Context(), payment(0)); err != nil {
				t.Fatal(err)
			}
			close(refuse)
			var unknown *UnknownError
			if err := <-refused; !errors.As(err, &unknown) {
				t.Fatalf("the other client's request was executed, and this one returned: %v", err)
			}
			res, err := c.Do(t.Context(), payment(0))
			if err != nil || !res.OK() || s.requests != 1 {
				t.Fatalf("%v, %v, after %d requests", res, err, s.requests)
			}
		})
	}
}

// TestRefusalWhileAnotherClientIsInFlight: a request that may yet be executed is not said to be refused.
func TestRefusalWhileAnotherClientIsInFlight(t *testing.T) {
	t.Parallel()
	for name, resumes := range map[string]bool{"Do": false, "Resume": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openFile(t, filepath.Join(t.TempDir(), "intents"))
			held := func(response func(execute func() *http.Response) *http.Response) (s *server, arrived, release chan struct{}) {
				arrived, release = make(chan struct{}), make(chan struct{})
				return &server{faults: []fault{func(_ *http.Request, execute func() *http.Response) (*http.Response, error) {
					close(arrived)
					<-release
					return response(execute), nil
				}}}, arrived, release
			}
			refuses, refuseArrived, refuse := held(func(func() *http.Response) *http.Response {
				return answer(401, problem(401, "unauthenticated"))
			})
			executes, executeArrived, execute := held(func(execute func() *http.Response) *http.Response { return execute() })

			refused, done := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := newClient(t, refuses, j).Do(context.Background(), payment(0))
				refused <- err
			}()
			<-refuseArrived
			go func() {
				c := newClient(t, executes, j)
				if resumes {
					outcomes, err := c.Resume(context.Background())
					if len(outcomes) == 1 {
						err = errors.Join(err, outcomes[0].Err)
					}
					done <- err
					return
				}
				_, err := c.Do(context.Background(), payment(0))
				done <- err
			}()
			<-executeArrived
			close(refuse)
			var unknown *UnknownError
			if err := <-refused; !errors.As(err, &unknown) {
				t.Errorf("the other client's request is in flight, and this one returned: %v", err)
			}
			changed := payment(0)
			changed.Body = []byte(`{"another":"request"}`)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := newClient(t, &server{}, j).Do(ctx, changed); !errors.Is(err, ErrIntentChanged) {
				t.Errorf("the intent can be begun with another request while one is in flight: %v", err)
			}
			close(execute)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	s := &server{faults: []fault{cutBefore}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) {
		o.Header = http.Header{"Authorization": {"Bearer sk"}}
	})
	if _, err := c.Do(t.Context(), payment(0)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Authorization": "Bearer sk", "Content-Type": "application/json", "Prefer": "wait=10",
		"Idempotency-Key": keyFor(c.o.Journal.ID(), "order 0, payment 1")} {
		if got := s.last.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	quoted := Draft
	quoted.Quoted = true
	c = newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Profile = &quoted })
	if _, err := c.Do(t.Context(), payment(1)); err != nil {
		t.Fatal(err)
	}
	if key := s.last.Header.Get("Idempotency-Key"); !strings.HasPrefix(key, `"pk1-`) || !strings.HasSuffix(key, `"`) {
		t.Error(key)
	}
}

func TestNewRefuses(t *testing.T) {
	j := openFile(t, filepath.Join(t.TempDir(), "j"))
	for name, o := range map[string]Options{
		"NoJournal":  {Base: "http://a"},
		"NoBase":     {Journal: j},
		"NoScheme":   {Base: "pay.example.com", Journal: j},
		"Query":      {Base: "http://a/?b=c", Journal: j},
		"OneKey":     {Base: "http://a", Journal: j, Header: http.Header{"idempotency-KEY": {"k"}}},
		"NoClassify": {Base: "http://a", Journal: j, Profile: &Profile{}},
	} {
		if _, err := New(o); err == nil {
			t.Error(name)
		}
	}
	c := newClient(t, &server{}, j)
	for name, q := range map[string]Request{"NoIntent": {Path: "/v1/orders"}, "NoSlash": {Intent: "a", Path: "v1/orders"},
		"Fragment": {Intent: "a", Path: "/v1/orders#1"}, "Escape": {Intent: "a", Path: "/%zz"}, "Method": {Intent: "a", Method: "P O", Path: "/"},
		"NotUTF8": {Intent: "a\xff", Path: "/"}, "Zero": {Intent: "a\x00", Path: "/"}} {
		if _, err := c.Do(t.Context(), q); !errors.Is(err, ErrNotSent) {
			t.Error(name, err)
		}
	}
	if open, err := j.Open(t.Context()); err != nil || len(open) != 0 {
		t.Error(open, err)
	}
}

// A clock that was ahead when the intent began says nothing of its age, and a gateway that drops the mark of a replay, or
// makes a Location absolute, contradicts nothing.
func TestGatewaysAndClocks(t *testing.T) {
	c := &Client{now: time.Now, profile: Draft}
	for ahead, want := range map[time.Duration]bool{48 * time.Hour: true, time.Minute: false, -time.Hour: false, -24 * time.Hour: true} {
		if got := c.tooOld(Record{BegunAt: time.Now().Add(ahead)}); got != want {
			t.Errorf("begun %s ahead: too old is %v", ahead, got)
		}
	}
	seen := Seen{Done: true, Location: "/v1/payments/obj_0"}
	for now, want := range map[Seen]bool{
		{ID: "obj_0"}: true, {ID: "obj_1"}: false, {Location: "https://gateway/v1/payments/obj_0"}: true, {}: false,
	} {
		if got := sameObject(seen, now); got != want {
			t.Errorf("%+v is the same: %v", now, got)
		}
	}
}

// A key that the server may have forgotten is not sent again.
func TestKeyLifetime(t *testing.T) {
	s := &server{faults: []fault{kill(cutAfter)}}
	j := openFile(t, filepath.Join(t.TempDir(), "j"))
	c := newClient(t, s, j, func(o *Options) { o.Profile = &Stripe })
	dies(t, func() { _, _ = c.Do(t.Context(), payment(0)) })
	s.mu = sync.Mutex{}
	c = newClient(t, s, j, func(o *Options) { o.Profile = &Stripe })
	c.now = func() time.Time { return time.Now().Add(24 * time.Hour) }
	if _, err := c.Do(t.Context(), payment(0)); !errors.Is(err, ErrKeyTooOld) || !errors.As(err, new(*UnknownError)) || errors.Is(err, ErrNotSent) {
		t.Fatal(err)
	}
	if s.requests != 1 {
		t.Fatal("it was sent again")
	}
}
