package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// refusal is an invalid request and the problem it must get.
type refusal struct {
	name               string
	method, path, body string   // POST /v1/orders and a good body, unless said otherwise
	headers            []string // an Idempotency-Key that was never used, unless said otherwise
	status             int
	code               string
	pointer            string // of the first error, where there is one
}

const unset = "\x00"

// A card number of Stripe's for tests. No answer may repeat it.
const card, cardInGroups, cardInDashes = "4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242"

func refusals(order, payment string) []refusal {
	long := func(n int) string { return strings.Repeat("x", n) }
	badBody := func(name, body, pointer string) refusal {
		return refusal{name: name, body: body, status: 400, code: "invalid-request", pointer: pointer}
	}
	badPay := func(name, body, pointer string) refusal {
		r := badBody(name, body, pointer)
		r.path = "/v1/payments"
		return r
	}
	badKey := func(name, header string) refusal {
		return refusal{name: name, headers: []string{"Idempotency-Key: " + header}, status: 400,
			code: "idempotency-key-invalid"}
	}
	with := func(members string) string { return strings.Replace(newOrder, "}]", "}],"+members, 1) }
	item := func(fields string) string { return `{"currency":"usd","items":[{` + fields + `}]}` }
	read := func(path string) refusal {
		return refusal{name: "GET " + path, method: "GET", path: path, status: 400, code: "invalid-request"}
	}
	missing := func(method, path string) refusal {
		return refusal{name: method + " " + path, method: method, path: path, body: unset, status: 404,
			code: "not-found"}
	}
	const unknownOrder, ghostPayment = "ord_00000000000000000000000000", "pay_00000000000000000000000000"
	list := []refusal{
		// Each kind of mistake, in the order of the checks; and two at once, where the first counts.
		missing("POST", "/v1/nothing"), missing("GET", "/v1"), missing("GET", "/v1/orders/"),
		missing("POST", "/v1/payments/"),
		{name: "route before API key", path: "/v1/nothing", headers: []string{"Authorization: -"}, status: 404,
			code: "not-found"},
		{name: "method of the root", path: "/", status: 405, code: "method-not-allowed"}, // part: docs
		{name: "method", method: "DELETE", status: 405, code: "method-not-allowed"},
		{name: "method before API key", method: "PATCH", headers: []string{"Authorization: -"}, status: 405,
			code: "method-not-allowed"},
		{name: "no API key", headers: []string{"Authorization: -"}, status: 401, code: "unauthenticated"},
		{name: "another scheme", headers: []string{"Authorization: Basic dGVhOnRlYQ=="}, status: 401,
			code: "unauthenticated"},
		{name: "an unknown API key",
			headers: []string{"Authorization: Bearer payonce_06gvqs7in9sb99iish6qfsku4o_nobody"}, status: 401,
			code: "unauthenticated"},
		{name: "an API key of no form", headers: []string{"Authorization: Bearer " + long(5000)}, status: 401,
			code: "unauthenticated"},
		{name: "API key before size", headers: []string{"Authorization: -"}, body: long(70 << 10), status: 401,
			code: "unauthenticated"},
		{name: "size", body: `{"currency":"` + long(64<<10) + `"}`, status: 413, code: "payload-too-large"},
		{name: "size before media type", body: long(70 << 10), headers: []string{"Content-Type: text/plain"},
			status: 413, code: "payload-too-large"},
		{name: "media type", headers: []string{"Content-Type: application/x-www-form-urlencoded"}, status: 415,
			code: "unsupported-media-type"},
		{name: "no media type", headers: []string{"Content-Type: -"}, status: 415, code: "unsupported-media-type"},
		{name: "another JSON", headers: []string{"Content-Type: application/merge-patch+json"}, status: 415,
			code: "unsupported-media-type"},
		{name: "compressed", headers: []string{"Content-Encoding: gzip"}, status: 415, code: "unsupported-media-type"},
		{name: "another charset", headers: []string{"Content-Type: application/json; charset=iso-8859-1"},
			status: 415, code: "unsupported-media-type"},
		{name: "media type of white space", headers: []string{"Content-Type: text/plain"},
			path: "/v1/orders/" + order + "/cancel", body: "\n", status: 415, code: "unsupported-media-type"},
		{name: "media type of a missing body", headers: []string{"Content-Type: text/plain"}, body: unset, status: 400,
			code: "invalid-request"},
		{name: "media type before key", headers: []string{"Content-Type: text/plain", "Idempotency-Key: -"},
			status: 415, code: "unsupported-media-type"},
		{name: "no key", headers: []string{"Idempotency-Key: -"}, status: 400, code: "idempotency-key-missing"},
		{name: "key before body", headers: []string{"Idempotency-Key: -"}, body: `{`, status: 400,
			code: "idempotency-key-missing"},
		{name: "body before a used key", headers: []string{"Idempotency-Key: used"}, body: `{}`, status: 400,
			code: "invalid-request", pointer: "/currency"},

		badKey("an empty key", ""), badKey("an empty string", `""`), badKey("a key of 201 characters", long(201)),
		badKey("a string of 201 characters", `"`+long(201)+`"`),
		badKey("a space", "a b"), badKey("a space in a string", `"a b"`), badKey("a tab", "a\tb"),
		badKey("not ASCII", "schlüssel"),
		badKey("no end", `"abc`), badKey("more behind the end", `"abc"d`), badKey("parameters", `"abc";q=1`),
		badKey("a list", `"abc", "def"`), badKey("an escape of nothing", `"a\c"`),
		badKey("not ASCII in a string", `"é"`),
		{name: "two keys", headers: []string{"Idempotency-Key: a", "Idempotency-Key: a"}, status: 400,
			code: "idempotency-key-invalid"},

		badBody("no body", unset, ""), badBody("not JSON", `currency=usd`, ""),
		badBody("cut off", `{"currency":"usd"`, ""), badBody("trailing data", newOrder+`{}`, ""),
		badBody("trailing comma", `{"currency":"usd",}`, ""),
		badBody("a byte order mark", "\ufeff"+newOrder, ""), badBody("a list", `[]`, ""),
		badBody("a number", `1`, ""), badBody("null", `null`, ""),
		badBody("an unknown member", `{"colour":"red"}`, "/colour"),
		badBody("a member in another case", `{"Currency":"usd"}`, "/Currency"),
		badBody("an unknown member below", item(`"sku":"a","quantity":1,"unit_amount":100,"colour":1`),
			"/items/0/colour"),
		badBody("a duplicate member", `{"currency":"usd","currency":"eur"}`, "/currency"),
		badBody("a duplicate member, escaped", `{"currency":"usd","curr\u0065ncy":"eur"}`, "/currency"),
		badBody("a duplicate member below", item(`"sku":"a","sku":"b","quantity":1,"unit_amount":100`), "/items/0/sku"),
		badBody("a float", item(`"sku":"a","quantity":1.5,"unit_amount":100`), "/items/0/quantity"),
		badBody("a float that is whole", item(`"sku":"a","quantity":1.0,"unit_amount":100`), "/items/0/quantity"),
		badBody("an exponent", item(`"sku":"a","quantity":1,"unit_amount":1e2`), "/items/0/unit_amount"),
		badBody("a number in quotes", item(`"sku":"a","quantity":"1","unit_amount":100`), "/items/0/quantity"),
		badBody("a huge number", item(`"sku":"a","quantity":1,"unit_amount":99999999999999999999999999`),
			"/items/0/unit_amount"), badBody("a number beyond 64 bits",
			item(`"sku":"a","quantity":9223372036854775808,"unit_amount":100`), "/items/0/quantity"),
		badBody("a negative amount", item(`"sku":"a","quantity":1,"unit_amount":-100`), "/items/0/unit_amount"),
		badBody("nothing", item(`"sku":"a","quantity":0,"unit_amount":100`), "/items/0/quantity"),
		badBody("an overflow of the sum", item(`"sku":"a","quantity":1000000,"unit_amount":99999999`), "/items"),
		badBody("less than can be charged", item(`"sku":"a","quantity":1,"unit_amount":49`), "/items"),
		badBody("NUL in a string", item(`"sku":"a\u0000b","quantity":1,"unit_amount":100`), "/items/0/sku"),
		badBody("NUL in the body", "{\"currency\":\"u\x00d\"}", "/currency"),
		badBody("invalid UTF-8", "{\"currency\":\"usd\",\"items\":[{\"sku\":\"\xff\xfe\"}]}", "/items/0/sku"),
		badBody("half a surrogate", item(`"sku":"\ud800","quantity":1,"unit_amount":100`), "/items/0/sku"),
		badBody("no items", `{"currency":"usd","items":[]}`, "/items"),
		badBody("an item that is null", `{"currency":"usd","items":[null]}`, "/items/0"),
		badBody("a currency in capitals", strings.Replace(newOrder, "usd", "USD", 1), "/currency"),
		badBody("a currency of nowhere", strings.Replace(newOrder, "usd", "xxx", 1), "/currency"),
		badBody("metadata that is no text", strings.Replace(newOrder, "}]", `}],"metadata":{"a/b~c":1}`, 1),
			"/metadata/a~1b~0c"),
		badBody("too much metadata", strings.Replace(newOrder, "}]", `}],"metadata":{"a":"`+long(501)+`"}`, 1),
			"/metadata/a"), badBody("a long reference", strings.Replace(newOrder, "}]",
			`}],"customer_reference":"`+long(201)+`"`, 1), "/customer_reference"),

		badBody("a card number in a SKU", item(`"sku":"`+card+`","quantity":1,"unit_amount":100`), "/items/0/sku"),
		badBody("a card number in a reference", with(`"customer_reference":"card `+cardInGroups+`"`), "/customer_reference"),
		badBody("a card number in metadata", with(`"metadata":{"a/b":"`+card+`"}`), "/metadata/a~1b"),
		badBody("a card number, escaped", with(`"metadata":{"a":"\u0034`+card[1:]+`"}`), "/metadata/a"),
		badBody("a card number as a name in metadata", with(`"metadata":{"`+card+`":"a"}`), "/metadata"),
		badBody("a card number as a name in metadata, and no text", with(`"metadata":{"`+card+`":1}`), "/metadata"),
		badBody("a card number as a member", with(`"`+card+`":1`), ""),
		badBody("a card number in a member of a member", with(`"metadata":{"`+card+`":{"a":1}}`), "/metadata"),
		badPay("a card number as the order", world.PayBody(card, visa), "/order_id"),
		badPay("a card number as the method", world.PayBody(order, card), "/payment_method"),
		badPay("a card number in the method", world.PayBody(order, "pm_"+card), "/payment_method"),
		badKey("a card number as the key", card), badKey("a card number in the key", "order-"+card),
		badKey("a card number as a string", `"`+cardInDashes+`"`),
		read("/v1/orders?" + card + "=1"), read("/v1/orders?limit=" + card), read("/v1/orders?starting_after=" + card),
		missing("GET", "/v1/idempotency-keys/"+card), // part: history
		missing("GET", "/v1/orders/"+card), missing("POST", "/v1/orders/"+card+"/cancel"), missing("GET", "/"+card),

		badPay("no order", `{"payment_method":"pm_card_visa"}`, "/order_id"),
		badPay("no method", `{"order_id":"`+order+`"}`, "/payment_method"),
		badPay("an empty method", `{"order_id":"`+order+`","payment_method":""}`, "/payment_method"),
		badPay("a method with a space", `{"order_id":"`+order+`","payment_method":"pm card"}`, "/payment_method"),
		badPay("an amount", `{"order_id":"`+order+`","payment_method":"pm_card_visa","amount":1}`, "/amount"),
		badPay("NUL in an id", `{"order_id":"ord_\u0000","payment_method":"pm_card_visa"}`, "/order_id"),
		{name: "a body where none belongs", path: "/v1/orders/" + order + "/cancel", body: `{"force":true}`,
			status: 400, code: "invalid-request", pointer: "/force"},
		{name: "null where nothing belongs", path: "/v1/payments/" + payment + "/cancel", body: " null\n",
			status: 400, code: "invalid-request"},

		{name: "an unknown order", path: "/v1/payments", body: world.PayBody(unknownOrder, visa), status: 404,
			code: "not-found"},
		{name: "an order of no form", path: "/v1/payments", body: world.PayBody("1; DROP TABLE orders", visa),
			status: 404, code: "not-found"},
		missing("POST", "/v1/orders/"+unknownOrder+"/cancel"), missing("POST", "/v1/payments/"+ghostPayment+"/cancel"),
		missing("POST", "/v1/payments/"+ghostPayment+"/refunds"), missing("POST", "/v1/payments/"+order+"/refunds"),
		missing("POST", "/v1/orders/"+payment+"/cancel"),
		missing("GET", "/v1/orders/"+unknownOrder), missing("GET", "/v1/payments/"+ghostPayment),
		missing("GET", "/v1/orders/%00"), missing("GET", "/v1/orders/a%2Fb"), missing("GET", "/v1/orders/%ff"),
		missing("GET", "/v1/orders/"+strings.ToUpper(order)),

		read("/v1/orders?limit=0"), read("/v1/orders?limit=101"), read("/v1/orders?limit=abc"),
		read("/v1/orders?limit="), read("/v1/orders?limit=1&limit=2"), read("/v1/orders?limit=-1"),
		read("/v1/orders?limit=99999999999999999999"),
		read("/v1/orders?starting_after=abc"), read("/v1/orders?starting_after=" + unknownOrder),
		read("/v1/orders?starting_after=" + payment), read("/v1/orders?starting_after=%00"),
		read("/v1/orders?limit=%2B5"), read("/v1/orders?limit=%zz"), read("/v1/orders?limit=5;limit=6"),
		read("/v1/orders?starting_after=%zz"),
		read("/v1/orders?starting_after=" + order + "&starting_after=" + order), read("/v1/orders?%zz"),
		read("/v1/payments?limit=0"), read("/v1/payments?starting_after=" + ghostPayment),
		read("/v1/payments?starting_after=" + order), read("/v1/payments?order_id=%zz"),
		read("/v1/payments?order_id=" + order + "&order_id=" + order),
		read("/v1/payments?order_id=" + unknownOrder + "&starting_after=" + payment),
		read("/v1/events?after=%zz"), read("/v1/events?after=a&after=a"), // part: events
	}
	for _, path := range []string{"/v1/orders", "/v1/payments"} {
		for _, method := range []string{"PUT", "PATCH", "OPTIONS", "TRACE"} {
			list = append(list, refusal{name: method + " " + path, method: method, path: path, body: unset,
				status: 405, code: "method-not-allowed"})
		}
	}
	return append(list,
		refusal{name: "an invented method", method: "PAY", path: "/v1/payments", body: unset, status: 405,
			code: "method-not-allowed"},
		refusal{name: "a method on an encoded path", method: "DELETE", path: "/v1/orders/a%2Fb", body: unset,
			status: 405, code: "method-not-allowed"},
		refusal{name: "POST of what is only read", path: "/v1/orders/" + order, status: 405,
			code: "method-not-allowed"},
	)
}

