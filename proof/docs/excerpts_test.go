package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

var excerpt = regexp.MustCompile("(?ms)^```(?:go|pgsql)\n(?://|--) (\\S+)\n(.*?)^```$")

// TestExcerpts: what a page shows of a file stands in that file, in that order,
// up to the lines it leaves out (…).
func TestExcerpts(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read("docs/add-an-operation.md")
	require.NoError(t, err)
	found := excerpt.FindAllStringSubmatch(page, -1)
	require.Len(t, found, strings.Count(page, "\n```go\n")+strings.Count(page, "\n```pgsql\n"),
		"an excerpt that does not say from where")
	for _, e := range found {
		source, err := inventory.Read(e[1])
		require.NoError(t, err)
		for part := range strings.SplitSeq(e[2], "…\n") {
			_, rest, ok := strings.Cut(source, part)
			require.True(t, ok, "%s has nowhere, or not in this order:\n%s", e[1], part)
			source = rest
		}
	}
}
