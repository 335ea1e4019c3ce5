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

func TestPayonceVerdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		want   Verdict
	}{
		{200, `{"object":"order","status":"canceled"}`, Answered},
		{201, `{"object":"payment","status":"succeeded"}`, Answered},
		{201, `{"object":"payment","status":"authorized"}`, Answered},
		{202, `{"object":"payment","status":"processing"}`, Pending},
		{202, `{"object":"payment","status":"authorized"}`, Pending}, // its capture is unknown
		{202, `{"object":"refund","status":"pending"}`, Pending},
		{202, `{"object":"payment","status":"requires_action"}`, Caller},
		{400, problem(400, "idempotency-key-missing"), Nothing},
		{400, problem(400, "idempotency-key-invalid"), Nothing},
		{400, problem(400, "invalid-request"), Nothing},
		{401, problem(401, "unauthenticated"), Nothing},
		{402, problem(402, "payment-declined"), Answered},
		{402, problem(402, "payment-failed"), Answered},
		{403, problem(403, "forbidden"), Nothing},
		{404, problem(404, "not-found"), Nothing},
		{405, problem(405, "method-not-allowed"), Nothing},
		{409, problem(409, "idempotency-key-in-flight"), Again},
		{409, problem(409, "payment-in-progress"), Later},
		{409, problem(409, "order-already-paid"), Answered},
		{409, problem(409, "order-not-payable"), Answered},
		{409, problem(409, "order-not-cancelable"), Answered},
		{409, problem(409, "payment-not-cancelable"), Answered},
		{409, problem(409, "payment-not-refundable"), Answered},
		{409, problem(409, "payment-not-capturable"), Answered},
		{409, problem(409, "capture-exceeds-authorization"), Answered},
		{409, problem(409, "refund-exceeds-payment"), Answered},
		{409, problem(409, "payment-disputed"), Answered},
		{409, problem(409, "out-of-stock"), Answered},
		{410, problem(410, "idempotency-key-expired"), Expired},
		{413, problem(413, "payload-too-large"), Nothing},
		{415, problem(415, "unsupported-media-type"), Nothing},
		{422, problem(422, "idempotency-key-mismatch"), Mismatch},
		{429, problem(429, "rate-limited"), Later},
		{500, problem(500, "internal"), Again},
		{503, problem(503, "unavailable"), Later},

		// Not from payonce.
		{200, `<html>`, Again},
		{200, ``, Again},
		{201, `{"id":`, Again},
		{301, ``, Unclear},
		{304, `{}`, Unclear},
		{307, `{}`, Unclear},
		{400, `<html>`, Again},
		{401, `{"message":"Unauthorized"}`, Again},
		{402, `{"error":"pay your proxy"}`, Again},
		{404, `404 page not found`, Again},
		{409, `{}`, Again},
		{422, `[]`, Again},
		{429, ``, Again},
		{502, `<html>`, Again},
		{503, `upstream connect error`, Again},
		{504, `{}`, Again},
	} {
		if got := Payonce.Judge(response(test.status, test.body)); got != test.want {
			t.Errorf("%d %s: %s, not %s", test.status, test.body, got, test.want)
		}
	}
}

func TestDraftVerdicts(t *testing.T) {
	t.Parallel()
	want := map[int]Verdict{402: Answered, 409: Again, 408: Again, 425: Again, 410: Expired, 422: Mismatch, 429: Later, 202: Pending}
	for status := 200; status < 600; status++ {
		expected, ok := want[status]
		if !ok {
			expected = map[int]Verdict{2: Answered, 3: Unclear, 4: Nothing, 5: Again}[status/100]
		}
		if got := Draft.Judge(response(status, "")); got != expected {
			t.Errorf("%d: %s, not %s", status, got, expected)
		}
	}
}

func TestStripeVerdicts(t *testing.T) {
	t.Parallel()
	fault := func(kind string) string { return fmt.Sprintf(`{"error":{"type":%q,"message":"…"}}`, kind) }
	const replayed, advice = "Idempotent-Replayed", "Stripe-Should-Retry"
	for _, test := range []struct {
		status  int
		body    string
		headers []string
		want    Verdict
	}{
		{200, `{"object":"payment_intent","status":"succeeded"}`, nil, Answered},
		{200, `{"object":"payment_intent","status":"requires_action"}`, []string{replayed, "true"}, Answered},
		{200, `{"object":`, nil, Again},
		{302, ``, nil, Unclear},
		{400, fault("invalid_request_error"), nil, Nothing},
		{400, fault("invalid_request_error"), []string{replayed, "true"}, Answered},
		{400, fault("invalid_request_error"), []string{advice, "false"}, Nothing},
		{400, fault("idempotency_error"), nil, Mismatch},
		{400, fault("idempotency_error"), []string{advice, "false"}, Mismatch},
		{401, fault("invalid_request_error"), nil, Nothing},
		{402, fault("card_error"), nil, Answered},
		{402, fault("card_error"), []string{replayed, "true", advice, "false"}, Answered},
		{403, fault("invalid_request_error"), nil, Nothing},
		{404, fault("invalid_request_error"), nil, Nothing},
		{404, `<html>`, nil, Again},
		{409, fault("invalid_request_error"), nil, Again},
		{409, fault("idempotency_error"), nil, Again}, // of some fakes
		{409, fault("invalid_request_error"), []string{advice, "true"}, Again},
		{424, fault("api_error"), nil, Again},
		{424, fault("api_error"), []string{replayed, "true"}, Unclear},
		{429, fault("invalid_request_error"), nil, Later},
		{429, `slow down`, nil, Again},
		{500, fault("api_error"), nil, Again},
		{500, fault("api_error"), []string{advice, "true"}, Again},
		{500, fault("api_error"), []string{advice, "false"}, Unclear},
		{500, fault("api_error"), []string{replayed, "true"}, Unclear},
		{500, fault("api_error"), []string{replayed, "true", advice, "true"}, Unclear},
		{502, `<html>`, nil, Again},
		{503, fault("api_error"), nil, Again},
		{503, fault("api_error"), []string{replayed, "true"}, Unclear},
	} {
		if got := Stripe.Judge(response(test.status, test.body, test.headers...)); got != test.want {
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