// TestRefusedRequestsWriteNothing: a request that is refused, or replayed, changes nothing in
// the database. The test reads the counter of transaction ids: PostgreSQL assigns one to
// every transaction that changes or locks a row, and to no other. The counter is the
// whole server's, so this test uses a separate server.
func TestRefusedRequestsWriteNothing(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t)
	dbtest.Migrated(t, server.URL)
	w := world.On(t, server.URL)
	w.Exec(`ALTER SYSTEM SET autovacuum = off`)
	w.Exec(`SELECT pg_reload_conf()`)
	api := w.Local(patient)
	order := api.Order()
	paid := api.Pay("used", order, visa)
	require.Equal(t, http.StatusCreated, paid.Status, paid)
	waiting := w.Local(world.LocalOptions{})

	// The witness itself: it sees an insert, and a mere lock of a row.
	transactions := func() int { return w.Count(`SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`) }
	seen := transactions()
	waiting.Order()
	require.Greater(t, transactions(), seen)
	seen = transactions()
	w.Exec(`SELECT FROM orders WHERE id = $1 FOR NO KEY UPDATE`, order)
	require.Greater(t, transactions(), seen)

	for _, r := range refusals(order, paid.ID()) {
		r = r.complete()
		seen = transactions()
		a := api.Do(r.method, r.path, r.body, r.headers...)
		require.NoError(t, a.Err, r.name)
		require.Equal(t, r.status, a.Status, "%s: %v", r.name, a)
		require.Equal(t, r.code, a.Code(), r.name)
		require.Equal(t, seen, transactions(), "%s has written something", r.name)
		for _, number := range []string{card, cardInGroups, cardInDashes} {
			require.NotContains(t, fmt.Sprint(a.Header, string(a.Body)), number, r.name)
		}
		require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), r.name)
		require.Equal(t, a.Header.Get("Request-Id"), a.Problem().RequestID, r.name)
		require.Equal(t, r.code == "unauthenticated", a.Header.Get("WWW-Authenticate") != "", r.name)
		require.Equal(t, r.status == http.StatusMethodNotAllowed, a.Header.Get("Allow") != "", r.name)
		if r.code == "invalid-request" && r.method == "POST" {
			require.NotEmpty(t, a.Problem().Errors, r.name)
			require.Equal(t, r.pointer, a.Problem().Errors[0].Pointer, "%s: %v", r.name, a.Problem().Errors)
		}
	}

	declined := api.Order()
	require.Equal(t, "payment-declined", api.Pay("declined", declined, "pm_card_chargeDeclined").Code())
	again := api.Pay("again", order, visa)
	require.Equal(t, "order-already-paid", again.Code())
	canceled := api.Order()
	require.Equal(t, http.StatusOK, api.Post("/v1/orders/"+canceled+"/cancel", "cancel", "").Status)
	expired := api.Order()
	require.Equal(t, http.StatusPaymentRequired, api.Pay("expired", expired, "pm_nope").Status)
	w.Exec(`UPDATE idempotency_keys
		SET answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL,
			answer_dropped_at = clock_timestamp() WHERE key = 'expired'`)
	busy := api.Order()
	goOn := held(t, w, api, "busy", busy)
	waits := api.Order()
	require.Equal(t, "requires_action", api.Pay("waits", waits, "pm_card_threeDSecure2Required").Get("status"))
	limited := w.Local(world.LocalOptions{RateLimit: 0.001})
	limited.Order()
	for name, c := range map[string]struct {
		want string
		send func() world.Answer
	}{
		"a success again": {"201", func() world.Answer { return api.Pay("used", order, visa) }},
		"a decline again": {"payment-declined",
			func() world.Answer { return api.Pay("declined", declined, "pm_card_chargeDeclined") }},
		"a refusal again": {"order-already-paid",
			func() world.Answer { return api.Pay("again", order, visa) }},
		"a cancel again": {"200",
			func() world.Answer { return api.Post("/v1/orders/"+canceled+"/cancel", "cancel", "{}") }},
		"expired": {"idempotency-key-expired",
			func() world.Answer { return api.Pay("expired", expired, "pm_nope") }},
		"in flight": {"idempotency-key-in-flight",
			func() world.Answer { return api.Pay("busy", busy, visa) }},
		"waited for": {"idempotency-key-in-flight",
			func() world.Answer { return api.Pay("busy", busy, visa, "Prefer: wait=1") }},
		"another request": {"idempotency-key-mismatch",
			func() world.Answer { return api.Pay("used", busy, visa) }},
		"another payment is in progress": {"payment-in-progress",
			func() world.Answer { return api.Pay("new", busy, visa) }},
		"another payment waits": {"payment-in-progress",
			func() world.Answer { return api.Pay("new", waits, visa) }},
		"rate limited": {"rate-limited",
			func() world.Answer { return limited.Post("/v1/orders", "new", newOrder) }},
		"cancel while a payment is moving": {"payment-in-progress",
			func() world.Answer { return api.Post("/v1/orders/"+busy+"/cancel", "new", "") }},
		"reading": {"200", func() world.Answer { return api.Get("/v1/orders/" + order) }},
		"listing": {"200",
			func() world.Answer { return api.Get("/v1/payments?order_id=" + order + "&limit=1") }},
		"listing what cannot be": {"invalid-request",
			func() world.Answer { return api.Get("/v1/payments?order_id=%00") }},
	} {
		seen = transactions()
		a := c.send()
		require.Contains(t, []string{a.Code(), fmt.Sprint(a.Status)}, c.want, "%s: %v", name, a)
		require.Equal(t, seen, transactions(), "%s has written something", name)
	}
	require.Equal(t, http.StatusCreated, goOn().Status)
	w.RequireSound()
}

