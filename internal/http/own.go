package http

import (
	"net/http"

	"example.com/payonce/internal/operations"
)

// ownPart has the routes of the operations of one's own (Options.Own): a POST that
// begins one, and a GET that shows what it made. They are documented in openapi.yaml like
// all others.
func ownPart() part {
	return part{routes: func(s *Server) (all []route) {
		for _, o := range s.o.Own {
			all = append(all, s.ownRoutes(o)...)
		}
		return all
	}}
}

func (s *Server) ownRoutes(o operations.Operation) []route {
	parse := func(r *http.Request, body []byte) (any, error) {
		return o.Parse(r, func(into any) error { return decodeObject(body, into) })
	}
	show := func(w http.ResponseWriter, r *http.Request) {
		object, err := o.Show(r.Context(), s.o.Pool.Queries, tenantOf(r).id, r.PathValue("id"))
		s.show(w, r, object, err)
	}
	return []route{
		{method: "POST", pattern: o.Post, operation: o.Name, parse: parse},
		{method: "GET", pattern: o.Path + "{id}", handle: show},
	}
}
