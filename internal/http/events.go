package http

import (
	"errors"
	"net/http"

	"example.com/payonce/internal/outbox"
)

func eventsPart() part {
	return part{routes: func(s *Server) []route {
		return []route{{method: "GET", pattern: "/v1/events", handle: s.listEvents}}
	}}
}

// listEvents is the tenant's event feed. It is oldest first, unlike the other lists,
// because a client follows it with a cursor.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) {
	q, limit, err := listQuery(r, "after")
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	events, more, err := s.o.Feed.List(r.Context(), tenantOf(r).id, q.Get("after"), limit)
	if errors.Is(err, outbox.ErrUnknownCursor) {
		err = badCursor("after")
	}
	showList(s, w, r, events, more, err)
}
