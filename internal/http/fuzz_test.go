package http

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
)

// FuzzIdempotencyKey: whatever arrives in the header, what comes out is a key of
// the contract or a refusal of it, and a key is the same bare and quoted.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "abc", `"abc"`, `"a\"b\\c"`, `"abc`, `"abc";q=1`, `""`, "a b", "a\tb", "\x00",
		"é", `a"b`, `\`, strings.Repeat("x", 200), strings.Repeat("x", 201), `"` + strings.Repeat("x", 200) + `"`,
		`"é"`, ` "a"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {value}})
		if err != nil {
			var p *problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, codeIdempotencyKeyInvalid, p.code)
			return
		}
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), 200)
		for _, b := range []byte(key) {
			require.True(t, b >= '!' && b <= '~', "%q", key)
		}
		if !strings.HasPrefix(value, `"`) {
			require.Equal(t, value, key, "a bare key is taken as it is")
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		same, err := idempotencyKey(http.Header{"Idempotency-Key": {quoted}})
		require.NoError(t, err)
		require.Equal(t, key, same)
		_, err = idempotencyKey(http.Header{"Idempotency-Key": {value, value}})
		require.Error(t, err, "two header lines are an error")
	})
}

// FuzzListQuery: a query is read as it is written or refused with the name of the parameter, and what is read is a text
// and a time that the database takes.
func FuzzListQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=1", "limit=0", "limit=1&limit=2", "status=", "status=%00", "status=%ff", "a;b", "%zz",
		"created_after=2026-01-31T12:00:00Z", "created_after=2026-01-31t12:00:00.5%2b14:00", "created_before=0000-01-01T00:00:00Z",
		"created_before=0001-01-01T00:00:00Z", "created_after=2026-11-27T00:00:00,5Z",
		"created_after=9999-12-31T23:59:59-23:59", "&&", "=", "limit", "Status=open", "customer_reference=%F0%9F%98%80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		refused := func(err error) {
			var p *problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, codeInvalidRequest, p.code)
			require.Len(t, p.errors, 1)
			require.Empty(t, p.errors[0].Pointer)
		}
		names := []string{"status", "customer_reference", "created_after", "created_before"}
		q, limit, err := listQuery(&http.Request{URL: &url.URL{RawQuery: query}}, names...)
		if err != nil {
			refused(err)
			return
		}
		require.True(t, limit >= 1 && limit <= limitMax, limit)
		for name, values := range q {
			require.Contains(t, append(names, "limit"), name)
			require.Len(t, values, 1)
			require.NotEmpty(t, values[0])
			require.True(t, utf8.ValidString(values[0]) && !strings.ContainsRune(values[0], 0))
		}
		after, before, err := interval(q)
		if err != nil {
			refused(err)
			return
		}
		for name, at := range map[string]time.Time{"created_after": after, "created_before": before} {
			require.Less(t, at.UTC().Year(), 10_001)
			require.True(t, ids.Is(ids.Order, ids.Order+ids.Floor(at)))
			require.True(t, q.Has(name) || at.IsZero())
		}
		require.Equal(t, q.Has("created_before"), !before.IsZero(), "a filter is none")
	})
}

