package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/payonce/internal/idempotency"
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
			return nil, badQuery(name, "is not a parameter of this resource")
		case len(q[name]) > 1:
			return nil, badQuery(name, "must be given once")
		case !utf8.ValidString(q.Get(name)) || strings.ContainsRune(q.Get(name), 0): // The database takes neither.
			return nil, badQuery(name, "must be UTF-8 without U+0000")
		}
	}
	return q, nil
}

// withoutQuery is for the resources that have no parameters: all whose path ends in an id. Lists read theirs with
// listQuery.
func (s *Server) withoutQuery(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := readQuery(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		next(w, r)
	}
}
