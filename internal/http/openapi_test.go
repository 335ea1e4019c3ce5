package http

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/openapi"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	require.NoError(t, openapi.Validate(OpenAPI())) // and every example against its schema
	doc := openapi.New(t, OpenAPI()).Document()

	t.Run("KeepsTheOrderOfTheFile", func(t *testing.T) {
		t.Parallel()
		require.True(t, json.Valid(OpenAPI()))
		require.True(t, strings.HasPrefix(string(OpenAPI()), `{"openapi":"3.0.3","info":{"title":"payonce"`))
	})

	t.Run("ClosesEveryObject", func(t *testing.T) {
		t.Parallel()
		open := map[string]bool{ // by choice
			"/paths/v1/webhooks/stripe/post/request": true, // Stripe's, any version
			"/paths/openapi.json/get/200":            true, // this document // part: docs
		}
		walkSchemas(doc, func(where string, s *openapi3.Schema) {
			if s.Type.Is("object") && !open[where] {
				closed := s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has || s.AdditionalProperties.Schema != nil
				require.Truef(t, closed, "%s: an undescribed field could appear", where)
			}
			for name, property := range s.Properties {
				composed := len(property.Value.AllOf)+len(property.Value.OneOf) > 0
				require.Truef(t, composed || property.Value.Type != nil, "%s/%s has no type", where, name)
			}
			for _, name := range s.Required {
				require.Containsf(t, s.Properties, name, "%s requires a member it does not describe", where)
			}
		})
	})

	t.Run("RequiresEveryMemberOfAnObject", func(t *testing.T) {
		t.Parallel()
		// Absent members are null, not missing: clients need not distinguish the two.
		for _, name := range []string{
			"Order", "Payment", "Refund", "Failure", "Resource", "OrderList",
			"Checkout", "CheckoutStep", "Stock", // part: checkouts
			"Dispute", "DisputeList", // part: disputes
			"KeyHistory",  // part: history
			"ProblemType", // part: docs
		} {
			s := doc.Components.Schemas[name].Value
			require.ElementsMatchf(t, slices.Collect(maps.Keys(s.Properties)), s.Required, "%s", name)
		}
	})

	t.Run("NamesEachSchemaOfA400", func(t *testing.T) {
		t.Parallel()
		eachOperation(doc, func(method, path string, op *openapi3.Operation) {
			response := op.Responses.Value("400")
			if response == nil {
				return
			}
			schema := response.Value.Content["application/problem+json"].Schema
			require.NotEmptyf(t, schema.Ref, "%s %s: generated clients have no type for a 400", method, path)
			for _, one := range schema.Value.OneOf {
				require.NotEmptyf(t, one.Ref, "%s %s: generated clients have no type for a 400", method, path)
			}
		})
	})

	t.Run("DescribesEachOperation", func(t *testing.T) {
		t.Parallel()
		ids := map[string]bool{}
		eachOperation(doc, func(method, path string, op *openapi3.Operation) {
			require.Falsef(t, ids[op.OperationID], "%s %s: operationId %q again", method, path, op.OperationID)
			ids[op.OperationID] = true
			require.NotEmpty(t, op.Summary, op.OperationID)
			require.Len(t, op.Tags, 1, op.OperationID)
			require.NotNilf(t, doc.Tags.Get(op.Tags[0]), "%s: tag %q is not described", op.OperationID, op.Tags[0])
			for status, response := range op.Responses.Map() {
				require.Contains(t, response.Value.Headers, "Request-Id", "%s %s", op.OperationID, status)
				for mediaType, content := range response.Value.Content {
					if strings.HasSuffix(mediaType,
						"json") && path != "/openapi.json" && path != "/problems" && path != "/problems/{slug}" {
						require.Truef(t, content.Example != nil || len(content.Examples) > 0, "%s %s has no example",
							op.OperationID, status)
					}
				}
			}
		})
	})

	t.Run("KeyIsRequiredWhereSomethingChanges", func(t *testing.T) {
		t.Parallel()
		eachOperation(doc, func(method, path string, op *openapi3.Operation) {
			key := op.Parameters.GetByInAndName("header", "Idempotency-Key")
			if method != http.MethodPost || path == "/v1/webhooks/stripe" {
				require.Nil(t, key, op.OperationID)
				return
			}
			require.NotNil(t, key, op.OperationID)
			require.True(t, key.Required, op.OperationID)
			for _, status := range []int{400, 401, 403, 409, 410, 413, 415, 422, 429, 500, 503} {
				require.NotNilf(t, op.Responses.Status(status), "%s does not say when it answers %d", op.OperationID,
					status)
			}
			for _, status := range []int{200, 201, 402} {
				if r := op.Responses.Status(status); r != nil {
					require.Containsf(t, r.Value.Headers, "Idempotent-Replayed",
						"%s %d is stored, so it may be a replay", op.OperationID, status)
				}
			}
			if r := op.Responses.Status(202); r != nil {
				require.NotContainsf(t, r.Value.Headers, "Idempotent-Replayed", "%s: a 202 is never stored",
					op.OperationID)
			}
		})
	})

	t.Run("TenantRoutesRequireAnAPIKey", func(t *testing.T) {
		t.Parallel()
		eachOperation(doc, func(_, path string, op *openapi3.Operation) {
			tenants := strings.HasPrefix(path, "/v1/") && path != "/v1/webhooks/stripe"
			require.Equalf(t, tenants, op.Security == nil, "%s: only what belongs to a tenant asks for its API key",
				op.OperationID)
			require.Equal(t, tenants, op.Responses.Status(401) != nil, op.OperationID)
		})
	})
}