// complete fills in what a refusal does not say.
func (r refusal) complete() refusal {
	if r.method == "" {
		r.method = "POST"
	}
	if r.path == "" {
		r.path = "/v1/orders"
	}
	switch {
	case r.body == unset, r.method == "GET":
		r.body = ""
	case r.body == "":
		r.body = newOrder
	}
	hasKey, hasType := false, false
	for _, h := range r.headers {
		hasKey = hasKey || strings.HasPrefix(h, "Idempotency-Key: ")
		hasType = hasType || strings.HasPrefix(h, "Content-Type: ")
	}
	if !hasKey {
		r.headers = append(r.headers, "Idempotency-Key: never-used")
	}
	if r.body == "" && r.code == "invalid-request" && !hasType {
		r.headers = append(r.headers, "Content-Type: application/json")
	}
	return r
}

// TestEmptyBodyNeedsNoMediaType: a client that declares a form and sends nothing (curl -d with an empty text) makes the same
// request as one that declares nothing.
func TestEmptyBodyNeedsNoMediaType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	held := b.authorize("held", b.order("held-order")).id()
	waits := b.pay("waits", b.order("waits-order"), "pm_card_authenticationRequired").id()
	for _, path := range []string{
		"/v1/payments/" + held + "/capture", "/v1/payments/" + held + "/refunds", "/v1/payments/" + waits + "/cancel",
		"/v1/orders/" + b.order("canceled") + "/cancel",
	} {
		first := b.post(path, path, "", form...)
		require.Less(t, first.status, 300, "%s: %s", path, first.body)
		for _, again := range []answer{b.post(path, path, ""), b.post(path, path, "{}"), b.post(path, path, "",
			"Content-Type", "???")} {
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), path)
			require.Equal(t, first.body, again.body, path)
		}
		require.Equal(t, "unsupported-media-type", b.post(path, "form"+path, "{}", form...).code(), path)
	}
}

