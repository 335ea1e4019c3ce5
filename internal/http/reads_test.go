package http

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesAreBounded: a page ends before the object that would make it too large, says that there is more, and is never
// empty because of it.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	third := strings.Repeat("x", pageBytesMax/3+1)
	for name, c := range map[string]struct {
		list []string
		more bool
		want listBody[string]
	}{
		"none":               {[]string{}, false, listBody[string]{"list", []string{}, false}},
		"small ones":         {[]string{"<a>", "é", "\x00"}, false, listBody[string]{"list", []string{"<a>", "é", "\x00"}, false}},
		"small ones of more": {[]string{"a"}, true, listBody[string]{"list", []string{"a"}, true}},
		"large ones":         {[]string{third, third, third, third}, false, listBody[string]{"list", []string{third, third}, true}},
		"one that is larger": {[]string{third + third + third, "a"}, false, listBody[string]{"list", []string{third + third + third}, true}},
		"the last is larger": {[]string{third + third + third}, false, listBody[string]{"list", []string{third + third + third}, false}},
	} {
		require.Equal(t, string(mustJSON(c.want)), string(pageOf(c.list, c.more)), name)
	}
}
