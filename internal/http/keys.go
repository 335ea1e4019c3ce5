package http

import (
	"net/http"
	"net/url"

	"example.com/payonce/internal/payments"
)

func keysPart() part {
	return part{routes: func(s *Server) []route {
		return []route{{method: "GET", pattern: "/v1/idempotency-keys/{key}", handle: s.getKey}}
	}}
}

// getKey shows the story of a key. In the path the key is percent-encoded, and without
// quotes, which belong to the header's syntax.
func (s *Server) getKey(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if r.URL.RawPath != "" { // then the router matched the encoded path
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			s.refuse(w, r, payments.ErrNotFound)
			return
		}
	}
	if checkKey(key) != nil {
		s.refuse(w, r, payments.ErrNotFound) // It cannot be a key.
		return
	}
	story, err := s.o.Payments.KeyStory(r.Context(), tenantOf(r).id, key, s.o.Retention)
	s.show(w, r, story, err)
}
