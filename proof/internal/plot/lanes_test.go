package plot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLanes(t *testing.T) {
	t.Parallel()
	p := Lanes{
		Title: "what <happened>", X: "s", Until: 60, Names: []string{"api-1", "PostgreSQL"},
		Kinds: []string{"kill -9", "pause"},
		Spans: []Span{{"api-1", "kill -9", 1, 1}, {"api-1", "pause", 50, 70}, {"PostgreSQL", "restart", 1, 2},
			{"nobody", "pause", 1, 2}},
	}
	svg := string(p.SVG())
	requireXML(t, svg)
	require.NotContains(t, svg, "<happened>", "a title is text")
	require.Equal(t, 2+len(p.Kinds), strings.Count(svg, "<rect"), "what has no lane or no name is not drawn")
	require.Contains(t, svg, `width="2.0"`, "what takes no time is seen all the same")
	requireXML(t, string(Lanes{}.SVG()))
}
