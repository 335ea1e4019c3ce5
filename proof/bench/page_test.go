package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrite: a run of some groups leaves what others have measured, and the words
// of the page are whoever's wrote them.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	groups := []group{{name: "first"}, {name: "second"}}
	one := func(name string, rate, reached float64) []result {
		return []result{{Name: name, How: "Once.", Rows: []row{{Name: "rows of " + name, Rates: []float64{rate}}},
			Outcomes: []outcome{{ID: "P2", What: "enough of " + name, Want: 0.5, Reached: []float64{reached}}}}}
	}
	require.NoError(t, write(dir, groups, one("second", 20, 0.4949)))
	require.NoError(t, write(dir, groups, one("first", 10, 0.4951)))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+begin+`
### Targets

| | what | target | reached | met |
| --- | --- | --- | --- | --- |
| P2 | enough of first | ≥ 0.50 | 0.50 | yes |
| P2 | enough of second | ≥ 0.50 | 0.49 | **no** |

### First

Once.

![first](img/bench-first.svg)

| what | per second | range | of its floor | cost per operation |
| --- | --- | --- | --- | --- |
| rows of first | 10 | 10 – 10 |  |  |

### Second

Once.

![second](img/bench-second.svg)

| what | per second | range | of its floor | cost per operation |
| --- | --- | --- | --- | --- |
| rows of second | 20 | 20 – 20 |  |  |

`+end+"after\n", string(text))
	require.FileExists(t, filepath.Join(dir, "img", "bench-first.svg"))
	require.FileExists(t, filepath.Join(dir, "img", "bench-second.svg"))

	require.NoError(t, write(dir, groups, one("first", 11, 0.6)))
	text, err = os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "| rows of first | 11 |")
	require.NotContains(t, string(text), "| rows of first | 10 |")
	require.Contains(t, string(text), "| rows of second | 20 |")
}

func TestByID(t *testing.T) {
	t.Parallel()
	list := []outcome{{ID: "P10"}, {ID: "P1b"}, {ID: "P9"}, {ID: "P1"}}
	slices.SortFunc(list, byID)
	require.Equal(t, []outcome{{ID: "P1"}, {ID: "P1b"}, {ID: "P9"}, {ID: "P10"}}, list)
}

func TestMet(t *testing.T) {
	t.Parallel()
	require.True(t, outcome{Want: 150, AtMost: true, Unit: "µs", Reached: []float64{150.4}}.met(), "as it is shown")
	require.False(t, outcome{Want: 150, AtMost: true, Unit: "µs", Reached: []float64{150.6}}.met())
	require.True(t, outcome{Want: 2, Reached: []float64{1, 2, 9}}.met(), "the median")
}
