package stripesim

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var searchParams = params{
	"query":  stringParam(5000).needed(),
	"limit":  integerParam,
	"page":   stringParam(5000),
	"expand": expandParam,
}

// searchResult is the page of a search. Its cursor is opaque.
type searchResult struct {
	Object   string `json:"object"`
	Data     []any  `json:"data"`
	HasMore  bool   `json:"has_more"`
	NextPage text   `json:"next_page"`
	URL      string `json:"url"`
}

// SetSearchLag sets how far search lags behind writes. A negative lag is "never":
// nothing written from now on is found.
func (s *Sim) SetSearchLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searchLag = lag
}

// SetListLag sets how long lists do not show what is new. Objects are found by
// id at once all the same.
func (s *Sim) SetListLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listLag = lag
}

// clause is one condition of a search query.
type clause struct {
	field, key, op, value string
	negated               bool
}

var clausePattern = regexp.MustCompile(
	`^\s*(-?)(amount|created|currency|customer|status|metadata)(?:\[["']([^"']*)["']\])?(:|~|>=|<=|>|<|=)` +
		`(?:"([^"]*)"|'([^']*)'|([^\s"']+))\s*`,
)

// searchIntents finds intents by the query language, as they were a while ago.
func (t *tx) searchIntents(c *call) (any, *apiError) {
	clauses, or, err := parseQuery(c.params.str("query"))
	if err != nil {
		return nil, err
	}
	limit := defaultLimit
	if c.params.has("limit") {
		limit = int(min(max(c.params.integer("limit"), 1), maxLimit))
	}
	st := t.s.st
	ids := st.intents.order[t.account]
	end := len(ids)
	if cursor := c.params.str("page"); cursor != "" {
		raw, bad := base64.RawURLEncoding.DecodeString(cursor)
		last, ok := st.intents.get(t.account, string(raw))
		if bad != nil || !ok {
			return nil, invalid("", "page", "Invalid page: %s", cursor)
		}
		end, _ = placeOf(st.intents, ids, last.ID)
	}
	out := &searchResult{Object: "search_result", Data: []any{}, URL: c.path}
	var last string
	for i := end - 1; i >= 0; i-- {
		pi := t.indexed(st.intents.byID[ids[i]])
		if pi == nil || !matchesQuery(pi, clauses, or) {
			continue
		}
		if len(out.Data) == limit {
			next := base64.RawURLEncoding.EncodeToString([]byte(last))
			out.HasMore, out.NextPage = true, &next
			break
		}
		out.Data, last = append(out.Data, pi), pi.ID
	}
	return out, nil
}

// indexed is the version of an intent the search index knows: the newest that is
// old enough. It is nil if there is none.
func (t *tx) indexed(pi *intent) *intent {
	lag := t.s.searchLag
	if lag < 0 {
		lag = 1 << 62 // never
	}
	for pi.Written.After(t.now.Add(-lag)) {
		older, ok := pi.prev.(*intent)
		if !ok {
			return nil
		}
		pi = older
	}
	return pi
}

// parseQuery reads field:value clauses joined by AND, or all by OR.
func parseQuery(query string) (clauses []clause, or bool, err *apiError) {
	rest := query
	for {
		m := clausePattern.FindStringSubmatch(rest)
		if m == nil || (m[2] == "metadata") != (m[3] != "") {
			return nil, false, invalid(
				"", "query",
				"We were unable to parse your search query. Try using the format `metadata[\"key\"]:\"value\"` to "+
					"query for metadata or key:\"value\" to query for other fields.",
			)
		}
		clauses = append(
			clauses, clause{negated: m[1] == "-", field: m[2], key: m[3], op: m[4], value: m[5] + m[6] + m[7]},
		)
		rest = rest[len(m[0]):]
		if rest == "" {
			return clauses, or, nil
		}
		word, tail, _ := strings.Cut(rest, " ")
		switch strings.ToUpper(word) {
		case "AND":
			rest = tail
		case "OR":
			or, rest = true, tail
		}
	}
}

// matchesQuery ends at the first clause that decides: a true one under OR, a
// false one under AND.
func matchesQuery(pi *intent, clauses []clause, or bool) bool {
	for _, cl := range clauses {
		if ok := cl.matches(pi) != cl.negated; ok == or {
			return or
		}
	}
	return !or
}

func (cl clause) matches(pi *intent) bool {
	switch cl.field {
	case "amount":
		return cl.compare(pi.Amount)
	case "created":
		return cl.compare(pi.Created)
	}
	var have string
	switch cl.field {
	case "currency":
		have = pi.Currency
	case "status":
		have = pi.Status
	case "metadata":
		have = pi.Metadata[cl.key]
	}
	if cl.op == "~" {
		return strings.Contains(strings.ToLower(have), strings.ToLower(cl.value))
	}
	return have != "" && strings.EqualFold(have, cl.value)
}

func (cl clause) compare(have int64) bool {
	want, err := strconv.ParseInt(cl.value, 10, 64)
	if err != nil {
		return false
	}
	switch cl.op {
	case ">":
		return have > want
	case ">=":
		return have >= want
	case "<":
		return have < want
	case "<=":
		return have <= want
	}
	return have == want
}
