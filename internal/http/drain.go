package http

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A deployment stops processes while they take payments. A request that is disconnected is
// completed by another process, but only after its lease has expired, and its client sees
// a network error. So the shutdown waits for requests in progress, within a limit.

// Run serves on the listener until ctx ends. Then /readyz returns 503, and for
// Options.DrainDelay nothing else changes: a load balancer that has not seen the 503 yet
// still sends requests, and those must be served. After that the requests in progress
// finish, for at most Options.Drain, and the listener stays open until they have.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	var flights inFlight
	server := &http.Server{
		Handler:           flights.of(s.handler),
		MaxHeaderBytes:    headersMax,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,

		DisableGeneralOptionsHandler: true, // OPTIONS * is a request like others, with a Request-Id and a line in the log.
		ErrorLog:                     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(translating{l, s}) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	defer s.logs.logAllLeftOut()
	s.draining.Store(true)
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(s.o.DrainDelay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Drain)
	defer cancel()
	server.SetKeepAlivesEnabled(false) // Clients reconnect for their next request, and reach another process.
	select {
	case <-flights.landed():
	case <-ctx.Done():
	}
	if err := server.Shutdown(ctx); err != nil {
		// For these requests it is as if the process had been killed: their leases expire
		// and other processes complete the work. The exit status stays 0, because an
		// orchestrator would report a failure that needs no action.
		s.o.Log.Warn("unfinished requests were disconnected; other processes complete them when their leases expire",
			"after", s.o.Drain, "error", err.Error())
		_ = server.Close()
	}
	return nil
}

// inFlight counts the requests that started before the shutdown. The shutdown does not
// wait for later ones, or a steady stream of them would keep the process running.
type inFlight struct {
	mu   sync.Mutex
	n    int
	last chan struct{} // nil before the shutdown; closed when the last counted request has ended
}

func (f *inFlight) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.began() {
			defer f.ended()
		}
		next.ServeHTTP(w, r)
	})
}

// began reports whether the request is counted. The counter is not a sync.WaitGroup,
// because Add must not be called while Wait is running.
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

// landed stops counting and returns a channel that is closed when the counted requests
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
