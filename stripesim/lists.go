package stripesim

import (
	"cmp"
	"slices"
)

const (
	defaultLimit = 10
	maxLimit     = 100
)

// page cuts one page out of a table: newest first, a cursor on either side. ids
// are in the order of creation.
func page[T object](t *tx, c *call, tab table[T], ids []string, keep func(T) bool) (*list, *apiError) {
	p := &c.params
	after, before := p.str("starting_after"), p.str("ending_before")
	if after != "" && before != "" {
		return nil, invalid(
			"", "", "Received both starting_after and ending_before parameters. Please pass in only one.",
		)
	}
	for name, cursor := range map[string]string{"starting_after": after, "ending_before": before} {
		if cursor == "" {
			continue
		}
		if _, ok := tab.get(t.account, cursor); !ok {
			return nil, missing(400, kindName[T](), cursor, name)
		}
	}
	limit := defaultLimit
	if p.has("limit") {
		limit = int(min(max(p.integer("limit"), 1), maxLimit)) // Stripe clamps in silence
	}
	wanted := limit + 1
	var found []any
	take := func(id string) bool {
		o, ok := tab.byID[id]
		if ok && t.visible(o) && keep(o) {
			found = append(found, o)
		}
		return len(found) < wanted
	}
	if before != "" { // the ones just newer than the cursor, then turned round
		at, there := placeOf(tab, ids, before)
		if there {
			at++
		}
		for _, id := range ids[at:] {
			if !take(id) {
				break
			}
		}
	} else {
		end := len(ids)
		if after != "" {
			end, _ = placeOf(tab, ids, after)
		}
		for i := end - 1; i >= 0 && take(ids[i]); i-- {
		}
	}
	l := &list{Object: "list", Data: []any{}, HasMore: len(found) > limit, URL: c.path}
	l.Data = append(l.Data, found[:min(limit, len(found))]...)
	if before != "" {
		slices.Reverse(l.Data)
	}
	return l, nil
}

// placeOf finds where a cursor is, or would be, in the order of creation.
func placeOf[T object](tab table[T], ids []string, cursor string) (int, bool) {
	at := tab.byID[cursor].meta().Seq
	return slices.BinarySearchFunc(
		ids, at,
		func(id string, seq int64) int { return cmp.Compare(tab.byID[id].meta().Seq, seq) },
	)
}

func kindName[T object]() string {
	var none T
	return string(none.kind())
}

// visible hides what is too young for a list that lags.
func (t *tx) visible(o object) bool {
	if t.s.listLag == 0 {
		return true
	}
	m := o.meta()
	for m.prev != nil {
		m = m.prev.meta()
	}
	return !m.Written.After(t.now.Add(-t.s.listLag))
}

// inRange applies the created filter.
func (c *call) inRange(created int64) bool {
	n := c.params.field("created")
	switch {
	case n == nil:
		return true
	case n.leaf():
		return created == c.params.integer("created")
	}
	return (!n.has("gt") || created > n.integer("gt")) && (!n.has("gte") || created >= n.integer("gte")) &&
		(!n.has("lt") || created < n.integer("lt")) && (!n.has("lte") || created <= n.integer("lte"))
}
