package http

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"

	"example.com/payonce/internal/operations"
)

//go:embed openapi.yaml
var openAPIYAML []byte

// OpenAPI is the API's contract as JSON, the bytes of /openapi.json. The document is
// written in YAML, which is easier to edit, and converted once. Members keep the order of
// the file, because the reference shows them in that order.
var OpenAPI = sync.OnceValue(func() []byte { return renderOpenAPI(nil) })

// OpenAPIWith is the contract of a service that has operations of one's own. What each
// documents is added to paths and to components/schemas.
func OpenAPIWith(own operations.List) []byte {
	if len(own) == 0 {
		return OpenAPI()
	}
	return renderOpenAPI(own)
}

func renderOpenAPI(own operations.List) []byte {
	doc := readYAML("openapi.yaml", openAPIYAML)
	for _, o := range own {
		documented := readYAML("the OpenAPI of "+o.Name, o.OpenAPI)
		for _, path := range [][]string{{"paths"}, {"components", "schemas"}} {
			to, from := member(doc, path...), member(documented, path...)
			if from != nil {
				to.Content = append(to.Content, from.Content...)
			}
		}
	}
	var b bytes.Buffer
	if err := writeJSON(&b, doc); err != nil {
		panic(fmt.Sprintf("bug: openapi.yaml: %v", err))
	}
	return b.Bytes()
}

// eventTypes are the types of events that the contract documents.
var eventTypes = sync.OnceValue(func() (types []string) {
	doc := readYAML("openapi.yaml", openAPIYAML)
	for _, kind := range member(doc, "components", "schemas", "EventType", "enum").Content {
		types = append(types, kind.Value)
	}
	return types
})

func readYAML(name string, text []byte) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		panic(fmt.Sprintf("bug: %s: %v", name, err))
	}
	return doc.Content[0]
}

// member finds a member of a mapping by its path; nil if there is none.
func member(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		var found *yaml.Node
		for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	return n
}

// writeJSON writes a YAML node as JSON. Decoding into map[string]any first would lose the
// order of the members.
func writeJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			name, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return err
			}
			b.Write(name)
			b.WriteByte(':')
			if err := writeJSON(b, n.Content[i+1]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		value, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		b.Write(value)
	default:
		return fmt.Errorf("line %d: anchors and aliases are not used in this document", n.Line)
	}
	return nil
}
