package client

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func response(status int, body string, headers ...string) *Response {
	r := &Response{Status: status, Header: http.Header{}, Body: []byte(body)}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func TestPayonceClasses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		want   Class
	}{
		{200, `{"object":"order","status":"canceled"}`, ClassFinal},
		{201, `{"object":"payment","status":"succeeded"}`, ClassFinal},
		{201, `{"object":"payment","status":"authorized"}`, ClassFinal},
		{202, `{"object":"payment","status":"processing"}`, ClassPending},
		{202, `{"object":"payment","status":"authorized"}`, ClassPending},
		{202, `{"object":"refund","status":"pending"}`, ClassPending},
		{202, `{"object":"payment","status":"requires_action"}`, ClassCaller},
		{400, problem(400, "idempotency-key-missing"), ClassRefused},
		{400, problem(400, "idempotency-key-invalid"), ClassRefused},
		{400, problem(400, "invalid-request"), ClassRefused},
		{401, problem(401, "unauthenticated"), ClassRefused},
		{402, problem(402, "payment-declined"), ClassFinal},
		{402, problem(402, "payment-failed"), ClassFinal},
		{403, problem(403, "forbidden"), ClassRefused},
		{404, problem(404, "not-found"), ClassRefused},
		{405, problem(405, "method-not-allowed"), ClassRefused},
		{409, problem(409, "idempotency-key-in-flight"), ClassRetry},
		{409, problem(409, "payment-in-progress"), ClassLater},
		{409, problem(409, "order-already-paid"), ClassFinal},
		{409, problem(409, "order-not-payable"), ClassFinal},
		{409, problem(409, "order-not-cancelable"), ClassFinal},
		{409, problem(409, "payment-not-cancelable"), ClassFinal},
		{409, problem(409, "payment-not-refundable"), ClassFinal},
		{409, problem(409, "payment-not-capturable"), ClassFinal},
		{409, problem(409, "capture-exceeds-authorization"), ClassFinal},
		{409, problem(409, "refund-exceeds-payment"), ClassFinal},
		{409, problem(409, "payment-disputed"), ClassFinal},
		{409, problem(409, "out-of-stock"), ClassFinal},
		{410, problem(410, "idempotency-key-expired"), ClassExpired},
		{413, problem(413, "payload-too-large"), ClassRefused},
		{415, problem(415, "unsupported-media-type"), ClassRefused},
		{422, problem(422, "idempotency-key-mismatch"), ClassMismatch},
		{429, problem(429, "rate-limited"), ClassLater},
		{500, problem(500, "internal"), ClassRetry},
		{503, problem(503, "unavailable"), ClassLater},

		// Not from payonce.
		{200, `<html>`, ClassRetry},
		{200, ``, ClassRetry},
		{201, `{"id":`, ClassRetry},
		{301, ``, ClassUnclear},
		{304, `{}`, ClassUnclear},
		{307, `{}`, ClassUnclear},
		{400, `<html>`, ClassRetry},
		{401, `{"message":"Unauthorized"}`, ClassRetry},
		{402, `{"error":"pay your proxy"}`, ClassRetry},
		{402, `{"status":402,"code":"quota_exceeded"}`, ClassRetry},
		{403, `{"code":"forbidden","message":"blocked"}`, ClassRetry},
		{404, `404 page not found`, ClassRetry},
		{409, `{}`, ClassRetry},
		{409, `{"Code":"Conflict","type":"https://gateway.example/conflict"}`, ClassRetry},
		{200, `{"object":"error","status":503}`, ClassRetry},
		{422, `[]`, ClassRetry},
		{429, ``, ClassRetry},
		{502, `<html>`, ClassRetry},
		{503, `upstream connect error`, ClassRetry},
		{504, `{}`, ClassRetry},
	} {
		if got := Payonce.Classify(response(test.status, test.body)); got != test.want {
			t.Errorf("%d %s: %s, not %s", test.status, test.body, got, test.want)
		}
	}
}

