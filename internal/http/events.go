package http

import (
	"errors"
	"net/http"

	"example.com/payonce/internal/outbox"
)

// eventsPart is for tenants that cannot receive webhooks or have missed some. The events
// and their ids are those of the broker and the webhooks, so that a tenant can switch
// without processing an event twice.
func eventsPart() part {
	return part{
		routes: func(s *Server) []route {
			return []route{{method: "GET", pattern: "/v1/events", handle: s.listEvents, query: true}}
		},
		served: func(s *Server) bool { return s.o.Feed != nil },
	}
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
