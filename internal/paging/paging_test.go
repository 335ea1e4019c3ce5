package paging_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/paging"
)

// TestFiltersByTimeAreARangeOfIDs: created_after includes its millisecond, created_before does not.
func TestFiltersByTimeAreARangeOfIDs(t *testing.T) {
	t.Parallel()
	type filter struct{ CreatedAfter, CreatedBefore time.Time }
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	in := func(f filter, after, id string) bool {
		s := paging.Between(ids.Order, after, f.CreatedAfter, f.CreatedBefore)
		return s.From <= id && id < s.Before
	}
	made := func(ms int) string { return ids.At(ids.Order, at.Add(time.Duration(ms)*time.Millisecond)) }
	require.True(t, in(filter{}, "", made(0)))
	require.True(t, in(filter{}, "", "ord_vvvvvvvvvvvvvvvvvvvvvvvvvv"))
	require.Empty(t, paging.Between(ids.Order, "", time.Time{}, time.Time{}).From, "without a time there is no first id")
	for name, c := range map[string]struct {
		f    filter
		want []int // the milliseconds that it has
	}{
		"after":                    {filter{CreatedAfter: at}, []int{0, 1}},
		"after a part of it":       {filter{CreatedAfter: at.Add(time.Nanosecond)}, []int{1}},
		"before":                   {filter{CreatedBefore: at}, []int{-1}},
		"before a part of it":      {filter{CreatedBefore: at.Add(time.Nanosecond)}, []int{-1, 0}},
		"between":                  {filter{CreatedAfter: at, CreatedBefore: at.Add(time.Millisecond)}, []int{0}},
		"nothing between":          {filter{CreatedAfter: at, CreatedBefore: at}, nil},
		"the end before the start": {filter{CreatedAfter: at.Add(time.Hour), CreatedBefore: at}, nil},
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
	require.False(t, in(filter{}, cursor, cursor))
	require.True(t, in(filter{}, cursor, made(-1)))
	require.False(t, in(filter{CreatedBefore: at.Add(-time.Hour)}, cursor, made(-1)), "a cursor does not widen a filter")
	require.False(t, in(filter{CreatedBefore: at.Add(time.Hour)}, cursor, made(1)), "nor the reverse")
}

// TestListsReadUntilThePageIsFull, and no further.
func TestListsReadUntilThePageIsFull(t *testing.T) {
	t.Parallel()
	show := func(s string) string { return s }
	read := func(limit int, full func([]string) bool, parts ...paging.Part[string]) (page []string, more bool, asked []string) {
		t.Helper()
		page, more, err := paging.List(limit, paging.Span{From: "a", Before: "z"}, func(s paging.Span, n int32) (paging.Part[string], error) {
			require.Equal(t, "a", s.From)
			require.Positive(t, n)
			asked = append(asked, s.Before)
			p := parts[0]
			parts = parts[1:]
			return p, nil
		}, full, show)
		require.NoError(t, err)
		require.Empty(t, parts)
		return page, more, asked
	}
	never := func([]string) bool { return false }
	many := func(n int) paging.Part[string] {
		return paging.Part[string]{Rows: slices.Repeat([]string{"x"}, n), Next: "x", Scanned: paging.ScanRows}
	}

	page, more, asked := read(2, never, paging.Part[string]{Rows: []string{"y", "x"}})
	require.Equal(t, []string{"y", "x"}, page)
	require.False(t, more)
	require.Equal(t, []string{"z"}, asked)

	page, more, asked = read(2, never, paging.Part[string]{Rows: []string{"y"}, Next: "m"}, paging.Part[string]{Next: "k"},
		paging.Part[string]{Rows: []string{"c", "b"}, Next: "b"})
	require.Equal(t, []string{"y", "c"}, page)
	require.True(t, more)
	require.Equal(t, []string{"z", "m", "k"}, asked)

	page, more, _ = read(9, func(rows []string) bool { return len(rows) == 3 }, many(2), many(1))
	require.Len(t, page, 2, "the last one shows that there are more")
	require.True(t, more)
	page, more, _ = read(9, func([]string) bool { return true }, many(1), paging.Part[string]{})
	require.Len(t, page, 1, "one is no page with more to come")
	require.False(t, more)

	page, more, _ = read(9, never, many(1), many(0), many(0), many(0), many(1))
	require.Len(t, page, 1, "a scan ends with what it has")
	require.True(t, more)
	page, more, _ = read(9, never, many(0), many(0), many(0), many(0), many(0), many(0), many(1), paging.Part[string]{})
	require.Len(t, page, 1, "but not with nothing")
	require.False(t, more)

	_, _, err := paging.List(1, paging.Span{}, func(paging.Span, int32) (paging.Part[string], error) {
		return paging.Part[string]{}, errors.New("away")
	},
		never, show)
	require.EqualError(t, err, "away")
}

func TestPartsOfAList(t *testing.T) {
	t.Parallel()
	id := func(s string) string { return s }
	require.Equal(t, paging.Part[string]{Rows: []string{"b", "a"}, Next: "a"}, paging.Indexed([]string{"b", "a"}, 2, id))
	require.Equal(t, paging.Part[string]{Rows: []string{"a"}}, paging.Indexed([]string{"a"}, 2, id))
	short := func(s string) bool { return len(s) == 1 }
	require.Equal(t, paging.Part[string]{Rows: []string{"c"}, Next: "bb", Scanned: paging.ScanRows},
		paging.Scanned([]string{"c", "bb"}, paging.Span{}, id, short))
	require.Equal(t, paging.Part[string]{Rows: []string{"c"}, Next: "c", Scanned: paging.ScanRows},
		paging.Scanned([]string{"c"}, paging.Span{From: "a", Indexed: "b"}, id, short))
	require.Equal(t, paging.Part[string]{Scanned: paging.ScanRows}, paging.Scanned(nil, paging.Span{}, id, short), "no more")
	require.Equal(t, paging.Part[string]{Scanned: paging.ScanRows}, paging.Scanned(nil, paging.Span{From: "b", Indexed: "b"}, id, short))
	require.Equal(t, paging.Part[string]{Scanned: paging.ScanRows, Next: "b"},
		paging.Scanned(nil, paging.Span{From: "a", Indexed: "b"}, id, short), "what the index has follows")
}

// TestWhatNoIndexHas: of a status that the index has in part, what is younger is scanned; of the others all, or nothing.
func TestWhatNoIndexHas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want paging.Span
		scans    bool
	}{
		"all":            {paging.Span{"a", "z", ""}, paging.Span{"a", "z", ""}, true},
		"nothing":        {paging.Span{"a", "z", paging.Last}, paging.Span{paging.Last, "z", paging.Last}, false},
		"what is young":  {paging.Span{"a", "z", "m"}, paging.Span{"m", "z", "m"}, true},
		"all are young":  {paging.Span{"n", "z", "m"}, paging.Span{"n", "z", "m"}, true},
		"none is young":  {paging.Span{"a", "m", "m"}, paging.Span{"m", "m", "m"}, false},
		"all are old":    {paging.Span{"a", "c", "m"}, paging.Span{"m", "c", "m"}, false},
		"an empty range": {paging.Span{"z", "n", "m"}, paging.Span{"z", "n", "m"}, false},
	} {
		young, scans := c.in.Unindexed()
		require.Equal(t, c.want, young, name)
		require.Equal(t, c.scans, scans, name)
	}
}

func TestPageSaysWhetherThereAreMore(t *testing.T) {
	t.Parallel()
	show := func(n int) string { return fmt.Sprint(n) }
	list, more, err := paging.Page([]int{1, 2, 3}, 2, show)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, list)
	require.True(t, more)
	list, more, err = paging.Page([]int{1, 2}, 2, show)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, list)
	require.False(t, more)
}
