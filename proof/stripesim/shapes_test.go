package stripesim_test

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-mock/embedded"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
)

// spec is Stripe's OpenAPI document of 2023-10-16, as stripe-mock v0.183.0
// carries it. Only tests use it.
var spec = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(embedded.OpenAPISpec)
	if err != nil {
		panic(err)
	}
	return doc
})

func schema(name string) *openapi3.Schema {
	ref := spec().Components.Schemas[name]
	if ref == nil {
		return nil
	}
	return ref.Value
}

// checkShape validates a body: required fields, types, enums, nulls, and that the
// simulator invented no field. It descends into every object of Stripe's.
func checkShape(t *testing.T, body []byte, lenient bool) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &v), "%s", body)
	if o, ok := v.(map[string]any); ok && o["error"] != nil {
		validate(t, "error", o, lenient)
		return v
	}
	walk(t, v, lenient)
	return v
}

func walk(t *testing.T, v any, lenient bool) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(t, item, lenient)
		}
	case map[string]any:
		name, _ := v["object"].(string)
		if v["deleted"] == true {
			name = "deleted_" + name
		}
		if schema(name) != nil {
			validate(t, name, v, lenient)
		}
		for _, child := range v {
			walk(t, child, lenient)
		}
	}
}

func validate(t *testing.T, name string, o map[string]any, lenient bool) {
	t.Helper()
	s := schema(name)
	require.NoError(t, s.VisitJSON(o), "%v is not a %s", o, name)
	if !lenient {
		require.Empty(t, invented(s, o, name), "fields that 2023-10-16 does not have")
	}
}

// invented lists the fields of o that its schema does not know.
func invented(s *openapi3.Schema, o map[string]any, path string) []string {
	var out []string
	if len(s.Properties) == 0 { // a free map, such as metadata
		return nil
	}
	for k, v := range o {
		p := s.Properties[k]
		if p == nil {
			out = append(out, path+"."+k)
			continue
		}
		child, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if _, isObject := child["object"]; isObject {
			continue // walk comes to it on its own
		}
		if next := objectSchema(p.Value); next != nil {
			out = append(out, invented(next, child, path+"."+k)...)
		}
	}
	return out
}

func objectSchema(s *openapi3.Schema) *openapi3.Schema {
	if len(s.Properties) > 0 {
		return s
	}
	for _, alt := range s.AnyOf {
		if len(alt.Value.Properties) > 0 {
			return alt.Value
		}
	}
	return nil
}

var objectKind = regexp.MustCompile(`"object": ?"(\w+)"`)

// TestShapes runs the simulator's own tests, which record every body that their
// clients saw, and validates each body against Stripe's schemas. What that covers
// is stripesim/COVERAGE.md.
func TestShapes(t *testing.T) {
	t.Parallel()
	root, err := process.Root()
	require.NoError(t, err)
	dir := t.TempDir()
	run := exec.CommandContext(t.Context(), "go", "test", "-count=1", ".")
	run.Dir, run.Env = filepath.Join(root, "stripesim"), append(os.Environ(), "STRIPESIM_SHAPES="+dir)
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)

	recorded, err := os.Open(filepath.Join(dir, "shapes.jsonl"))
	require.NoError(t, err)
	defer func() { _ = recorded.Close() }()
	seen, kinds := newCoverage(), map[string]bool{}
	lines := bufio.NewScanner(recorded)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var shape struct {
			Test, Request string
			Status        int
			Lenient       bool
			Body          json.RawMessage
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &shape))
		for _, kind := range objectKind.FindAllSubmatch(shape.Body, -1) {
			kinds[string(kind[1])] = true
		}
		seen.add(shape.Request, shape.Status, checkShape(t, shape.Body, shape.Lenient))
		if t.Failed() {
			t.Fatalf("recorded in %s", shape.Test)
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, seen.bodies, 500, "too few bodies were recorded")
	for _, kind := range []string{
		"payment_intent", "charge", "refund", "dispute", "event", "balance_transaction", "payment_method",
		"webhook_endpoint", "list", "search_result",
	} {
		require.True(t, kinds[kind], "no body of kind %q was recorded", kind)
	}
	seen.isOnItsPage(t)
}

// TestShapes_NoticesWhatIsWrong: the validation fails on a wrong type, a wrong
// value, a null and an invented field.
func TestShapes_NoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() { require.NoError(t, sim.Close()); server.Close() })
	form := strings.NewReader(url.Values{
		"amount": {"1000"}, "currency": {"usd"}, "payment_method_types[]": {"card"},
		"payment_method": {"pm_card_visa"}, "confirm": {"true"},
	}.Encode())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/payment_intents", form)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)

	var good map[string]any
	require.NoError(t, json.Unmarshal(body, &good))
	require.NoError(t, schema("payment_intent").VisitJSON(good))
	for field, wrong := range map[string]any{
		"amount": "1000", "status": "paid", "created": nil, "latest_charge": 7.0, "livemode": "no",
	} {
		bad := maps.Clone(good)
		bad[field] = wrong
		require.Error(t, schema("payment_intent").VisitJSON(bad), field)
	}
	good["flux_capacitor"] = 1.0
	require.Equal(t, []string{"pi.flux_capacitor"}, invented(schema("payment_intent"), good, "pi"))
}

// TestParams compares our reduced tables with the request schemas: same names,
// neither fewer (a real parameter would be refused as unknown) nor more.
func TestParams(t *testing.T) {
	t.Parallel()
	for _, op := range stripesim.Operations() {
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			var item *openapi3.PathItem
			for path, candidate := range spec().Paths.Map() {
				if withoutNames(path) == withoutNames(op.Pattern) {
					item = candidate
				}
			}
			require.NotNil(t, item, "Stripe has no %s", op.Pattern)
			theirs := item.GetOperation(op.Method)
			require.NotNil(t, theirs, "Stripe has no %s %s", op.Method, op.Pattern)
			var want []string
			for _, p := range theirs.Parameters {
				if p.Value.In == "query" {
					want = append(want, p.Value.Name)
				}
			}
			if theirs.RequestBody != nil {
				for _, media := range theirs.RequestBody.Value.Content {
					want = slices.AppendSeq(want, maps.Keys(media.Schema.Value.Properties))
				}
			}
			slices.Sort(want)
			got := op.Params
			require.Empty(t, without(want, got), "Stripe takes these")
			require.Empty(t, without(got, want), "Stripe does not know these")
		})
	}
}

// TestEventTypes: an endpoint may ask for each type of Stripe's request schema.
func TestEventTypes(t *testing.T) {
	t.Parallel()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	defer sim.Close()
	server := httptest.NewServer(sim.Handler())
	defer server.Close()
	body := spec().Paths.Value("/v1/webhook_endpoints").Post.RequestBody.Value.Content["application/x-www-form-urlencoded"]
	form := url.Values{"url": {"https://pay.example.com"}}
	for _, name := range body.Schema.Value.Properties["enabled_events"].Value.Items.Value.Enum {
		form.Add("enabled_events[]", name.(string))
	}
	require.Greater(t, len(form["enabled_events[]"]), 200)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/webhook_endpoints",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", text)
}

func withoutNames(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