func TestMethodNotAllowedListsTheMethods(t *testing.T) {
	t.Parallel()
	api := world.New(t).Local(world.LocalOptions{})
	for path, allow := range map[string]string{
		"/v1/orders": "GET, HEAD, POST", "/v1/orders/x": "GET, HEAD", "/v1/orders/a%2Fb": "GET, HEAD",
		"/v1/orders/x/cancel": "POST", "/v1/payments": "GET, HEAD, POST", "/v1/payments/x": "GET, HEAD",
		"/v1/payments/x/cancel": "POST", "/healthz": "GET, HEAD",
		"/openapi.json": "GET, HEAD", // part: docs
	} {
		require.Equal(t, allow, api.Do("DELETE", path, "").Header.Get("Allow"), path)
	}
}

// TestTruncatedRequestsAreRefused sends bodies that end too early, which no HTTP library
// would do. A truncated request must never be executed.
func TestTruncatedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	u, err := url.Parse(api.Base)
	require.NoError(t, err)
	whole := `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`
	head := "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + w.Tenant.APIKey + "\r\nContent-Type: " +
		"application/json\r\nIdempotency-Key: k\r\n"
	for name, request := range map[string]string{
		"shorter than its length":    head + "Content-Length: 500\r\n\r\n" + whole,
		"shorter, and whole as JSON": head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(whole)+1) + whole,
		"a chunk that is cut": head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n",
			len(whole)) + whole[:20],
		"chunks without an end": head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n",
			len(whole), whole),
		"a length that is none": head + "Content-Length: -1\r\n\r\n" + whole,
		"two lengths":           head + "Content-Length: 3\r\nContent-Length: 75\r\n\r\n" + whole,
		"too large, without saying so before": head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n",
			70<<10, strings.Repeat("x", 70<<10)),
	} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		want := http.StatusBadRequest
		if strings.HasPrefix(name, "too large") {
			want = http.StatusRequestEntityTooLarge
		}
		require.Equal(t, want, res.StatusCode, name)
		_ = res.Body.Close()
		require.NoError(t, conn.Close())
		require.Empty(t, w.RecoveryPoint("k"), name)
		require.Zero(t, w.Count(`SELECT count(*) FROM orders`), name)
	}
}

