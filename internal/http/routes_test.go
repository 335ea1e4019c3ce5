package http

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/openapi"
)

// Somebody who adds a POST must say how it is repeated: by an operation under a
// key, or by a reason why it needs none. And what they say must be documented.
func TestEveryPostDeclaresItsIdempotency(t *testing.T) {
	t.Parallel()
	doc := openapi.New(t, OpenAPI()).Document()
	for _, r := range new(Server).routes() {
		name := r.method + " " + r.pattern
		if r.method != http.MethodPost {
			require.Empty(t, r.operation, "%s: only a POST has a key", name)
			require.Empty(t, r.keyless, "%s: only a POST needs a reason", name)
			continue
		}
		require.NotEqual(t, r.operation == "", r.keyless == "", "%s: an operation, or a reason to have none", name)
		require.Equal(t, r.operation != "", r.parse != nil, name)
		require.Equal(t, r.operation != "", r.handle == nil, name)
		op := doc.Paths.Value(r.pattern).Post
		key := op.Parameters.GetByInAndName("header", "Idempotency-Key")
		require.Equal(t, r.operation != "", key != nil, "%s: the document knows whether there is a key", name)
	}
}

// What is served is documented, under the same names. (That what is documented
// is served, TestContract shows by asking for it.)
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
