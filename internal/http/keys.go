package http

import (
	"net/http"
	"net/url"

	"example.com/payonce/internal/payments"
)

// keysPart is for support: it shows whether a customer was charged, without access to the
// database. It reads and never resumes the work; a retry does that.
func keysPart() part {
	return part{
		routes: func(s *Server) []route {
			return []route{{method: "GET", pattern: "/v1/idempotency-keys/{key}", handle: s.getKey}}
		},
		served: func(s *Server) bool { return s.o.History != nil },
	}
}

// getKey shows the history of a key. In the path the key is percent-encoded and has no
// quotes, because those belong to the header's syntax.
func (s *Server) getKey(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if r.URL.RawPath != "" { // Otherwise the router has matched the decoded path, and decoding twice would be wrong.
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			s.refuse(w, r, payments.ErrNotFound)
			return
		}
	}
	if checkKey(key) != nil {
		s.refuse(w, r, payments.ErrNotFound) // No request can have used it, so it need not be looked up.
		return
	}
	history, err := s.o.History.Get(r.Context(), tenantOf(r).id, key)
	s.show(w, r, history, err)
}