func TestDraftClasses(t *testing.T) {
	t.Parallel()
	want := map[int]Class{402: ClassFinal, 409: ClassRetry, 408: ClassRetry, 425: ClassRetry, 410: ClassExpired, 422: ClassMismatch, 429: ClassLater, 202: ClassPending}
	for status := 200; status < 600; status++ {
		expected, ok := want[status]
		if !ok {
			expected = map[int]Class{2: ClassFinal, 3: ClassUnclear, 4: ClassRefused, 5: ClassRetry}[status/100]
		}
		if got := Draft.Classify(response(status, "")); got != expected {
			t.Errorf("%d: %s, not %s", status, got, expected)
		}
	}
}

func TestStripeClasses(t *testing.T) {
	t.Parallel()
	fault := func(kind string) string { return fmt.Sprintf(`{"error":{"type":%q,"message":"…"}}`, kind) }
	const replayed, advice = "Idempotent-Replayed", "Stripe-Should-Retry"
	for _, test := range []struct {
		status  int
		body    string
		headers []string
		want    Class
	}{
		{200, `{"object":"payment_intent","status":"succeeded"}`, nil, ClassFinal},
		{200, `{"object":"payment_intent","status":"requires_action"}`, []string{replayed, "true"}, ClassFinal},
		{200, `{"object":`, nil, ClassRetry},
		{302, ``, nil, ClassUnclear},
		{400, fault("invalid_request_error"), nil, ClassRefused},
		{400, fault("invalid_request_error"), []string{replayed, "true"}, ClassFinal},
		{400, fault("invalid_request_error"), []string{advice, "false"}, ClassRefused},
		{400, fault("idempotency_error"), nil, ClassMismatch},
		{400, fault("idempotency_error"), []string{advice, "false"}, ClassMismatch},
		{401, fault("invalid_request_error"), nil, ClassRefused},
		{402, fault("card_error"), nil, ClassFinal},
		{402, fault("card_error"), []string{replayed, "true", advice, "false"}, ClassFinal},
		{403, fault("invalid_request_error"), nil, ClassRefused},
		{404, fault("invalid_request_error"), nil, ClassRefused},
		{404, `<html>`, nil, ClassRetry},
		{409, fault("invalid_request_error"), nil, ClassRetry},
		{409, fault("idempotency_error"), nil, ClassRetry},
		{409, fault("invalid_request_error"), []string{advice, "true"}, ClassRetry},
		{424, fault("api_error"), nil, ClassRetry},
		{424, fault("api_error"), []string{replayed, "true"}, ClassUnclear},
		{429, fault("invalid_request_error"), nil, ClassLater},
		{429, `slow down`, nil, ClassRetry},
		{500, fault("api_error"), nil, ClassRetry},
		{500, fault("api_error"), []string{advice, "true"}, ClassRetry},
		{500, fault("api_error"), []string{advice, "false"}, ClassUnclear},
		{500, fault("api_error"), []string{replayed, "true"}, ClassUnclear},
		{500, fault("api_error"), []string{replayed, "true", advice, "true"}, ClassUnclear},
		{502, `<html>`, nil, ClassRetry},
		{503, fault("api_error"), nil, ClassRetry},
		{503, fault("api_error"), []string{replayed, "true"}, ClassUnclear},
	} {
		if got := Stripe.Classify(response(test.status, test.body, test.headers...)); got != test.want {
			t.Errorf("%d %s %v: %s, not %s", test.status, test.body, test.headers, got, test.want)
		}
	}
}

