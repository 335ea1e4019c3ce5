package stripe

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKnownReleasesAreBounded: what is read again and again stays, the rest is dropped, and there are never more than
// two maps.
func TestKnownReleasesAreBounded(t *testing.T) {
	t.Parallel()
	var k knownReleases
	_, known := k.get("re_used")
	require.False(t, known)
	k.put("re_used", true)
	k.put("re_unused", true)
	for n := range 5 * knownReleasesMax / 2 {
		k.put("re_"+strconv.Itoa(n), n%2 == 0)
		if n%1000 == 0 {
			released, known := k.get("re_used")
			require.True(t, released && known, n)
			require.LessOrEqual(t, len(k.recent), knownReleasesMax)
			require.LessOrEqual(t, len(k.older), knownReleasesMax)
		}
	}
	_, known = k.get("re_unused")
	require.False(t, known)
	released, known := k.get("re_" + strconv.Itoa(5*knownReleasesMax/2-1))
	require.True(t, known)
	require.False(t, released)
}
