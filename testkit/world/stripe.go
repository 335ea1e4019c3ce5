package world

import (
	"net/http"
	"strings"
	"sync"
)

// Sent is one request that arrived at Stripe's port, whatever became of it.
type Sent struct{ Method, Path, Key string }

// recorder notes every request before the simulator sees it: what was sent, as
// opposed to what had an effect.
type recorder struct {
	next http.Handler
	mu   sync.Mutex
	sent []Sent
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.sent = append(r.sent, Sent{req.Method, req.URL.Path, req.Header.Get("Idempotency-Key")})
	r.mu.Unlock()
	r.next.ServeHTTP(w, req)
}

// Posts are the requests that could change something at Stripe and whose path
// ends in the given word ("payment_intents", "confirm", "cancel", "refunds").
func (w *World) Posts(ending string) (posts []Sent) {
	w.stripe.mu.Lock()
	defer w.stripe.mu.Unlock()
	for _, s := range w.stripe.sent {
		if s.Method == http.MethodPost && strings.HasSuffix(s.Path, "/"+ending) {
			posts = append(posts, s)
		}
	}
	return posts
}
