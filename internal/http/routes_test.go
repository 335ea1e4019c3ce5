package http

import (
	"fmt"
	"maps" // part: checkouts
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/notifier" // part: webhooks
	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/openapi"
)

// A new POST must say how it is repeated: by an operation under a key, or by a reason
// why it needs none. And what it says must be documented. A failure says which route
// it is about, what to add, and in which file.
func TestEveryPostDeclaresItsIdempotency(t *testing.T) {
	t.Parallel()
	doc := openapi.New(t, OpenAPI()).Document()
	for _, missing := range undeclared(new(Server).routes(), registered(), doc) {
		t.Error(missing)
	}
}

// registered are the operations that cmd/api registers for the routes of this package.
func registered() map[string]idempotency.Operation {
	all := new(payments.Service).Operations()
	maps.Copy(all, new(checkout.Service).Operations()) // part: checkouts
	// part: webhooks {
	for name, operation := range new(notifier.Endpoints).Operations() {
		all[name] = operation
	}
	// part: webhooks }
	return all
}

// undeclared lists what the routes do not say about their idempotency, one sentence
// each.
func undeclared(routes []route, operations map[string]idempotency.Operation, doc *openapi3.T) (missing []string) {
	for _, r := range routes {
		name, file := r.method+" "+r.pattern, fileOf(r.pattern)
		say := func(format string, args ...any) { missing = append(missing, name+": "+fmt.Sprintf(format, args...)) }
		if r.method != http.MethodPost {
			if r.operation != "" || r.parse != nil || r.keyless != "" {
				say("only a POST has an Idempotency-Key; remove operation, parse and keyless from its route in %s",
					file)
			}
			if r.handle == nil {
				say("it has no handler; add handle to its route in %s", file)
			}
			continue
		}
		switch {
		case r.operation == "" && r.keyless == "":
			say("it does not say how it can be repeated; add operation and parse to its route in %s, "+
				"or keyless with the reason why it needs no Idempotency-Key", file)
		case r.operation != "" && r.keyless != "":
			say("it has an operation and a reason to have none; "+
				"remove one of operation and keyless from its route in %s", file)
		case r.operation != "" && r.parse == nil:
			say("nothing turns its body into the request of the operation %q; add parse to its route in %s",
				r.operation, file)
		case r.operation != "" && r.handle != nil:
			say("a handler of its own would bypass the Idempotency-Key; remove handle from its route in %s", file)
		case r.keyless != "" && r.handle == nil:
			say("it has no handler; add handle to its route in %s", file)
		}
		if _, known := operations[r.operation]; r.operation != "" && !known {
			say("its operation %q is not registered, so neither a request nor the completer could run it; "+
				"add it to the Operations of its service (such as internal/payments/service.go)", r.operation)
		}
		path := doc.Paths.Value(r.pattern)
		if path == nil || path.Post == nil {
			say("it is not documented; add %s with post under paths in internal/http/openapi.yaml", r.pattern)
			continue
		}
		documented := path.Post.Parameters.GetByInAndName("header", "Idempotency-Key") != nil
		if r.operation != "" && !documented {
			say("its Idempotency-Key is not documented; add {$ref: '#/components/parameters/IdempotencyKey'} " +
				"to its parameters in internal/http/openapi.yaml")
		}
		if r.operation == "" && r.keyless != "" && documented {
			say("an Idempotency-Key is documented, but it has no operation; "+
				"add operation and parse to its route in %s, or remove the parameter from internal/http/openapi.yaml",
				file)
		}
	}
	return missing
}

// fileOf finds the file that declares a route.
func fileOf(pattern string) string {
	sources, _ := filepath.Glob("*.go")
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err == nil && !strings.HasSuffix(source, "_test.go") && strings.Contains(string(text),
			`pattern: "`+pattern+`"`) {
			return "internal/http/" + source
		}
	}
	return "the file of its resource in internal/http"
}

func TestUndeclaredSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	handle := func(http.ResponseWriter, *http.Request) {}
	parse := func(*http.Request, []byte) (any, error) { return nil, nil }
	operations := map[string]idempotency.Operation{"create_payment": {}}
	doc := openapi.New(t, OpenAPI()).Document()
	const payments, webhook, tips = "/v1/payments", "/v1/webhooks/stripe", "/v1/tips"

	for want, r := range map[string]route{
		"POST /v1/payments: it does not say how it can be repeated; " +
			"add operation and parse to its route in internal/http/payments.go, or keyless with the reason": {method: "POST",
			pattern: payments},
		"POST /v1/payments: it has an operation and a reason to have none; remove one of operation and keyless": {
			method: "POST", pattern: payments, operation: "create_payment", parse: parse, keyless: "absolute",
		},
		"POST /v1/payments: nothing turns its body into the request of the operation \"create_payment\"; " +
			"add parse to its route in internal/http/payments.go": {method: "POST", pattern: payments,
			operation: "create_payment"},
		"POST /v1/payments: a handler of its own would bypass the Idempotency-Key; remove handle": {
			method: "POST", pattern: payments, operation: "create_payment", parse: parse, handle: handle,
		},
		"POST /v1/webhooks/stripe: it has no handler; add handle to its route in internal/http/webhooks.go": {
			method: "POST", pattern: webhook, keyless: "Stripe's event id is its key",
		},
		"POST /v1/payments: its operation \"create_tip\" is not registered, " +
			"so neither a request nor the completer could run it; " +
			"add it to the Operations of its service (such as internal/payments/service.go)": {
			method: "POST", pattern: payments, operation: "create_tip", parse: parse,
		},
		"POST /v1/tips: it is not documented; add /v1/tips with post under paths in internal/http/openapi.yaml": {
			method: "POST", pattern: tips, operation: "create_payment", parse: parse,
		},
		"POST /v1/refunds/{id}: it is not documented; add /v1/refunds/{id} with post": { // the path is, for GET
			method: "POST", pattern: "/v1/refunds/{id}", operation: "create_payment", parse: parse,
		},
		"POST /v1/webhooks/stripe: its Idempotency-Key is not documented; " +
			"add {$ref: '#/components/parameters/IdempotencyKey'}": {
			method: "POST", pattern: webhook, operation: "create_payment", parse: parse,
		},
		"POST /v1/payments: an Idempotency-Key is documented, but it has no operation; " +
			"add operation and parse to its route": {
			method: "POST", pattern: payments, keyless: "absolute", handle: handle,
		},
		"GET /v1/payments: only a POST has an Idempotency-Key; remove operation, parse and keyless from its route": {
			method: "GET", pattern: payments, operation: "create_payment", handle: handle,
		},
		"GET /v1/tips: it has no handler; add handle to its route in the file of its resource in internal/http": {
			method: "GET", pattern: tips,
		},
	} {
		missing := undeclared([]route{r}, operations, doc)
		require.Lenf(t, missing, 1, "%s", want)
		require.Containsf(t, missing[0], want, "%+v", r)
	}
	require.Empty(t, undeclared([]route{
		{method: "POST", pattern: payments, operation: "create_payment", parse: parse},
		{method: "POST", pattern: webhook, keyless: "Stripe's event id is its key", handle: handle},
		{method: "GET", pattern: payments, handle: handle},
	}, operations, doc))
	require.Len(t, undeclared([]route{{method: "POST", pattern: tips}}, operations, doc), 2,
		"all that is missing is said at once")
}

// What is served is documented, under the same names. (That what is documented
// is served, TestContract shows by requesting it.)
func TestEveryRouteIsDocumented(t *testing.T) {
	t.Parallel()
	doc := openapi.New(t, OpenAPI()).Document()
	seen := map[string]bool{}
	for _, r := range new(Server).routes() {
		name := r.method + " " + r.pattern
		require.Falsef(t, seen[name], "%s is routed twice", name)
		seen[name] = true
		path := doc.Paths.Value(r.pattern)
		require.NotNilf(t, path, "%s is not in openapi.yaml", r.pattern)
		op := path.GetOperation(r.method)
		require.NotNilf(t, op, "%s is not in openapi.yaml", name)
		require.Equalf(t, r.open, op.Security != nil, "%s: whether it needs an API key", name)
	}
}
