package http

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/openapi"
)

// A webhook that arrives when the intake is full is not stored, and Stripe must resend it:
// a 503, because a 500 would look like a bug.
func TestWebhookIsRefusedWhenTheIntakeIsFull(t *testing.T) {
	t.Parallel()
	p := problemOf(fmt.Errorf("keep it: %w", postgres.ErrFull))
	require.Equal(t, codeUnavailable, p.code)
	require.Positive(t, p.retryAfter)
}

func TestPointersAreEscaped(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/metadata/a~1b~0c", pointer("metadata", "a/b~c"))
	require.Equal(t, "/items/12/sku", pointer("items", 12, "sku"))
}

// The decoder is written by hand, and so is the document. Here a few hundred
// bodies, each a valid one with one change, are checked by both.
func TestRequestsMatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	doc := openapi.New(t, OpenAPI()).Document()
	for _, c := range []struct {
		schema string
		parse  parse
		valid  string
		except map[string]bool // what only one of the two can express
	}{
		{
			schema: "NewOrder", parse: orderRequest,
			valid: `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],"customer_reference":"c",` +
				`"metadata":{"channel":"web"}}`,
			except: map[string]bool{ // The total of an order is checked, too; a schema cannot express that.
				"/items/0/quantity = 1000000": true, "/items/0/unit_amount = 99999999": true,
				"/items/0/unit_amount = 100000000": true, "/items/0/unit_amount = twelve digits": true,
				"/items/0/unit_amount = 1": true,
			},
		},
		{
			schema: "NewPayment", parse: paymentRequest,
			valid: `{"order_id":"ord_06gvqs7in9sb99iish6qfsku4o","payment_method":"pm_card_visa"}`,
		},
		{schema: "NewRefund", parse: refundRequest, valid: `{"amount":5,"reason":"duplicate"}`},
	} {
		t.Run(c.schema, func(t *testing.T) {
			t.Parallel()
			schema := doc.Components.Schemas[c.schema].Value
			compared, refused := 0, 0
			eachChange(t, c.valid, func(change string, body []byte) {
				if c.except[change] || c.schema == "NewPayment" && strings.HasPrefix(change, "/order_id = ") {
					return // An order_id of another form is a 404, which the parser does not decide.
				}
				byDocument := validate(schema, body)
				_, byUs := c.parse(new(http.Request), body)
				if (byDocument == nil) != (byUs == nil) {
					t.Errorf("%s\n%s\ndocument: %v\ndecoder: %v", change, body, byDocument, byUs)
				}
				compared++
				if byUs != nil {
					refused++
					var p *problem
					require.ErrorAs(t, byUs, &p)
					require.Equal(t, codeInvalidRequest, p.code)
					require.NotEmpty(t, p.errors, change)
				}
			})
			require.Greater(t, compared, 20)
			require.Greater(t, refused, compared/4, "too few bodies are invalid")
			require.Less(t, refused, compared, "no body is valid")
		})
	}
}

func validate(schema *openapi3.Schema, body []byte) error {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	if value == nil {
		return errors.New("null") // The document has no nullable bodies; the validator takes null for absent.
	}
	return schema.VisitJSON(value, openapi3.VisitAsRequest())
}

// eachChange visits the body itself and the body with one value changed, one
// member removed or one added, at every place in it.
func eachChange(t *testing.T, body string, visit func(change string, body []byte)) {
	t.Helper()
	instead := map[string]any{
		"null": nil, "true": true, "an empty text": "", "a text": "Tea cup",
		"the longest text": strings.Repeat("é", 255), "a longer text": strings.Repeat("x", 501),
		"a space": "a b", "0": 0, "-1": -1, "1": 1, "1.5": 1.5, "1000000": 1000000, "1000001": 1000001,
		"99999999": 99999999, "100000000": 100000000, "twelve digits": 999999999999, "thirteen digits": 1000000000000,
		"a huge number": json.Number("9223372036854775808"), "an empty list": []any{},
		"an empty object": map[string]any{}, "a list of lists": []any{[]any{}},
	}
	var root any
	require.NoError(t, json.Unmarshal([]byte(body), &root))
	show := func(change string) {
		b, err := json.Marshal(root)
		require.NoError(t, err)
		visit(change, b)
	}
	show("nothing")
	var walk func(at string, value any, set func(any))
	walk = func(at string, value any, set func(any)) {
		for _, name := range slices.Sorted(maps.Keys(instead)) {
			set(instead[name])
			show(at + " = " + name)
		}
		set(value)
		switch v := value.(type) {
		case map[string]any:
			v["colour"] = 7
			show(at + " = an unknown member")
			delete(v, "colour")
			for _, name := range slices.Sorted(maps.Keys(v)) {
				kept := v[name]
				delete(v, name)
				show(at + "/" + name + " is missing")
				v[name] = kept
				walk(at+"/"+name, kept, func(x any) { v[name] = x })
			}
		case []any:
			set(slices.Repeat(v, 100))
			show(at + " = 100 items")
			set(slices.Repeat(v, 101))
			show(at + " = 101 items")
			set(value)
			for i := range v {
				kept := v[i]
				walk(fmt.Sprintf("%s/%d", at, i), kept, func(x any) { v[i] = x })
			}
		}
	}
	walk("", root, func(x any) { root = x })
}

