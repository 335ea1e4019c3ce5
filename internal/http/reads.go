package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/payments"
)

// The responses to GET that all resources share.

const (
	limitDefault = 20
	limitMax     = 100

	// pageBytesMax is where a page ends early. The largest order has 110 KB, and a client may ask for a hundred over each
	// of its connections.
	pageBytesMax = 1 << 20
)

// show responds with one object, or with the problem for err.
func (s *Server) show(w http.ResponseWriter, r *http.Request, object any, err error) {
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: mustJSON(object)})
}

type listBody[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
}

// showList is a function and not a method, because methods have no type parameters.
func showList[T any](s *Server, w http.ResponseWriter, r *http.Request, list []T, more bool, err error) {
	if errors.Is(err, payments.ErrNotFound) {
		err = badCursor("starting_after")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if list == nil { // In JSON that would be null, and the contract promises an array.
		list = []T{}
	}
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: pageOf(list, more)})
}

// pageOf is the JSON of a listBody with as many objects as have room, and at least one. What comes after them is more, and
// follows the last of them as in any other page.
func pageOf[T any](list []T, more bool) []byte {
	var page bytes.Buffer
	page.WriteString(`{"object":"list","data":[`)
	objects := json.NewEncoder(&page)
	for i, object := range list {
		end := page.Len()
		if i > 0 {
			page.WriteByte(',')
		}
		if err := objects.Encode(object); err != nil {
			panic("bug: a response cannot be encoded as JSON: " + err.Error())
		}
		page.Truncate(page.Len() - 1) // the newline that Encode adds
		if i > 0 && page.Len() > pageBytesMax {
			page.Truncate(end)
			more = true
			break
		}
	}
	page.WriteString(`],"has_more":`)
	page.WriteString(strconv.FormatBool(more))
	page.WriteByte('}')
	return page.Bytes()
}

func badCursor(parameter string) error {
	return badQuery(parameter, "must be the id of an object in this list")
}

// badQuery has an empty pointer, because a query parameter has no place in the body.
func badQuery(parameter, message string) error {
	return &problem{
		code: codeInvalidRequest, detail: "The query is not valid.",
		errors: []fieldError{{Parameter: parameter, Message: message}},
	}
}

// listQuery reads the query of a list: its limit, and the parameters named.
func listQuery(r *http.Request, names ...string) (q url.Values, limit int, err error) {
	q, err = readQuery(r, append(names, "limit")...)
	if err != nil || !q.Has("limit") {
		return q, limitDefault, err
	}
	n, err := strconv.ParseUint(q.Get("limit"), 10, 8)
	if err != nil || n < 1 || n > limitMax {
		return nil, 0, badQuery("limit", "must be a number from 1 to 100")
	}
	return q, int(n), nil
}

// readQuery reads a query that may have the parameters named, each once. Anything else is refused: if a misspelt
// cursor or filter were ignored, a client would read the first page again and again, or objects that it did
// not ask for.
func readQuery(r *http.Request, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("", "must be a list of name=value, percent-encoded")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(names, name):
			if len(names) == 0 {
				return nil, badQuery(name, "is not a parameter of this resource, which has none")
			}
			return nil, badQuery(name, "is not a parameter of this resource, which has "+strings.Join(names, ", "))
		case len(q[name]) > 1:
			return nil, badQuery(name, "must be given once")
		case q.Get(name) == "": // A client that has nothing to send does not ask for everything.
			return nil, badQuery(name, "must not be empty")
		case !utf8.ValidString(q.Get(name)) || strings.ContainsRune(q.Get(name), 0): // The database takes neither.
			return nil, badQuery(name, "must be UTF-8 without U+0000")
		}
	}
	return q, nil
}

// interval reads the filters by time, of which the second is exclusive. A zero time is no limit.
func interval(q url.Values) (after, before time.Time, err error) {
	for name, t := range map[string]*time.Time{"created_after": &after, "created_before": &before} {
		if !q.Has(name) {
			continue
		}
		text := strings.ToUpper(q.Get(name)) // RFC 3339 allows t and z.
		if *t, err = time.Parse(time.RFC3339, text); err != nil || !rfc3339.MatchString(text) {
			return after, before, badQuery(name, "must be a time like 2026-01-31T12:00:00Z (RFC 3339), percent-encoded")
		}
	}
	if q.Has("created_before") && before.IsZero() {
		before = before.Add(time.Nanosecond) // Nothing is older than that either.
	}
	return after, before, nil
}

// rfc3339 refuses what time.Parse accepts and RFC 3339 does not have: a comma before the fraction, an hour of one digit,
// an offset of 24 hours or 60 minutes (https://go.dev/issue/54580).
var rfc3339 = regexp.MustCompile(`^.{10}T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// knownStatus refuses a status that the objects of a list cannot have, because their list would always be empty.
func knownStatus[S ~string](status string, all []S) error {
	if status == "" || slices.Contains(all, S(status)) {
		return nil
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return badQuery("status", "must be one of "+strings.Join(names, ", "))
}

// idFilter refuses a filter by an id that no object can have.
func idFilter(q url.Values, name, kind string) error {
	if q.Has(name) && !ids.Is(kind, q.Get(name)) {
		return badQuery(name, "must be an id: "+kind+" and 26 letters and digits")
	}
	return nil
}

// withoutQuery is for the resources that have no parameters. The others read theirs with readQuery.
func (s *Server) withoutQuery(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := readQuery(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		next(w, r)
	}
}
