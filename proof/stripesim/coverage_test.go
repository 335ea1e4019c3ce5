package stripesim_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
)

var update = flag.Bool("update", false, "write stripesim/COVERAGE.md")

const coveragePage = "stripesim/COVERAGE.md"

// coverage is what the recorded bodies have shown: of each endpoint which statuses, of each property whether it was
// there, and of each enumeration which values.
type coverage struct {
	statuses   map[string]map[int]int // by operation
	properties map[string]property    // by object and path: charge.outcome.type
	bodies     int
}

type property struct {
	valued bool            // present, and not null
	values map[string]bool // of an enumeration
}

func newCoverage() *coverage {
	return &coverage{statuses: map[string]map[int]int{}, properties: map[string]property{}}
}

// add notes a body that has been validated.
func (c *coverage) add(request string, status int, v any) {
	c.bodies++
	if op := operationOf(request); op != "" {
		if c.statuses[op] == nil {
			c.statuses[op] = map[int]int{}
		}
		c.statuses[op][status]++
	}
	if o, ok := v.(map[string]any); ok && o["error"] != nil {
		c.object("error", schema("error"), o)
	}
	c.walk(v)
}

func (c *coverage) walk(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			c.walk(item)
		}
	case map[string]any:
		name, _ := v["object"].(string)
		if v["deleted"] == true {
			name = "deleted_" + name
		}
		if s := schema(name); s != nil {
			c.object(name, s, v)
		}
		for _, child := range v {
			c.walk(child)
		}
	}
}

func (c *coverage) object(path string, s *openapi3.Schema, o map[string]any) {
	for name, v := range o {
		if s.Properties[name] == nil {
			continue // validate has complained
		}
		c.value(path+"."+name, s.Properties[name].Value, v)
	}
}

func (c *coverage) value(path string, s *openapi3.Schema, v any) {
	p := c.properties[path]
	p.valued = p.valued || v != nil
	if text, ok := v.(string); ok && len(enum(s)) > 0 {
		if p.values == nil {
			p.values = map[string]bool{}
		}
		p.values[text] = true
	}
	c.properties[path] = p
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if s.Items != nil {
				c.value(path+"[]", s.Items.Value, item)
			}
		}
	case map[string]any:
		if _, isObject := v["object"]; isObject {
			return // walk comes to it on its own
		}
		if next := objectSchema(s); next != nil {
			c.object(path, next, v)
		}
	}
}

// enum are the values that a schema allows, directly or in one of its alternatives.
func enum(s *openapi3.Schema) (values []string) {
	for _, v := range s.Enum {
		if text, ok := v.(string); ok && text != "" {
			values = append(values, text)
		}
	}
	for _, alt := range s.AnyOf {
		values = append(values, enum(alt.Value)...)
	}
	return values
}

// operationOf names the endpoint of a request, as faults do.
func operationOf(request string) (found string) {
	for _, op := range stripesim.Operations() {
		pattern := "^" + strings.ReplaceAll(op.Method+" "+op.Pattern, "{id}", "[^/]+") + "$"
		if request == op.Method+" "+op.Pattern {
			return op.Name
		}
		if found == "" && regexp.MustCompile(pattern).MatchString(request) {
			found = op.Name
		}
	}
	return found
}

// differences are the properties whose content is not Stripe's, each with words of DIFFERENCES.md that say so.
var differences = map[string]string{
	"account.id":                   "do not encode accounts or time",
	"charge.receipt_url":           "receipt links lead nowhere",
	"charge.balance_transaction":   "2.9 % + 30, available after two days",
	"balance_transaction.fee":      "2.9 % + 30, available after two days",
	"error.error.request_log_url":  "`request_log_url`",
	"payment_intent.next_action":   "`next_action` has the right type and no real content",
	"payment_intent.customer":      "No customers",
	"charge.customer":              "No customers",
	"payment_method.customer":      "No customers",
	"payment_method.type":          "Cards only",
	"dispute.evidence":             "evidence is text; files are not checked",
	"webhook_endpoint.api_version": "rendered at `2023-10-16`",
	"webhook_endpoint.url":         "may be on this machine and may be `http:`",
	"event.pending_webhooks":       "gets every account's events",
}

