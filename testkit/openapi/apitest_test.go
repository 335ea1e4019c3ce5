package openapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/openapi"
)

const (
	stock    = `{"sku":"tea","available":3,"reserved":0}`
	notFound = `{"type":"/problems/not-found","title":"Not found","status":404,"detail":"There is no such ` +
		`path.","code":"not-found","retryable":false,"request_id":"req_1"}`
	busy = `{"type":"/problems/unavailable","title":"The service is unavailable","status":503,"detail":"Nothing ` +
		`was begun.","code":"unavailable","retryable":true,"request_id":"req_1"}`
)

func TestValidator(t *testing.T) {
	t.Parallel()
	v := openapi.New(t, httpapi.OpenAPI())
	json, problem := "application/json", "application/problem+json"

	for _, c := range []struct {
		name, method, path string
		status             int
		header             map[string]string
		body               string
		wrong              string // part of the complaint; empty: the answer is right
	}{
		{"AcceptsWhatIsDescribed", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": json}, stock, ""},
		{"AcceptsAnEscapedPath", "GET", "/v1/stock/tea%2Fgreen", 200, map[string]string{"Content-Type": json}, stock, ""},
		{"AcceptsAProblem", "GET", "/healthz/deep", 404, map[string]string{"Content-Type": problem}, notFound, ""},
		{"RefusesAnUnknownField", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": json}, `{"sku":"tea",` +
			`"available":3,"reserved":0,"secret":1}`, `property "secret" is unsupported`},
		{"RefusesAMissingField", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": json}, `{"sku":"tea",` +
			`"available":3}`, `"reserved" is missing`},
		{"RefusesAWrongType", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": json}, `{"sku":"tea",` +
			`"available":"3","reserved":0}`, "must be an integer"},
		{"RefusesAnotherStatus", "GET", "/v1/stock/tea", 201, map[string]string{"Content-Type": json}, stock,
			"status is not supported"},
		{"RefusesAnotherMediaType", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": "text/plain"}, stock,
			"Content-Type"},
		{"RefusesAnAnswerWithoutRequestId", "GET", "/v1/stock/tea", 200, map[string]string{"Content-Type": json,
			"Request-Id": ""}, stock, `"Request-Id" missing`},
		{"RefusesAProblemWithoutMembers", "GET", "/nowhere", 404, map[string]string{"Content-Type": problem},
			`{"type":"/problems/not-found","code":"not-found"}`, "is missing"},
		{"RefusesATypeThatIsNotTheCodes", "GET", "/nowhere", 404, map[string]string{"Content-Type": problem},
			strings.Replace(notFound, "/problems/not-found", "/problems/gone", 1), "is not the page"},
		{"RefusesAnothersRequestId", "GET", "/nowhere", 404, map[string]string{"Content-Type": problem,
			"Request-Id": "req_2"}, notFound, "only a replay bears another's"},
		{"RefusesAMadeUpCode", "GET", "/nowhere", 404, map[string]string{"Content-Type": problem},
			strings.ReplaceAll(notFound, "not-found", "lost"), "not one of the allowed values"},
		{"RefusesAnotherOperationsCode", "GET", "/v1/stock/tea", 503, map[string]string{"Content-Type": problem,
			"Retry-After": "1"}, strings.ReplaceAll(busy, "unavailable", "rate-limited"), "not one of the allowed values"},
		{"RefusesRetryableWithoutRetryAfter", "GET", "/v1/stock/tea", 503, map[string]string{"Content-Type": problem},
			busy, "Retry-After"},
		{"RefusesAStrayMethod", "DELETE", "/v1/stock/tea", 200, map[string]string{"Content-Type": json}, stock,
			"answered 405"},
		{"RefusesAStrayPath", "GET", "/v2/stock", 200, map[string]string{"Content-Type": json}, stock, "answered 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"Request-Id": {"req_1"}}
			for name, value := range c.header {
				header.Set(name, value)
				if value == "" {
					header.Del(name)
				}
			}
			err := v.Check(httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1:8080"+c.path, nil),
				c.status, header, []byte(c.body))
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wrong)
		})
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	body := stock
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_1")
		io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	v := openapi.New(t, httpapi.OpenAPI())
	witness := &recorder{TB: t}
	client := &http.Client{Transport: v.Transport(witness, nil)}
	get := func() string {
		res, err := client.Get(server.URL + "/v1/stock/tea")
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(b)
	}

	require.Equal(t, stock, get(), "the caller still gets the body")
	require.Zero(t, witness.errors)
	require.True(t, v.Seen("GET", "/v1/stock/{sku}", 200))
	require.False(t, v.Seen("GET", "/v1/orders/{id}", 200))

	body = `{"sku":"tea"}`
	get()
	require.Equal(t, 1, witness.errors, "a wrong answer fails the test")
}

// recorder stands in for a test that is expected to fail.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }

// TestValidate: the first error of a document names the place and the member in a few lines.
func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, openapi.Validate(httpapi.OpenAPI()))
	document := string(httpapi.OpenAPI())
	for _, c := range []struct{ name, old, new, want string }{
		{"AnExampleLacksAMember", `"available":98,`, ``, "available"},
		{"AReferenceToNothing", `#/components/schemas/Stock"`, `#/components/schemas/Stok"`, "Stok"},
	} {
		changed := strings.Replace(document, c.old, c.new, 1)
		if changed == document {
			t.Fatalf("%s: the document has no %s", c.name, c.old)
		}
		err := openapi.Validate([]byte(changed))
		require.ErrorContains(t, err, c.want, c.name)
		require.Contains(t, err.Error(), "openapi.yaml", c.name)
		require.Less(t, strings.Count(err.Error(), "\n"), 10, c.name)
		t.Log(err)
	}
}
