package http

import (
	"net/http"
	"net/url"

	"example.com/payonce/internal/payments"
)

// getKey shows the story of a key. In the path it stands percent-encoded, and
// bare: quotes belong to the header's syntax, not to the key.
func (s *Server) getKey(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if r.URL.RawPath != "" { // then what the router matched is not decoded yet
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			s.refuse(w, r, payments.ErrNotFound)
			return
		}
	}
	if checkKey(key) != nil {
		s.refuse(w, r, payments.ErrNotFound) // It never named anything.
		return
	}
	story, err := s.o.Payments.KeyStory(r.Context(), tenantOf(r).id, key, s.o.Retention)
	s.show(w, r, story, err)
}