// page renders the coverage.
func (c *coverage) page(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `# What the simulator covers

The simulator's own tests record every response and webhook that their clients receive. Each is validated against the OpenAPI document of
Stripe's API %s, as stripe-mock v0.183.0 carries it: required properties, types, enumerations, nulls, and that no property is invented.
The names of all parameters are compared with the same document. This page is what that covered. The bodies are the same over HTTP/1.1,
TLS and HTTP/2, which a port of the simulator's speaks. It says nothing about behaviour, which
TestContract asks of the simulator and of Stripe. It is written by %s.

`, spec().Info.Version, "`go test -C proof ./stripesim -run TestShapes -update`")
	c.endpoints(&b)
	c.objects(t, &b)
	return b.String()
}

func (c *coverage) endpoints(b *strings.Builder) {
	served, theirs := map[string]stripesim.Operation{}, 0
	for _, op := range stripesim.Operations() {
		served[op.Method+" "+withoutNames(op.Pattern)] = op
	}
	resources, others := map[string][]string{}, map[string]int{}
	for path, item := range spec().Paths.Map() {
		resource := strings.Split(path, "/")[2]
		for method := range item.Operations() {
			theirs++
			if _, ok := served[method+" "+withoutNames(path)]; ok {
				resources[resource] = append(resources[resource], "")
			}
		}
	}
	for path, item := range spec().Paths.Map() {
		resource := strings.Split(path, "/")[2]
		for method := range item.Operations() {
			_, ok := served[method+" "+withoutNames(path)]
			switch {
			case ok:
			case resources[resource] != nil:
				resources[resource] = append(resources[resource], method+" "+path)
			default:
				others[resource]++
			}
		}
	}
	fmt.Fprintf(b, "## Endpoints\n\n%d of Stripe's %d. Any other is answered with 404.\n\n", len(served), theirs)
	b.WriteString("| Endpoint | In faults | Responses checked | Refused by name | Taken, without effect |\n" +
		"| --- | --- | --- | --- | --- |\n")
	for _, op := range stripesim.Operations() {
		var statuses []string
		for _, status := range slices.Sorted(maps.Keys(c.statuses[op.Name])) {
			statuses = append(statuses, fmt.Sprint(status))
		}
		fmt.Fprintf(b, "| `%s %s` | `%s` | %s | %s | %s |\n", op.Method, op.Pattern, op.Name, strings.Join(statuses, ", "),
			quoted(op.Refused), quoted(op.Ignored))
	}
	b.WriteString("\nA parameter that is in neither of the last two columns is acted on. [DIFFERENCES.md](DIFFERENCES.md) has what it does\n" +
		"differently, of `customer` for one.\n\nNot served, of the same resources:\n\n")
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		missing := slices.DeleteFunc(resources[resource], func(s string) bool { return s == "" })
		slices.Sort(missing)
		if len(missing) > 0 {
			fmt.Fprintf(b, "- %s\n", quoted(missing))
		}
	}
	fmt.Fprintf(b, "\nNot served at all: %s.\n\n", quoted(slices.Sorted(maps.Keys(others))))
}

