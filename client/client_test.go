package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// What goes wrong on the way, and what Do returns in the end.
func TestDo(t *testing.T) {
	const inFlight, unavailable = `{"code":"idempotency-key-in-flight","retryable":true}`, `{"code":"unavailable","retryable":true}`
	for name, test := range map[string]struct {
		faults   []fault
		status   int // of a final answer
		final    bool
		err      error // of another end; its type
		made     int
		requests int
	}{
		"Done":            {status: 201, final: true, made: 1, requests: 1},
		"CutBefore":       {faults: []fault{cutBefore, cutBefore}, status: 201, final: true, made: 1, requests: 3},
		"CutAfter":        {faults: []fault{cutAfter}, status: 201, final: true, made: 1, requests: 2},
		"CutInBody":       {faults: []fault{cutInBody, cutInBody}, status: 201, final: true, made: 1, requests: 3},
		"Unavailable":     {faults: []fault{says(503, unavailable, "Retry-After", "0"), doesAndSays(503, unavailable)}, status: 201, final: true, made: 1, requests: 3},
		"InternalAfter":   {faults: []fault{doesAndSays(500, `{"code":"internal","retryable":true}`)}, status: 201, final: true, made: 1, requests: 2},
		"ProxyPage":       {faults: []fault{doesAndSays(502, `<html>`), doesAndSays(200, `<html>`)}, status: 201, final: true, made: 1, requests: 3},
		"InFlight":        {faults: []fault{doesAndSays(409, inFlight), says(409, inFlight)}, status: 201, final: true, made: 1, requests: 3},
		"PaymentAtWork":   {faults: []fault{says(409, `{"code":"payment-in-progress","retryable":true}`)}, status: 201, final: true, made: 1, requests: 2},
		"RateLimited":     {faults: []fault{says(429, `{"code":"rate-limited","retryable":true}`)}, status: 201, final: true, made: 1, requests: 2},
		"Processing":      {faults: []fault{doesAndSays(202, `{"id":"obj_0","status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`)}, status: 201, final: true, made: 1, requests: 2},
		"RequiresAction":  {faults: []fault{says(202, `{"id":"obj_0","status":"requires_action","order_id":"ord_0","payment_method":"pm_card_visa"}`)}, status: 202, requests: 1},
		"Declined":        {faults: []fault{says(402, `{"code":"payment-declined"}`)}, status: 402, final: true, requests: 1},
		"Conflict":        {faults: []fault{says(409, `{"code":"order-already-paid"}`)}, status: 409, final: true, requests: 1},
		"Refused":         {faults: []fault{says(400, `{"code":"invalid-request"}`)}, err: new(RefusedError), requests: 1},
		"LimitedRefused":  {faults: []fault{says(429, `{"code":"rate-limited","retryable":true}`), says(401, `{"code":"unauthorized"}`)}, err: new(RefusedError), requests: 2},
		"CutThenRefused":  {faults: []fault{cutAfter, says(401, `{"code":"unauthorized"}`)}, err: new(UnknownError), made: 1, requests: 2},
		"Mismatch":        {faults: []fault{says(422, `{"code":"idempotency-key-mismatch"}`)}, err: new(MismatchError), requests: 1},
		"Expired":         {faults: []fault{says(410, `{"code":"idempotency-key-expired","resource":{"id":"pay_1","href":"/v1/payments/pay_1"}}`)}, err: new(ExpiredError), requests: 1},
		"Redirect":        {faults: []fault{says(307, `{}`, "Location", "http://elsewhere.example/")}, err: new(UnknownError), requests: 1},
		"OtherOrder":      {faults: []fault{says(201, `{"id":"obj_0","order_id":"ord_9","payment_method":"pm_card_visa"}`)}, err: new(BrokenPromiseError), requests: 1},
		"OtherId":         {faults: []fault{says(202, `{"id":"pay_1","status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`)}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"OtherLocation":   {faults: []fault{says(202, `{"status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`, "Location", "/1"), says(202, `{"status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`, "Location", "/2")}, err: new(BrokenPromiseError), requests: 2},
		"DoneTwice":       {faults: []fault{cutInBody, says(201, `{"id":"obj_0","order_id":"ord_0","payment_method":"pm_card_visa"}`)}, err: new(BrokenPromiseError), made: 1, requests: 2},
		"AnswerTooLong":   {faults: []fault{says(201, strings.Repeat(" ", bodyMax+1))}, err: new(BrokenPromiseError), made: 1, requests: 2}, // it said 201, and the next is no replay
		"NothingInsideOK": {faults: []fault{says(404, `{"code":"not-found"}`)}, err: new(RefusedError), requests: 1},
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
	s.faults = []fault{says(400, `{"code":"invalid-request"}`)}
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

// What the caller was told was not sent is not sent later.
func TestNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	_ = l.Close()
	path := filepath.Join(t.TempDir(), "j")
	c := newClient(t, nil, openFile(t, path), func(o *Options) { o.Base, o.Timeout, o.HTTP = base, 100*time.Millisecond, nil })
	if _, err := c.Do(t.Context(), payment(0)); !errors.Is(err, ErrNotSent) {
		t.Fatal(err)
	}
	if ended, err := c.Resume(t.Context()); err != nil || len(ended) != 0 {
		t.Fatal(ended, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(canceled, payment(1)); err == nil {
		t.Fatal("it was done in a context that had ended")
	}
}

// A transport that does not say when it connects may have sent what it says it did not.
func TestCutIsUnknown(t *testing.T) {
	s := &server{}
	for range 1000 {
		s.faults = append(s.faults, cutAfter)
	}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Timeout = 50 * time.Millisecond })
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
		"NoJournal": {Base: "http://a"},
		"NoBase":    {Journal: j},
		"NoScheme":  {Base: "pay.example.com", Journal: j},
		"OneKey":    {Base: "http://a", Journal: j, Header: http.Header{"Idempotency-Key": {"k"}}},
	} {
		if _, err := New(o); err == nil {
			t.Error(name)
		}
	}
	c := newClient(t, &server{}, j)
	for _, q := range []Request{{Path: "/v1/orders"}, {Intent: "a", Path: "v1/orders"}} {
		if _, err := c.Do(t.Context(), q); !errors.Is(err, ErrNotSent) {
			t.Error(err)
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
