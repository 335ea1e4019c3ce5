package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// readinessTimeout is short, because a load balancer that gets no response in time usually
// counts that as a failure, too, but does not log why.
const readinessTimeout = time.Second

// readinessQuestion is how long the database may take to answer, for the probes to come: a question that ended with its
// probe would close the connection, and the next one would have to connect first, which takes several round trips.
const readinessQuestion = 3 * time.Second

func healthPart() part {
	return part{routes: func(s *Server) []route {
		return []route{
			{method: "GET", pattern: "/healthz", handle: s.probed(s.healthz), open: true},
			{method: "GET", pattern: "/readyz", handle: s.probed(s.readyz), open: true},
		}
	}}
}

// probeDelay is how much longer a probe may take in a flood of them: less than a load balancer waits.
const probeDelay = readinessTimeout / 2

// probed slows a flood of probes down. None is ever refused or lost for it, because those of the load balancer may come
// from the same address.
func (s *Server) probed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeDelay)
		defer cancel()
		visitOf(r).probe = true
		_ = s.admit(ctx, r, classProbe)
		next(w, r)
	}
}

// healthz does not depend on the database: an orchestrator restarts the process when it
// fails, and a restart does not repair a database.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	write(w, idempotency.Answer{
		Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ok"}`),
	})
}

// readyz tells a load balancer whether to send requests to this process: not while the
// database is unavailable or refuses the role of the process, and not while the process shuts down.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() { // at once, whatever the database does
		s.answersReady(r, false)
		s.refuse(w, r, unavailable(reasonDraining, time.Second, "This process is shutting down."))
		return
	}
	err := s.ready.ask()
	s.answersReady(r, err == nil)
	switch {
	case err != nil:
		detail := "The database is unavailable."
		switch {
		case postgres.DiskFull(err):
			detail = "The disk of the database is full."
		case errors.Is(err, postgres.ErrReadOnly):
			detail = "The database is read-only: a standby, or about to be replaced by one."
		case errors.Is(err, postgres.ErrNoRights):
			detail = "The database refuses the role of this process."
		}
		s.refuse(w, r, fmt.Errorf("%w %w", unavailable(reasonDatabase, time.Second, detail), err))
	default:
		write(w, idempotency.Answer{
			Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ready"}`),
		})
	}
}

// answersReady has a probe logged whose result differs from that of the probe before it, whatever else is left out.
func (s *Server) answersReady(r *http.Request, ready bool) {
	now := int32(1)
	if ready {
		now = 2
	}
	visitOf(r).changed = s.readyBefore.Swap(now) != now
}

// readiness asks the database one question for all probes that come while it is answered: however many ask, it is as if
// one did.
type readiness struct {
	ping func(context.Context) error

	mu    sync.Mutex
	asked *readinessAnswer // nil: no question is under way
}

type readinessAnswer struct {
	known chan struct{} // closed when err is set
	err   error
}

// ask returns within readinessTimeout. The question goes on, because its answer is for others, too.
func (r *readiness) ask() error {
	r.mu.Lock()
	a := r.asked
	if a == nil {
		a = &readinessAnswer{known: make(chan struct{})}
		r.asked = a
		go r.put(a)
	}
	r.mu.Unlock()
	select {
	case <-a.known:
		return a.err
	case <-time.After(readinessTimeout):
		return errNoAnswer
	}
}

// put sends the query, and gives its result to all probes that wait for it.
func (r *readiness) put(a *readinessAnswer) {
	ctx, cancel := context.WithTimeout(context.Background(), readinessQuestion)
	defer cancel()
	err := r.ping(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	a.err, r.asked = err, nil
	close(a.known)
}

var errNoAnswer = errors.New("the database has not answered in time")
