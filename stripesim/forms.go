package stripesim

import (
	"crypto/sha256"
	"io"
	"net/url"
	"sort"
	"strconv"
	"strings"
)

// node is a form parameter after its brackets have been taken apart: either a
// value or named fields. An array is fields named 0, 1, 2.
type node struct {
	value  string
	fields map[string]*node
	names  []string // the fields in the order they were sent
}

func (n *node) leaf() bool { return n.fields == nil }

func (n *node) field(name string) *node {
	if n == nil || n.fields == nil {
		return nil
	}
	return n.fields[name]
}

// items are the elements of an array in order.
func (n *node) items() []*node {
	if n == nil {
		return nil
	}
	out := make([]*node, 0, len(n.names))
	for _, name := range sortedIndexes(n.names) {
		out = append(out, n.fields[name])
	}
	return out
}

// parseForm reads application/x-www-form-urlencoded text, with brackets raw or
// percent-encoded.
func parseForm(into *node, encoded string) *apiError {
	for encoded != "" {
		var pair string
		pair, encoded, _ = strings.Cut(encoded, "&")
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(k)
		if err != nil {
			return invalid("", "", "Invalid request: unable to decode the parameter name %q", k)
		}
		value, err := url.QueryUnescape(v)
		if err != nil {
			return invalid("", name, "Invalid request: unable to decode the value of %q", name)
		}
		into.set(splitName(name), value)
	}
	return nil
}

// splitName takes "a[b][0]" apart into a, b, 0.
func splitName(name string) []string {
	head, rest, bracketed := strings.Cut(name, "[")
	if !bracketed || head == "" {
		return []string{name}
	}
	parts := []string{head}
	for {
		part, tail, closed := strings.Cut(rest, "]")
		if !closed {
			return []string{name}
		}
		parts = append(parts, part)
		if tail == "" {
			return parts
		}
		if tail[0] != '[' {
			return []string{name}
		}
		rest = tail[1:]
	}
}

func (n *node) set(path []string, value string) {
	for _, part := range path {
		if n.fields == nil {
			n.fields = make(map[string]*node, 4)
		}
		if part == "" { // a[]=x is the next element of a
			part = strconv.Itoa(len(n.names))
		}
		next := n.fields[part]
		if next == nil {
			next = &node{}
			n.fields[part] = next
			n.names = append(n.names, part)
		}
		n = next
	}
	n.value, n.fields, n.names = value, nil, nil
}

// fingerprint identifies the parsed parameters: two requests that mean the same
// have the same one, whatever the order or encoding of their bytes.
func (n *node) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	n.digest(h)
	return [sha256.Size]byte(h.Sum(nil))
}

func (n *node) digest(w io.Writer) {
	if n.leaf() {
		io.WriteString(w, "="+strconv.Quote(n.value))
		return
	}
	io.WriteString(w, "{")
	for _, name := range sortedIndexes(n.names) {
		io.WriteString(w, strconv.Quote(name))
		n.fields[name].digest(w)
	}
	io.WriteString(w, "}")
}

func sortedIndexes(names []string) []string {
	if len(names) < 2 {
		return names
	}
	out := append([]string(nil), names...)
	sort.Slice(out, func(i, j int) bool {
		a, errA := strconv.Atoi(out[i])
		b, errB := strconv.Atoi(out[j])
		if errA == nil && errB == nil {
			return a < b
		}
		return out[i] < out[j]
	})
	return out
}