// FuzzFingerprint: two bodies have one fingerprint exactly if they are the same
// typed request; and the request that is stored for the completer is the one
// that was decoded, not nearly.
func FuzzFingerprint(f *testing.F) {
	parsers := []parse{orderRequest, paymentRequest, refundRequest, pathRequest}
	routes := []string{"/v1/orders", "/v1/payments", "/v1/payments/{id}/refunds", "/v1/orders/{id}/cancel"}
	const order = `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}],` +
		`"customer_reference":"c","metadata":{"a":"1","b":"2"}}`
	f.Add(uint(0), order, ` { "metadata":{"b":"2","a":"1"}, `+
		`"customer_reference":"\u0063","items":[{"unit_amount":1250,"quantity":2,"sku":"tea"}],"currency":"eur"}`)
	f.Add(uint(0), order, strings.Replace(order, `"c"`, "null", 1))
	f.Add(uint(0), strings.Replace(order, `"c"`, `"\ud83d\ude00<>&\u2028"`, 1),
		strings.Replace(order, `"c"`, `"\ud83d\ude00"`, 1))
	f.Add(uint(1), `{"order_id":"ord_1","payment_method":"pm_1"}`, `{"payment_method":"pm_1","order_id":"ord_1"}`)
	f.Add(uint(1), `{"order_id":"o","payment_method":"p"}`, `{"order_id":"op","payment_method":""}`)
	f.Add(uint(2), `{"amount":5}`, `{"amount":5,"reason":null}`)
	f.Add(uint(3), ``, `{ }`)
	f.Add(uint(3), `null`, ` null `)
	f.Add(uint(0), `{"currency":"eur","currency":"usd"}`, `[]`)
	secret := []byte("0123456789abcdef0123456789abcdef")
	f.Fuzz(func(t *testing.T, which uint, one, other string) {
		which %= uint(len(parsers))
		routed := chi.NewRouteContext()
		routed.RoutePatterns = []string{routes[which]}
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), chi.RouteCtxKey, routed), http.MethodPost,
			"/", nil)
		require.NoError(t, err)
		read := func(body string) (request any, print string, ok bool) {
			request, err := parsers[which](r, []byte(body))
			if err != nil {
				var p *problem
				require.ErrorAs(t, err, &p)
				require.Equal(t, codeInvalidRequest, p.code)
				require.NotEmpty(t, p.errors)
				return nil, "", false
			}
			canonical := mustJSON(request)
			again := reflect.New(reflect.TypeOf(request))
			require.NoError(t, json.Unmarshal(canonical, again.Interface()))
			require.Equal(t, request, again.Elem().Interface(),
				"what the completer reads is not what was asked for: %s", canonical)
			return request, string(newMACs(secret).fingerprint(r, canonical)), true
		}
		a, printA, okA := read(one)
		b, printB, okB := read(other)
		if okA && okB {
			require.Equal(t, reflect.DeepEqual(a, b), printA == printB, "%s\n%s", one, other)
		}
		if okA && one != "" { // where nothing may be sent, white space is not nothing
			_, spaced, ok := read("\n\t " + one + " \r\n")
			require.True(t, ok)
			require.Equal(t, printA, spaced, "white space has no meaning")
		}
	})
}

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"wait=3": "3s", "wait=0": "0s", "wait=10": "10s", "wait=11": "10s", "wait=4294967295": "10s",
		"wait=4294967296": "10s", "wait=99999999999999999999": "10s", `wait="99999999999999999999";foo`: "10s",
		"WAIT = 2": "2s", `wait="5"`: "5s", "wait=5;foo": "5s", "respond-async, wait=4": "4s", "wait": "0s",
		"wait=": "0s", "wait=-1": "0s", "wait=-99999999999999999999": "0s", "wait=1.5": "0s", "wait=x": "0s", "await=3": "0s", "wait=2, wait=9": "2s",
	} {
		require.Equal(t, want, preferredWait(http.Header{"Prefer": {value}}).String(), value)
	}
	require.Equal(t, "3s", preferredWait(http.Header{"Prefer": {"handling=lenient", "wait=3"}}).String())
	require.Zero(t, preferredWait(http.Header{}))
}

func TestInterval(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z", "2026-01-31t12:00:00.25z": "2026-01-31T12:00:00.25Z",
		"2026-01-31T12:00:00+23:59": "2026-01-30T12:01:00Z", "2026-01-31T12:00:00-00:00": "2026-01-31T12:00:00Z",
		"0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000000001Z", "0001-01-01T02:00:00+02:00": "0001-01-01T00:00:00.000000001Z",
		"2026-11-27T00:00:00,5Z": "", "2026-11-27T0:00:00Z": "", "2026-11-27T00:00:00.Z": "", "2026-11-27 00:00:00Z": "",
		"2026-11-27T00:00:00+24:00": "", "2026-11-27T00:00:00+00:60": "", "2026-11-27T00:00:00": "", "2026-11-27": "",
		"2026-02-29T00:00:00Z": "", "12026-01-31T12:00:00Z": "",
	} {
		_, before, err := interval(url.Values{"created_before": {value}})
		if want == "" {
			require.Error(t, err, value)
			continue
		}
		require.NoError(t, err, value)
		require.Equal(t, want, before.UTC().Format(time.RFC3339Nano), value)
	}
}
