package stripesim

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// params is what an operation accepts: a reduced copy of the request schemas of
// 2023-10-16. A name that is not in it gets parameter_unknown.
type params map[string]rule

// rule is the type of one parameter.
type rule struct {
	check    func(name string, n *node) *apiError
	required bool
	unset    bool // an empty string clears it, and is otherwise refused

	refused, ignored bool   // see unsupported and ignored
	fields           params // of an object
}

func (r rule) needed() rule    { r.required = true; return r }
func (r rule) clearable() rule { r.unset = true; return r }

// with makes a table that has everything of both.
func (p params) with(more params) params {
	out := maps.Clone(p)
	maps.Copy(out, more)
	return out
}

// named lists the parameters that a test selects, those inside objects as they are sent: shipping[name].
func (p params) named(which func(rule) bool) (list []string) {
	for _, name := range sortedKeys(p) {
		if which(p[name]) {
			list = append(list, name)
		}
		for _, inner := range p[name].fields.named(which) {
			outer, rest, deeper := strings.Cut(inner, "[")
			inner = name + "[" + outer + "]"
			if deeper {
				inner += "[" + rest
			}
			list = append(list, inner)
		}
	}
	return list
}

// validate checks what was sent in the order it was sent, then what is missing.
func (p params) validate(n *node, prefix string) *apiError {
	for _, field := range n.names {
		name := field
		if prefix != "" {
			name = prefix + "[" + field + "]"
		}
		r, known := p[field]
		if !known {
			return invalid("parameter_unknown", name, "Received unknown parameter: %s", name)
		}
		child := n.fields[field]
		if child.leaf() && child.value == "" {
			if r.unset {
				continue
			}
			return invalid(
				"parameter_invalid_empty", name,
				"You passed an empty string for '%s'. We assume empty values are an attempt to unset a parameter; "+
					"however '%s' cannot be unset. You should remove '%s' from your request or supply a non-empty "+
					"value.",
				name, name, name,
			)
		}
		if err := r.check(name, child); err != nil {
			return err
		}
	}
	for _, field := range sortedKeys(p) {
		if p[field].required && n.field(field) == nil {
			name := field
			if prefix != "" {
				name = prefix + "[" + field + "]"
			}
			return invalid("parameter_missing", name, "Missing required param: %s.", name)
		}
	}
	return nil
}

// The types of parameter.
var (
	integerParam = rule{check: func(name string, n *node) *apiError {
		if !n.leaf() {
			return invalid("", name, "Invalid integer: must be a single value")
		}
		if _, err := strconv.ParseInt(n.value, 10, 64); err != nil {
			return invalid("parameter_invalid_integer", name, "Invalid integer: %s", n.value)
		}
		return nil
	}}
	booleanParam = rule{check: func(name string, n *node) *apiError {
		if !n.leaf() || (n.value != "true" && n.value != "false") {
			return invalid("", name, "Invalid boolean: %s", n.value)
		}
		return nil
	}}
	expandParam = listOf(stringParam(5000))

	// unsupported is a real parameter of Stripe's that the simulator does not
	// act on. Taking it in silence would be a lie, so it is refused by name.
	unsupported = rule{refused: true, check: func(name string, _ *node) *apiError {
		return invalid("", name, "stripesim does not implement the parameter %s", name)
	}}
	// ignored is a parameter without consequence here: it is not checked
	// and changes nothing we show.
	ignored = rule{ignored: true, check: func(string, *node) *apiError { return nil }, unset: true}

	metadataParam = rule{unset: true, check: func(name string, n *node) *apiError {
		if n.leaf() {
			return invalid("", name, "Invalid object")
		}
		if len(n.names) > 50 {
			return invalid("", name, "You cannot have more than 50 metadata keys")
		}
		for _, key := range n.names {
			v := n.fields[key]
			if !v.leaf() {
				return invalid("", name, "Metadata values must be strings, but for key '%s' you passed in a hash", key)
			}
			if len([]rune(key)) > 40 {
				return invalid(
					"", name,
					"Metadata keys can be at most 40 characters, but you passed in a key of %d characters: %s",
					len([]rune(key)),
					key,
				)
			}
			if size := len([]rune(v.value)); size > 500 {
				return invalid(
					"", name,
					"Metadata values can have up to 500 characters, but you passed in a value that is %d characters. "+
						"Invalid value: %s",
					size, v.value,
				)
			}
		}
		return nil
	}}
)

