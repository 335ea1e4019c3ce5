package http

import (
	"context"
	"net/http"
	"time"

	"example.com/payonce/internal/idempotency"
)

// readinessTimeout is short, because a load balancer that gets no response in time usually
// counts that as a failure, too, but does not log why.
const readinessTimeout = time.Second

func healthPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{method: "GET", pattern: "/healthz", handle: s.healthz, open: true},
			{method: "GET", pattern: "/readyz", handle: s.readyz, open: true},
		}
	}}
}

// healthz does not depend on the database: an orchestrator restarts the process when it
// fails, and a restart does not repair a database.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	write(w, idempotency.Answer{
		Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ok"}`),
	})
}

// readyz tells a load balancer whether to send requests to this process: not while the
// database is unavailable, and not while the process shuts down.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() { // at once, whatever the database does
		s.refuse(w, r, &problem{
			code: codeUnavailable, detail: "This process is shutting down.", retryAfter: time.Second,
		})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readinessTimeout)
	defer cancel()
	switch err := s.o.Pool.Ping(ctx); {
	case err != nil:
		s.refuse(w, r, &problem{
			code: codeUnavailable, detail: "The database is unavailable.", retryAfter: time.Second,
		})
	default:
		write(w, idempotency.Answer{
			Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ready"}`),
		})
	}
}