// TestUnparsableRequestsGetAProblem: a request that net/http refuses before a handler is
// called also gets a problem document.
func TestUnparsableRequestsGetAProblem(t *testing.T) {
	t.Parallel()
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	registry, unparsable := prometheus.NewRegistry(), 0.0
	options.Metrics, options.Drain = registry, world.Patience
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()

	head := "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b.apiKey + "\r\nContent-Type: " +
		"application/json\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(newOrder))
	send := func(request string) (*http.Response, []byte) {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(world.Patience)))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body) // to its end, which the server announced
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res, body
	}
	for name, request := range map[string]string{
		"a control character in the key": head + length + "Idempotency-Key: a\x01b\r\n\r\n" + newOrder,
		"DEL in the key":                 head + length + "Idempotency-Key: a\x7f\r\n\r\n" + newOrder,
		"two lengths":                    head + length + "Content-Length: 3\r\nIdempotency-Key: k\r\n\r\n" + newOrder,
		"a length that is none":          head + "Content-Length: -1\r\nIdempotency-Key: k\r\n\r\n",
		"an invented encoding":           head + "Transfer-Encoding: zip\r\nIdempotency-Key: k\r\n\r\n",
		"no host":                        "GET /v1/orders HTTP/1.1\r\n\r\n",
		"another protocol":               "GET /v1/orders HTTP/3.7\r\nHost: x\r\n\r\n",
		"a space in a name":              "GET /v1/orders HTTP/1.1\r\nHost: x\r\nX Y: z\r\n\r\n",
		"no HTTP at all":                 "\x16\x03\x01\x02\x00\x01\r\n\r\n",
		"an Expect that nobody knows":    head + length + "Expect: x\r\nIdempotency-Key: k\r\n\r\n" + newOrder,
		"an Expect of HTTP/1.0":          "GET /v1/orders HTTP/1.0\r\nHost: x\r\nExpect: x\r\n\r\n",
	} {
		unparsable++
		res, body := send(request)
		require.Equal(t, http.StatusBadRequest, res.StatusCode, name)
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"), name)
		require.NoError(t, b.contract.Check(httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://x/v1/orders", nil), res.StatusCode, res.Header, body), name)
		var p struct {
			Code      string
			RequestID string `json:"request_id"`
			Errors    []struct{ Pointer, Message string }
		}
		require.NoError(t, json.Unmarshal(body, &p), name)
		require.Equal(t, "invalid-request", p.Code, name)
		require.Regexp(t, "^req_[0-9a-f]{32}$", p.RequestID, name)
		require.Len(t, p.Errors, 1, name)
	}
	for name, headers := range map[string]string{
		"without an end": "X: " + strings.Repeat("x", 21<<10),
		"in one line":    "X: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
		"in many lines":  strings.Repeat("X: x\r\n", 4<<10) + "\r\n",
	} {
		res, body := send("GET /v1/orders HTTP/1.1\r\nHost: x\r\n" + headers)
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, res.StatusCode, name)
		require.NoError(t, b.contract.Check(httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://x/v1/orders", nil), res.StatusCode, res.Header, body), name)
		require.Contains(t, string(body), `"code":"headers-too-large"`, name)
	}
	res, body := send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + strings.Repeat("x", 15<<10) + "\r\n\r\n")
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	res, body = send("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.Equal(t, http.StatusNotFound, res.StatusCode, "%s", body)
	require.Regexp(t, "^req_[0-9a-f]{32}$", res.Header.Get("Request-Id"))
	require.Contains(t, string(body), `"code":"not-found"`)
	families, err := registry.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "payonce_http_requests_total" && m.GetLabel()[1].GetValue() == "unmatched" {
				counted[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[2].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"other 400": unparsable, "other 431": 3, "OPTIONS 404": 1}, counted)
	res, body = send(head + length + "Connection: close\r\nIdempotency-Key: k\r\n\r\n" + newOrder)
	require.Equal(t, http.StatusCreated, res.StatusCode, "%s", body)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"), "what a handler says is passed on as it is")
	stop()
	require.NoError(t, <-ended)
}