func stringParam(most int) rule {
	return rule{check: func(name string, n *node) *apiError {
		if !n.leaf() {
			return invalid("", name, "Invalid string: %s must be a single value", name)
		}
		if len([]rune(n.value)) > most {
			return invalid("", name, "Invalid string: %s; must be at most %d characters", abbreviate(n.value), most)
		}
		return nil
	}}
}

func oneOf(choices ...string) rule {
	return rule{check: func(name string, n *node) *apiError {
		for _, c := range choices {
			if n.leaf() && n.value == c {
				return nil
			}
		}
		last := name[strings.LastIndex(name, "[")+1:]
		return invalid("", name, "Invalid %s: must be %s", strings.TrimSuffix(last, "]"), either(choices))
	}}
}

func objectOf(p params) rule {
	return rule{fields: p, check: func(name string, n *node) *apiError {
		if n.leaf() {
			return invalid("", name, "Invalid object")
		}
		return p.validate(n, name)
	}}
}

func listOf(item rule) rule {
	return rule{check: func(name string, n *node) *apiError {
		if n.leaf() {
			return invalid("", name, "Invalid array")
		}
		for i, child := range n.items() {
			if err := item.check(fmt.Sprintf("%s[%d]", name, i), child); err != nil {
				return err
			}
		}
		return nil
	}}
}

// orValue accepts a plain value of one type or an object: created=1 and
// created[gte]=1 are both fine.
func orValue(value rule, p params) rule {
	return rule{check: func(name string, n *node) *apiError {
		if n.leaf() {
			return value.check(name, n)
		}
		return p.validate(n, name)
	}}
}

func either(choices []string) string {
	switch len(choices) {
	case 1:
		return choices[0]
	case 2:
		return "one of " + choices[0] + " or " + choices[1]
	}
	return "one of " + strings.Join(choices[:len(choices)-1], ", ") + ", or " + choices[len(choices)-1]
}

func abbreviate(s string) string {
	if r := []rune(s); len(r) > 20 {
		return string(r[:8]) + "..." + string(r[len(r)-8:])
	}
	return s
}

// Reading values that have been validated.

func (n *node) has(name string) bool { return n.field(name) != nil }

func (n *node) str(name string) string {
	if f := n.field(name); f != nil {
		return f.value
	}
	return ""
}

// text is the value as it is shown: absent and cleared are null.
func (n *node) text(name string) text {
	if v := n.str(name); v != "" {
		return &v
	}
	return nil
}

func (n *node) integer(name string) int64 {
	v, _ := strconv.ParseInt(n.str(name), 10, 64)
	return v
}

func (n *node) boolean(name string) bool { return n.str(name) == "true" }

func (n *node) strings(name string) []string {
	var out []string
	for _, item := range n.field(name).items() {
		out = append(out, item.value)
	}
	return out
}

// mergeMetadata applies sent metadata to what is there: an empty value deletes
// its key, an empty metadata deletes them all. The old map stays as it was.
func mergeMetadata(old map[string]string, n *node) map[string]string {
	sent := n.field("metadata")
	if sent == nil {
		return old
	}
	if sent.leaf() {
		return map[string]string{}
	}
	out := make(map[string]string, len(old)+len(sent.names))
	maps.Copy(out, old)
	for _, k := range sent.names {
		if v := sent.fields[k].value; v == "" {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}
