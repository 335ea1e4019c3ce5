package http

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Run serves on the listener until ctx ends. Then /readyz answers 503 and the requests
// in flight finish, for at most Options.Drain. Until they have, the listener stays
// open, so that requests are served that a load balancer still sends because it has
// not seen the 503 yet.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	var flights inFlight
	server := &http.Server{
		Handler: flights.of(s.handler), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(translating{l, s}) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Drain)
	defer cancel()
	server.SetKeepAlivesEnabled(false) // Each connection is closed after its next answer.
	select {
	case <-flights.landed():
	case <-ctx.Done():
	}
	if err := server.Shutdown(ctx); err != nil {
		// For these requests it is as if the process had been killed: their leases
		// run out and other processes finish the work. That is no failure, so it does
		// not change the exit status.
		s.o.Log.Warn("requests in flight were cut off; other processes finish their work once the leases run out", "after", s.o.Drain, "error", err.Error())
		_ = server.Close()
	}
	return nil
}

// inFlight counts the requests that began before the process was told to stop. Later
// ones are not waited for, or a steady stream would keep the process running.
type inFlight struct {
	mu   sync.Mutex
	n    int
	last chan struct{} // closed when the last has ended; nil while counting goes on
}

func (f *inFlight) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.began() {
			defer f.ended()
		}
		next.ServeHTTP(w, r)
	})
}

func (f *inFlight) began() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil {
		return false
	}
	f.n++
	return true
}

func (f *inFlight) ended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.last != nil {
		close(f.last)
	}
}

// landed stops counting and returns a channel that is closed once the counted requests
// have ended.
func (f *inFlight) landed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = make(chan struct{})
	if f.n == 0 {
		close(f.last)
	}
	return f.last
}
