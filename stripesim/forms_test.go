package stripesim

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForms(t *testing.T) {
	t.Parallel()
	parsed := func(s string) *node {
		n := &node{fields: map[string]*node{}}
		require.Nil(t, parseForm(n, s), s)
		return n
	}
	n := parsed("a=1&b[c]=2&b[d][]=3&b[d][]=4&e%5B0%5D=5&f=x+y%26z&g[10]=j&g[9]=i")
	require.Equal(t, "1", n.str("a"))
	require.Equal(t, "2", n.field("b").str("c"))
	require.Equal(t, []string{"3", "4"}, n.field("b").strings("d"))
	require.Equal(t, []string{"5"}, n.strings("e"))
	require.Equal(t, "x y&z", n.str("f"))
	require.Equal(t, []string{"i", "j"}, n.strings("g"))

	same := func(a, b string) { require.Equal(t, parsed(a).fingerprint(), parsed(b).fingerprint(), "%s / %s", a, b) }
	differ := func(a, b string) {
		require.NotEqual(t, parsed(a).fingerprint(), parsed(b).fingerprint(), "%s / %s", a, b)
	}
	same("a=1&b=2", "b=2&a=1")
	same("m[a]=1&m[b]=2", "m%5Bb%5D=2&m%5Ba%5D=1")
	same("a[]=1&a[]=2", "a[0]=1&a[1]=2")
	differ("a=1", "a=2")
	differ("a=1", "a=1&b=")
	differ("a[0]=1&a[1]=2", "a[0]=2&a[1]=1")
	differ("a[b]=1", "a=b%3D1")
	differ("a[b]=1&a[c]=2", "a[b]=1&c=2")
	differ("a==", "a=%3D%3D%3D")
}

// FuzzForms: whatever arrives, parsing does not panic, and what was parsed means
// the same after it has been written and parsed again.
func FuzzForms(f *testing.F) {
	for _, s := range []string{"", "a=1", "a[b][c]=1&a[b][]=2", "[]=1", "a[=1", "a]=[", "a[]]=x", "%zz=1", "a=1&a[b]=2",
		"a[b]=2&a=1", "metadata[x[y]]=1", "&&=&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := &node{fields: map[string]*node{}}
		if parseForm(n, s) != nil {
			return
		}
		_ = createIntentParams.validate(n, "")
		again := &node{fields: map[string]*node{}}
		for _, path := range flatten(n, nil) {
			again.set(path[:len(path)-1], path[len(path)-1])
		}
		if n.fingerprint() != again.fingerprint() {
			t.Fatalf("%q changed its meaning", s)
		}
		// Percent-encoding is no difference.
		if values, err := url.ParseQuery(s); err == nil && len(values) == 1 {
			encoded := &node{fields: map[string]*node{}}
			if parseForm(encoded, values.Encode()) != nil ||
				(len(values[first(values)]) == 1 && encoded.fingerprint() != n.fingerprint()) {
				t.Fatalf("%q means something else encoded", s)
			}
		}
	})
}

func first(v url.Values) string {
	for k := range v {
		return k
	}
	return ""
}

// flatten lists the leaves as path and value.
func flatten(n *node, path []string) [][]string {
	if n.leaf() {
		return [][]string{append(append([]string(nil), path...), n.value)}
	}
	var out [][]string
	for _, name := range n.names {
		out = append(out, flatten(n.fields[name], append(path[:len(path):len(path)], name))...)
	}
	return out
}