func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func (c *coverage) objects(t *testing.T, b *strings.Builder) {
	t.Helper()
	text := source(t, "stripesim/DIFFERENCES.md")
	b.WriteString("## Properties\n\nOf each object: what was checked with a value, what was never anything but null, and what Stripe may send and\n" +
		"this does not. Inside an object that is not sent nothing is listed.\n\n")
	byObject := map[string][]string{}
	for path := range c.properties {
		name, _, _ := strings.Cut(path, ".")
		byObject[name] = append(byObject[name], path)
	}
	unused := maps.Clone(differences)
	for _, name := range slices.Sorted(maps.Keys(byObject)) {
		paths := byObject[name]
		slices.Sort(paths)
		var valued, null, enums []string
		different := []string{}
		for _, path := range paths {
			short := strings.TrimPrefix(path, name+".")
			p := c.properties[path]
			if p.valued {
				valued = append(valued, short)
			} else {
				null = append(null, short)
			}
			if phrase := differences[path]; phrase != "" {
				require.Contains(t, text, phrase, "DIFFERENCES.md, of %s", path)
				different = append(different, short)
				delete(unused, path)
			}
			if allowed := enumAt(name, short); len(allowed) > 1 && p.valued {
				enums = append(enums, fmt.Sprintf("`%s`: %s%s", short, quoted(slices.Sorted(maps.Keys(p.values))),
					missing(allowed, p.values)))
			}
		}
		fmt.Fprintf(b, "### %s\n\n| | |\n| --- | --- |\n", name)
		for _, row := range [][2]string{
			{"checked with values", quoted(valued)}, {"checked, as null only", quoted(null)}, {"not sent", quoted(c.unsent(name))},
			{"[different](DIFFERENCES.md)", quoted(different)}, {"values seen", strings.Join(enums, "; ")},
		} {
			if row[1] != "" {
				fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
			}
		}
		b.WriteString("\n")
	}
	require.Empty(t, unused, "of no property that was seen")
}

// missing says which values of an enumeration were not seen, or how many.
func missing(allowed []string, seen map[string]bool) string {
	var rest []string
	for _, v := range allowed {
		if !seen[v] && !slices.Contains(rest, v) {
			rest = append(rest, v)
		}
	}
	slices.Sort(rest)
	switch {
	case len(rest) == 0:
		return " (all)"
	case len(rest) > 8:
		return fmt.Sprintf(" (not %d others)", len(rest))
	}
	return " (not " + quoted(rest) + ")"
}

// at finds the schema of a property inside an object's.
func at(name, short string) *openapi3.Schema {
	s := schema(name)
	for part := range strings.SplitSeq(short, ".") {
		part, depth := strings.TrimRight(part, "[]"), strings.Count(part, "[]")
		if next := objectSchema(s); next != nil {
			s = next
		}
		s = s.Properties[part].Value
		for range depth {
			s = s.Items.Value
		}
	}
	return s
}

func enumAt(name, short string) []string { return enum(at(name, short)) }

// unsent lists the properties of an object, and of the objects in it that were seen, that were in no body.
func (c *coverage) unsent(name string) (list []string) {
	inside := map[string]*openapi3.Schema{"": schema(name)}
	for path, p := range c.properties {
		object, short, _ := strings.Cut(path, ".")
		if object != name || !p.valued {
			continue
		}
		if next := objectSchema(at(name, short)); next != nil && next.Properties["object"] == nil {
			inside[short+"."] = next
		}
	}
	for prefix, s := range inside {
		for property := range s.Properties {
			if _, seen := c.properties[name+"."+prefix+property]; !seen {
				list = append(list, prefix+property)
			}
		}
	}
	slices.Sort(list)
	return list
}

// isOnItsPage compares the coverage with stripesim/COVERAGE.md, or writes it there.
func (c *coverage) isOnItsPage(t *testing.T) {
	var unchecked []string
	for _, op := range stripesim.Operations() {
		if c.statuses[op.Name][200] == 0 {
			unchecked = append(unchecked, op.Name)
		}
	}
	require.Empty(t, unchecked, "of these no successful response was checked")
	want := c.page(t)
	if *update {
		root, err := process.Root()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, coveragePage), []byte(want), 0o600))
	}
	have := source(t, coveragePage)
	if have != want {
		require.Equal(t, firstDifference(have, want), firstDifference(want, have),
			"%s is not what was checked; go test -C proof ./stripesim -run TestShapes -update", coveragePage)
	}
}

// firstDifference is the first line of a that b does not have.
func firstDifference(a, b string) string {
	lines := strings.Split(b, "\n")
	for line := range strings.SplitSeq(a, "\n") {
		if !slices.Contains(lines, line) {
			return line
		}
	}
	return ""
}