// A stored fingerprint is compared with one that a later release computes. If
// this test fails, raise idempotency.FingerprintVersion and keep the old way for
// the keys that have it; do not change the expectations alone.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	macs := newMACs([]byte("0123456789abcdef0123456789abcdef"))
	router := chi.NewRouter()
	for _, r := range new(Server).routes() {
		if r.operation == "" {
			continue
		}
		router.Method(r.method, r.pattern, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Error(err)
			}
			request, err := r.parse(req, body)
			if err != nil {
				t.Error(err)
				return
			}
			hashed := mustJSON(request)
			w.Header().Set("Hashed", string(hashed))
			_, _ = io.WriteString(w, hex.EncodeToString(macs.fingerprint(req, hashed)))
		}))
	}
	hash := func(path, body string) (fingerprint, hashed string) {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		require.Equal(t, http.StatusOK, w.Code, path)
		return w.Body.String(), w.Header().Get("Hashed")
	}
	of := func(path, body string) string {
		fingerprint, _ := hash(path, body)
		return fingerprint
	}
	const order, payment = "ord_06gvqs7in9sb99iish6qfsku4o", "pay_06gvqs7m7pv2f4r5a2ia79is1g"
	const newOrder = `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`

	t.Run("IsTheSameInEveryRelease", func(t *testing.T) {
		const pays = `{"order_id":"` + order + `","payment_method":"pm_card_visa"`
		const paid = "52ca568b8548d75dded6251d2e266ce5a2151809ef98b292d300935beb022c8b"
		const intent = `{"order_id":"` + order + `","payment_method":"pm_card_visa"}`
		for _, want := range []struct{ path, body, hashed, fingerprint string }{
			{"/v1/orders", newOrder,
				`{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],"customer_reference":null,"metadata":{}}`,
				"f303411b9fb5ac354d065afec2db1bbb4976946120dea4fea590ce18b1f9da7b"},
			{"/v1/orders/" + order + "/cancel", "", `{"id":"` + order + `"}`,
				"7616a14650ce36416b4e56d40e0e3721e47496603e990ae35932b7521160078d"},
			{"/v1/payments", pays + "}", intent, paid},
			{"/v1/payments", pays + `,"capture":"automatic"}`, intent, paid},
			{"/v1/payments", pays + `,"capture":"manual"}`, strings.Replace(intent, "}", `,"manual_capture":true}`, 1),
				"01963b02da7a4d62061a0d6019ae6327abdf9f12e4b1b3c8207bc63c8b557caf"},
			{"/v1/payments/" + payment + "/capture", `{"amount":5}`, `{"payment_id":"` + payment + `","amount":5}`,
				"412e04440c2671274eb6faa322fd67f5956983e6ebd483f904518f37381f5672"},
			{"/v1/payments/" + payment + "/cancel", "", `{"id":"` + payment + `"}`,
				"6b33360d9f10fea2cd1388c3cc94892140bf45c0a3ec559c111012f36a41de29"},
			{"/v1/payments/" + payment + "/refunds", `{"amount":5}`,
				`{"payment_id":"` + payment + `","amount":5,"reason":null}`,
				"2540135edb6a4c15f1e5fcca66fc6fad728b8d26f6296a68d1d329c3ca3df889"},
			// part: checkouts {
			{"/v1/checkouts", `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],"payment_method":"pm_card_visa"}`,
				`{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],"payment_method":"pm_card_visa",` +
					`"customer_reference":null}`,
				"7672b2be3a159492ada9ea2283b5c1a9d0ac69b750bc0db3c9ed791a5177d9b2"},
			// part: checkouts }
			// part: webhooks {
			{"/v1/webhook-endpoints", `{"url":"https://shop.example/events","events":["order.paid"]}`,
				`{"url":"https://shop.example/events","events":["order.paid"],"description":null}`,
				"ce51108ab820fc5dc1617fb86c98229b5f0003507f158d7837f8d6d20736e4db"},
			// part: webhooks }
		} {
			fingerprint, hashed := hash(want.path, want.body)
			if fingerprint != want.fingerprint {
				t.Errorf("POST %s: the fingerprint of the same request is another one than before, because %s.\n"+
					"Every retry that comes after the deploy of this change would get 422 instead of its response.\n"+
					"If a member is new and optional, leave it out of the JSON when the request does not have it (omitempty).\n"+
					"Otherwise raise idempotency.FingerprintVersion and keep the former way for the keys that have it.",
					want.path, difference("", want.hashed, hashed))
			}
		}
	})

	t.Run("IgnoresOrderAndWhiteSpace", func(t *testing.T) {
		same := of("/v1/orders", newOrder)
		for _, body := range []string{
			`{"items":[{"unit_amount":1250,"quantity":2,"sku":"tea"}],"currency":"eur"}`,
			"\n{ \"currency\" : \"e\\u0075r\", \"items\":[ {\"sku\":\"tea\",\"quantity\":2,\"unit_amount\":1250} ] }\n",
			`{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],"customer_reference":null,"metadata":{}}`,
		} {
			require.Equal(t, same, of("/v1/orders", body), body)
		}
		require.Equal(t, of("/v1/orders/"+order+"/cancel", ""), of("/v1/orders/"+order+"/cancel", "{ }"))
		require.Equal(t, of("/v1/orders", strings.Replace(newOrder, "}]", `}],"metadata":{"a":"1","b":"2"}`, 1)),
			of("/v1/orders", strings.Replace(newOrder, "}]", `}],"metadata":{"b":"2","a":"1"}`, 1)))
	})

	t.Run("DiffersForDifferentRequests", func(t *testing.T) {
		seen := map[string]string{}
		for _, request := range [][2]string{
			{"/v1/orders", newOrder},
			{"/v1/orders", strings.Replace(newOrder, "tea", "cup", 1)},
			{"/v1/orders", strings.Replace(newOrder, `"tea"`, `"te"`, 1)},
			{"/v1/orders", strings.Replace(newOrder, "}]", `}],"customer_reference":"a"`, 1)},
			{"/v1/orders", strings.Replace(newOrder, "}]", `}],"metadata":{"a":""}`, 1)},
			{"/v1/orders?dry_run=true", newOrder},
			{"/v1/orders/" + order + "/cancel", ""},
			{"/v1/orders/" + order[:len(order)-1] + "s/cancel", ""},
			{"/v1/payments/" + payment + "/cancel", ""},
			{"/v1/payments/" + payment + "/refunds", ""},
			{"/v1/payments/" + payment + "/refunds", `{"amount":5}`},
			{"/v1/payments/" + payment + "/refunds", `{"amount":5,"reason":"duplicate"}`},
		} {
			f := of(request[0], request[1])
			require.Emptyf(t, seen[f], "%v", request)
			seen[f] = request[0] + request[1]
		}
	})
}

