// Package paging reads a page of a list that is newest first from statements that return a part of it each.
//
// Most orders end as paid and most payments as succeeded. An index that has these would cost every payment a new entry in
// each index of two tables, so the index has the others only (listed_status), and of what is open or processing that
// which lasts (MarkLasting). The rest of a list goes along the primary key, a part at a time, and ends its page early
// rather than read on.
package paging

import (
	"strings"
	"time"

	"example.com/payonce/internal/ids"
)

const (
	// ScanRows are the rows that one statement of a scan looks at.
	ScanRows = 1000     // in one statement, some milliseconds
	scanMax  = 5 * 1000 // After so many a page with two objects ends: one to show, one to know that there are more.
)

// Span is a range of ids: from From, to before Before. What has the status of the list is in the index if its id is less
// than Indexed.
type Span struct{ From, Before, Indexed string }

// Last is greater than every id.
var Last = strings.Repeat("~", 8)

// Between is the Span of the ids of a kind that come after a cursor in a list that is newest first, of what was created from
// one time until before another. Without a cursor or a time there is no such limit.
func Between(kind, after string, createdAfter, createdBefore time.Time) Span {
	s := Span{Before: Last, Indexed: Last}
	if !createdAfter.IsZero() {
		s.From = kind + ids.Floor(wholeMilliseconds(createdAfter))
	}
	if !createdBefore.IsZero() {
		s.Before = kind + ids.Floor(wholeMilliseconds(createdBefore))
	}
	if after != "" {
		s.Before = min(s.Before, after)
	}
	return s
}

// wholeMilliseconds rounds up: what was made at or after t was made at or after that, because no time has more digits.
func wholeMilliseconds(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); whole.Before(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}

// Unindexed is the part of the span that no index has, if there is one.
func (s Span) Unindexed() (Span, bool) {
	s.From = max(s.From, s.Indexed)
	return s, s.From < s.Before
}

// Part is what one statement returned.
type Part[R any] struct {
	Rows    []R
	Next    string // where the next statement continues; empty: there are no more
	Scanned int    // rows that were looked at
}

// List reads parts until the page is full: limit rows and one more, which shows that there are more.
func List[R, O any](
	limit int, s Span, read func(Span, int32) (Part[R], error), full func([]R) bool, show func(R) O,
) ([]O, bool, error) {
	var rows []R
	for scanned := 0; ; {
		p, err := read(s, int32(limit+1-len(rows))) //nolint:gosec // at most 101
		if err != nil {
			return nil, false, err
		}
		rows, s.Before = append(rows, p.Rows...), p.Next
		scanned += p.Scanned
		if p.Next == "" || len(rows) > limit {
			return Page(rows, limit, show)
		}
		if len(rows) > 1 && (scanned >= scanMax || full(rows)) {
			return Page(rows, len(rows)-1, show)
		}
	}
}

// Indexed is a part that an index has: rows of which there are no more if there are fewer than n.
func Indexed[R any](rows []R, n int32, id func(R) string) Part[R] {
	p := Part[R]{Rows: rows}
	if len(rows) == int(n) {
		p.Next = id(rows[len(rows)-1])
	}
	return p
}

// Scanned is a part of a scan: the rows that match, and perhaps the last that was looked at. After it comes what the
// index has.
func Scanned[R any](found []R, s Span, id func(R) string, matches func(R) bool) Part[R] {
	p := Part[R]{Scanned: ScanRows}
	if len(found) == 0 && s.From < s.Indexed {
		p.Next = s.Indexed
	}
	for _, row := range found {
		if matches(row) {
			p.Rows = append(p.Rows, row)
		}
		p.Next = id(row)
	}
	return p
}

// Page drops the extra row that was read to find out whether there are more.
func Page[R, O any](rows []R, limit int, show func(R) O) ([]O, bool, error) {
	more := len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	list := make([]O, len(rows))
	for i, row := range rows {
		list[i] = show(row)
	}
	return list, more, nil
}