// The catalogue, the document and the examples in it name the same problems.
func TestOpenAPI_Problems(t *testing.T) {
	t.Parallel()
	doc := openapi.New(t, OpenAPI()).Document()

	t.Run("EveryProblemIsDocumented", func(t *testing.T) {
		t.Parallel()
		documented := map[string][]int{} // code → statuses of its responses
		note := func(status int, content openapi3.Content) {
			if content["application/problem+json"] == nil {
				return
			}
			codes := codesOf(content["application/problem+json"].Schema)
			require.NotEmpty(t, codes, "a problem without codes")
			for _, code := range codes {
				if !slices.Contains(documented[code], status) {
					documented[code] = append(documented[code], status)
				}
			}
		}
		eachOperation(doc, func(_, _ string, op *openapi3.Operation) {
			for _, pt := range problemTypes {
				if r := op.Responses.Status(pt.Status); r != nil {
					note(pt.Status, r.Value.Content)
				}
			}
		})
		for _, code := range codesOf(doc.Components.Responses["AnyRequest"].Value.Content["application/problem+json"].Schema) {
			pt, _ := problemTypeOf(code)
			documented[code] = append(documented[code], pt.Status)
		}

		for _, pt := range problemTypes {
			require.Equalf(t, []int{pt.Status}, documented[pt.Code], "%s", pt.Code)
			delete(documented, pt.Code)
		}
		require.Empty(t, documented, "codes that are not in the catalogue")
	})

	t.Run("ExamplesMatchTheProblemTypes", func(t *testing.T) {
		t.Parallel()
		shown := map[string]bool{}
		for name, example := range doc.Components.Examples {
			p, ok := example.Value.Value.(map[string]any)
			if !ok || p["code"] == nil {
				continue
			}
			pt, ok := problemTypeOf(p["code"].(string))
			require.Truef(t, ok, "example %s: code %v", name, p["code"])
			require.Equal(t, pt.typeURI(), p["type"], name)
			require.Equal(t, pt.Title, p["title"], name)
			require.EqualValues(t, pt.Status, p["status"], name)
			require.Equal(t, pt.Retryable, p["retryable"], name)
			shown[pt.Code] = true
		}
		for _, pt := range problemTypes {
			require.Truef(t, shown[pt.Code], "%s has no example", pt.Code)
		}
	})

	t.Run("ReplayHeadersMatchTheProblemTypes", func(t *testing.T) {
		t.Parallel()
		eachOperation(doc, func(method, path string, op *openapi3.Operation) {
			for status, response := range op.Responses.Map() {
				content := response.Value.Content["application/problem+json"]
				if content == nil {
					continue
				}
				stored := slices.ContainsFunc(codesOf(content.Schema),
					func(code string) bool { pt, _ := problemTypeOf(code); return pt.Stored })
				_, replayed := response.Value.Headers["Idempotent-Replayed"]
				require.Equalf(t, stored, replayed, "%s %s", op.OperationID, status)
				retryable := slices.ContainsFunc(codesOf(content.Schema),
					func(code string) bool { pt, _ := problemTypeOf(code); return pt.Retryable })
				_, waits := response.Value.Headers["Retry-After"]
				require.Equalf(t, retryable, waits, "%s %s", op.OperationID, status)
			}
		})
	})
}

func eachOperation(doc *openapi3.T, visit func(method, path string, op *openapi3.Operation)) {
	for _, path := range doc.Paths.InMatchingOrder() {
		for method, op := range doc.Paths.Value(path).Operations() {
			visit(method, path, op)
		}
	}
}

// codesOf are the values that the member code may have under a schema.
func codesOf(ref *openapi3.SchemaRef) []string {
	if ref == nil {
		return nil
	}
	var codes []string
	for _, branch := range ref.Value.OneOf {
		codes = append(codes, codesOf(branch)...)
	}
	if len(codes) > 0 {
		return codes
	}
	// All of allOf hold at once; the last narrows the first.
	for _, part := range slices.Backward(ref.Value.AllOf) {
		if codes := codesOf(part); len(codes) > 0 {
			return codes
		}
	}
	if code := ref.Value.Properties["code"]; code != nil {
		for _, v := range code.Value.Enum {
			codes = append(codes, v.(string))
		}
	}
	return codes
}

// walkSchemas visits each schema where it is written. The parts of an allOf are
// left out: the first closes the object and the others narrow it.
func walkSchemas(doc *openapi3.T, visit func(where string, s *openapi3.Schema)) {
	var walk func(where string, ref *openapi3.SchemaRef)
	walk = func(where string, ref *openapi3.SchemaRef) {
		if ref == nil || ref.Ref != "" {
			return
		}
		visit(where, ref.Value)
		for name, property := range ref.Value.Properties {
			walk(where+"/"+name, property)
		}
		for _, branch := range ref.Value.OneOf {
			walk(where+"/oneOf", branch)
		}
		walk(where+"/items", ref.Value.Items)
		walk(where+"/*", ref.Value.AdditionalProperties.Schema)
	}
	content := func(where string, c openapi3.Content) {
		for _, mediaType := range c {
			walk(where, mediaType.Schema)
		}
	}
	for name, schema := range doc.Components.Schemas {
		walk("/schemas/"+name, schema)
	}
	for name, response := range doc.Components.Responses {
		content("/responses/"+name, response.Value.Content)
	}
	for name, body := range doc.Components.RequestBodies {
		content("/requestBodies/"+name, body.Value.Content)
	}
	eachOperation(doc, func(method, path string, op *openapi3.Operation) {
		where := "/paths" + path + "/" + strings.ToLower(method) + "/"
		if op.RequestBody != nil && op.RequestBody.Ref == "" {
			content(where+"request", op.RequestBody.Value.Content)
		}
		for status, response := range op.Responses.Map() {
			if response.Ref == "" {
				content(where+status, response.Value.Content)
			}
		}
	})
}
