package payments

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
)

// TestFiltersByTimeAreARangeOfIDs: created_after includes its millisecond, created_before does not.
func TestFiltersByTimeAreARangeOfIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	in := func(f Filter, after, id string) bool {
		s := f.span(ids.Order, after)
		return s.from <= id && id < s.before
	}
	made := func(ms int) string { return ids.At(ids.Order, at.Add(time.Duration(ms)*time.Millisecond)) }
	require.True(t, in(Filter{}, "", made(0)))
	require.True(t, in(Filter{}, "", "ord_vvvvvvvvvvvvvvvvvvvvvvvvvv"))
	for name, c := range map[string]struct {
		f    Filter
		want []int // the milliseconds that it has
	}{
		"after":                    {Filter{CreatedAfter: at}, []int{0, 1}},
		"after a part of it":       {Filter{CreatedAfter: at.Add(time.Nanosecond)}, []int{1}},
		"before":                   {Filter{CreatedBefore: at}, []int{-1}},
		"before a part of it":      {Filter{CreatedBefore: at.Add(time.Nanosecond)}, []int{-1, 0}},
		"between":                  {Filter{CreatedAfter: at, CreatedBefore: at.Add(time.Millisecond)}, []int{0}},
		"nothing between":          {Filter{CreatedAfter: at, CreatedBefore: at}, nil},
		"the end before the start": {Filter{CreatedAfter: at.Add(time.Hour), CreatedBefore: at}, nil},
	} {
		var has []int
		for ms := -1; ms <= 1; ms++ {
			if in(c.f, "", made(ms)) {
				has = append(has, ms)
			}
		}
		require.Equal(t, c.want, has, name)
	}
	cursor := made(0)
	require.False(t, in(Filter{}, cursor, cursor))
	require.True(t, in(Filter{}, cursor, made(-1)))
	require.False(t, in(Filter{CreatedBefore: at.Add(-time.Hour)}, cursor, made(-1)), "a cursor does not widen a filter")
	require.False(t, in(Filter{CreatedBefore: at.Add(time.Hour)}, cursor, made(1)), "nor the reverse")
}

// TestListsReadUntilThePageIsFull, and no further.
func TestListsReadUntilThePageIsFull(t *testing.T) {
	t.Parallel()
	show := func(s string) string { return s }
	read := func(limit int, full func([]string) bool, parts ...part[string]) (page []string, more bool, asked []string) {
		t.Helper()
		page, more, err := list(limit, span{from: "a", before: "z"}, func(s span, n int32) (part[string], error) {
			require.Equal(t, "a", s.from)
			require.Positive(t, n)
			asked = append(asked, s.before)
			p := parts[0]
			parts = parts[1:]
			return p, nil
		}, full, show)
		require.NoError(t, err)
		require.Empty(t, parts)
		return page, more, asked
	}
	never := func([]string) bool { return false }
	many := func(n int) part[string] {
		return part[string]{rows: slices.Repeat([]string{"x"}, n), next: "x", scanned: scanRows}
	}

	page, more, asked := read(2, never, part[string]{rows: []string{"y", "x"}})
	require.Equal(t, []string{"y", "x"}, page)
	require.False(t, more)
	require.Equal(t, []string{"z"}, asked)

	page, more, asked = read(2, never, part[string]{rows: []string{"y"}, next: "m"}, part[string]{next: "k"},
		part[string]{rows: []string{"c", "b"}, next: "b"})
	require.Equal(t, []string{"y", "c"}, page)
	require.True(t, more)
	require.Equal(t, []string{"z", "m", "k"}, asked)

	page, more, _ = read(9, func(rows []string) bool { return len(rows) == 3 }, many(2), many(1))
	require.Len(t, page, 2, "the last one shows that there are more")
	require.True(t, more)
	page, more, _ = read(9, func([]string) bool { return true }, many(1), part[string]{})
	require.Len(t, page, 1, "one is no page with more to come")
	require.False(t, more)

	page, more, _ = read(9, never, many(1), many(0), many(0), many(0), many(1))
	require.Len(t, page, 1, "a scan ends with what it has")
	require.True(t, more)
	page, more, _ = read(9, never, many(0), many(0), many(0), many(0), many(0), many(0), many(1), part[string]{})
	require.Len(t, page, 1, "but not with nothing")
	require.False(t, more)

	_, _, err := list(1, span{}, func(span, int32) (part[string], error) { return part[string]{}, errors.New("away") },
		never, show)
	require.EqualError(t, err, "away")
}

func TestPartsOfAList(t *testing.T) {
	t.Parallel()
	id := func(s string) string { return s }
	require.Equal(t, part[string]{rows: []string{"b", "a"}, next: "a"}, indexed([]string{"b", "a"}, 2, id))
	require.Equal(t, part[string]{rows: []string{"a"}}, indexed([]string{"a"}, 2, id))
	short := func(s string) bool { return len(s) == 1 }
	require.Equal(t, part[string]{rows: []string{"c"}, next: "bb", scanned: scanRows},
		scannedPart([]string{"c", "bb"}, span{}, id, short))
	require.Equal(t, part[string]{rows: []string{"c"}, next: "c", scanned: scanRows},
		scannedPart([]string{"c"}, span{from: "a", indexed: "b"}, id, short))
	require.Equal(t, part[string]{scanned: scanRows}, scannedPart(nil, span{}, id, short), "no more")
	require.Equal(t, part[string]{scanned: scanRows}, scannedPart(nil, span{from: "b", indexed: "b"}, id, short))
	require.Equal(t, part[string]{scanned: scanRows, next: "b"},
		scannedPart(nil, span{from: "a", indexed: "b"}, id, short), "what the index has follows")
}

// TestWhatNoIndexHas: of a status that the index has in part, what is younger is scanned; of the others all, or nothing.
func TestWhatNoIndexHas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want span
		scans    bool
	}{
		"all":            {span{"a", "z", ""}, span{"a", "z", ""}, true},
		"nothing":        {span{"a", "z", last}, span{last, "z", last}, false},
		"what is young":  {span{"a", "z", "m"}, span{"m", "z", "m"}, true},
		"all are young":  {span{"n", "z", "m"}, span{"n", "z", "m"}, true},
		"none is young":  {span{"a", "m", "m"}, span{"m", "m", "m"}, false},
		"all are old":    {span{"a", "c", "m"}, span{"m", "c", "m"}, false},
		"an empty range": {span{"z", "n", "m"}, span{"z", "n", "m"}, false},
	} {
		young, scans := c.in.unindexed()
		require.Equal(t, c.want, young, name)
		require.Equal(t, c.scans, scans, name)
	}
}