// difference is the first member in which two texts of JSON differ.
func difference(at, before, now string) string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(now), &b) != nil {
		return fmt.Sprintf("%s is %.100s and was %.100s", at, now, before)
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			return fmt.Sprintf("what is hashed has a new member, %s/%s", at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			return fmt.Sprintf("what is hashed lacks the member %s/%s", at, name)
		}
		if string(a[name]) != string(b[name]) {
			return difference(at+"/"+name, string(a[name]), string(b[name]))
		}
	}
	return fmt.Sprintf("its way of hashing or the order of its members has changed: what is hashed is %s and was %s", now, before)
}

// TestDifference: a changed fingerprint names the member that has changed it.
func TestDifference(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{
		`{"a":{"b":1},"c":2,"note":null}`: "a new member, /note",
		`{"a":{}, "c":2}`:                 "lacks the member /a/b",
		`{"a":{"b":2},"c":2}`:             "/a/b is 2 and was 1",
		`{"c":2,"a":{"b":1}}`:             "the order of its members",
	} {
		require.Contains(t, difference("", `{"a":{"b":1},"c":2}`, now), want)
	}
}

// A full disk is named: a database that responds is not one that cannot be reached.
func TestProblemOfAFullDisk(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&pgconn.PgError{Code: "53100"}, fmt.Errorf("probe: %w", postgres.ErrDiskFull)} {
		p := problemOf(err)
		require.Equal(t, codeUnavailable, p.code)
		require.Contains(t, p.detail, "disk of the database is full")
	}
}