// A success that is not about the request is not one. What the server may add, or leave out, is.
func TestPayonceCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, sent, got, contains string }{
		{"/v1/orders", `{"currency":"usd","items":[]}`, `{"currency":"usd","customer_reference":null}`, ""},
		{"/v1/orders", `{"currency":"usd"}`, `{"currency":"eur"}`, "currency"},
		{"/v1/orders", `{"currency":"usd","customer_reference":"a"}`, `{"currency":"usd","customer_reference":"b"}`, "customer_reference"},
		{"/v1/orders", `{"currency":{"a":1}}`, `{"currency":{"a":1}}`, ""}, // not comparable by ==
		{"/v1/payments", `{"order_id":"ord_1","payment_method":"pm_1"}`, `{"order_id":"ord_1","payment_method":"pm_1","capture":"automatic"}`, ""},
		{"/v1/payments?a=b", `{"order_id":"ord_1"}`, `{"order_id":"ord_2"}`, "order_id"},
		{"/v1/payments", `{"order_id":"ord_1"}`, `{}`, "order_id"},
		{"/v1/payments", `{"order_id":"ord_1","capture":"manual"}`, `{"order_id":"ord_1","capture":"automatic"}`, "capture"},
		{"/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_1","amount":10}`, ""},
		{"/v1/payments/pay_1/refunds", ``, `{"payment_id":"pay_1","amount":10}`, ""},
		{"/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_1","amount":11}`, "amount"},
		{"/v1/payments/pay_1/refunds", `{"amount":10}`, `{"payment_id":"pay_2","amount":10}`, "payment_id"},
		{"/v1/payments/pay_1/capture", `{}`, `{"id":"pay_1"}`, ""},
		{"/v1/payments/pay_1/capture", `{}`, `{"id":"pay_2"}`, "pay_2"},
		{"/v1/payments/pay%5F1/capture", `{}`, `{"id":"pay_1"}`, ""},
		{"/v1/payments/pay%5F1/capture", `{}`, `{"id":"pay_2"}`, "pay_1"},
		{"/v1/orders/ord_1/cancel", ``, `{"id":"ord_2"}`, "ord_2"},
		{"/v1/checkouts", `{"currency":"usd"}`, `{"id":"chk_1"}`, ""}, // part: checkouts
		{"/v1/payments", `{"order_id":"ord_1"}`, `[]`, ""},
	} {
		got := Payonce.Check(Request{Path: test.path, Body: []byte(test.sent)}, response(201, test.got))
		if (got == "") != (test.contains == "") || !strings.Contains(got, test.contains) {
			t.Errorf("%s %s %s: %q", test.path, test.sent, test.got, got)
		}
	}
}

// Stripe repeats a 500 for as long as it keeps the key: the first is retried, to see whether it is stored, and no more.
func TestStripeRepeatsAnError(t *testing.T) {
	const body = `{"error":{"type":"api_error"}}`
	s := &server{faults: []fault{says(500, body), says(500, body, "Idempotent-Replayed", "true"), says(500, body, "Idempotent-Replayed", "true")}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Profile = &Stripe })
	charge := Request{Intent: "a", Path: "/v1/charges", Body: []byte("amount=100")}
	if _, err := c.Do(t.Context(), charge); !isUnknown(err) || s.requests != 2 {
		t.Fatal(err, s.requests)
	}
	if got := s.last.Header.Get("Content-Type"); got != "application/x-www-form-urlencoded" {
		t.Error(got)
	}
	if s.last.Header.Get("Prefer") != "" {
		t.Error("Stripe does not know Prefer")
	}
}

// Where replays are not marked, a repeated success is not taken for a second execution; another id is.
func TestDraftDoesNotMarkReplays(t *testing.T) {
	s := &server{faults: []fault{cutInBody, says(201, `{"id":"1"}`)}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")), func(o *Options) { o.Profile = &Draft })
	if res, err := c.Do(t.Context(), payment(0)); err != nil || !res.OK() {
		t.Fatal(res, err)
	}
}

// The wait of each request with a 202 and a 409: the first asks for none, each other for as long as the profile says.
func TestPreferWait(t *testing.T) {
	var prefer []string
	see := func(next fault) fault {
		return func(q *http.Request, execute func() *http.Response) (*http.Response, error) {
			prefer = append(prefer, q.Header.Get("Prefer"))
			return next(q, execute)
		}
	}
	processing := `{"object":"payment","status":"processing","order_id":"ord_0","payment_method":"pm_card_visa"}`
	s := &server{faults: []fault{see(doesAndSays(202, processing)), see(says(409, problem(409, "idempotency-key-in-flight"))),
		see(says(202, processing)), see(func(_ *http.Request, execute func() *http.Response) (*http.Response, error) { return execute(), nil })}}
	c := newClient(t, s, openFile(t, filepath.Join(t.TempDir(), "j")))
	if res, err := c.Do(t.Context(), payment(0)); err != nil || !res.OK() {
		t.Fatal(res, err)
	}
	if got := strings.Join(prefer, ","); got != ",wait=10,wait=10,wait=10" {
		t.Fatal(got)
	}
}
