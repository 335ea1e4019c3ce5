package http

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

// The responses to GET that all resources share.

const (
	limitDefault = 20
	limitMax     = 100
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
	write(w, idempotency.Answer{
		Status: http.StatusOK, ContentType: contentJSON, Body: mustJSON(listBody[T]{"list", list, more}),
	})
}

func badCursor(parameter string) error {
	return badQuery(parameter + " must be the id of an object in this list.")
}

// badQuery has an empty pointer, because a query parameter has no place in the body.
func badQuery(message string) error {
	return &problem{code: codeInvalidRequest, detail: message, errors: []fieldError{{"", message}}}
}

// listQuery reads the query of a list: its limit, and the parameters named. A query that
// cannot be parsed, or has a parameter twice, is refused: if the cursor were ignored, a
// client that reads page after page would get the first page again and again.
func listQuery(r *http.Request, names ...string) (q url.Values, limit int, err error) {
	q, err = url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, 0, badQuery("The query is not a list of name=value, percent-encoded.")
	}
	for _, name := range append(names, "limit") {
		if len(q[name]) > 1 {
			return nil, 0, badQuery(name + " must be given once.")
		}
	}
	if !q.Has("limit") {
		return q, limitDefault, nil
	}
	n, err := strconv.ParseUint(q.Get("limit"), 10, 8)
	if err != nil || n < 1 || n > limitMax {
		return nil, 0, badQuery("limit must be a number from 1 to 100.")
	}
	return q, int(n), nil
}
