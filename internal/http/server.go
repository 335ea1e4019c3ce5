package http

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/tracing"
)

const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second // A body of 64 KiB takes no longer from anybody worth waiting for.
	answerTimeout     = 15 * time.Second // A client that has not read its answer by then keeps a connection, and a deployment, waiting.
	writeTimeout      = time.Minute      // of what comes before the answer, such as 100 Continue
	idleTimeout       = 2 * time.Minute
	readinessTimeout  = time.Second
)

// Options of NewServer. All are required but Metrics, Log and Tracer.
type Options struct {
	Pool       *db.Pool
	Keys       *idempotency.Store
	Operations map[string]idempotency.Operation
	Payments   *payments.Service
	Feed       *outbox.Feed
	Within     time.Duration // the time one request may take; shorter than the lease
	Drain      time.Duration // the time requests in flight get to finish, when the process is told to stop
	RateLimit  float64       // new work a second per tenant; 0 is no limit
	Retention  time.Duration // how long stored answers are replayed, for the page that promises it
	Metrics    prometheus.Registerer
	Log        *slog.Logger
	Tracer     *tracing.Tracer // nil: off

	WebhookSecrets  []string // none: webhooks are refused
	WebhookReceived func()   // a hint that there is a webhook to apply; may be nil
}

// Server is the public API.
type Server struct {
	o        Options
	auth     authenticator
	limits   tenantLimits
	webhooks *inbox.Intake
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	handler  http.Handler
	draining atomic.Bool

	badSignatures prometheus.Counter
}

// NewServer returns the API. It starts nothing.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WebhookReceived == nil {
		o.WebhookReceived = func() {}
	}
	f := promauto.With(o.Metrics)
	s := &Server{
		o:        o,
		auth:     authenticator{pool: o.Pool, within: atLeastASecond(o.Within), known: map[[32]byte]knownKey{}},
		limits:   newTenantLimits(o.RateLimit),
		webhooks: inbox.NewIntake(o.Pool.Queries),
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_http_requests_total",
			Help: "Requests by route and status."}, []string{"method", "route", "status"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_http_request_seconds",
			Help:    "Time from the request's first line to its answer's last byte.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, []string{"method", "route"}),
	}
	s.badSignatures = f.NewCounter(prometheus.CounterOpts{Name: "payonce_webhook_signature_failures_total",
		Help: "Webhooks refused for their signature: a wrong secret, a clock that is off, or somebody else."})
	s.handler = s.mux()
	return s
}

// Handler is the API as a handler, for tests that bring their own listener.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves on the listener until ctx ends. Then readiness goes off, and the
// requests that are in flight finish, for as long as Options.Drain says. Until
// they have, the door stays open: whoever asks /readyz is told 503, and a request
// that a load balancer still sends here, because it has not asked yet, is served.
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
	server.SetKeepAlivesEnabled(false) // Connections end with their next answer, so that no client stays.
	select {
	case <-flights.landed():
	case <-ctx.Done():
	}
	if err := server.Shutdown(ctx); err != nil {
		// What is cut off now is as if this process had been killed: the
		// leases run out and others finish the work. That is no failure of
		// stopping, and nobody who looks at exit statuses need be woken.
		s.o.Log.Warn("requests in flight were cut off; their leases run out and others finish the work", "after", s.o.Drain, "error", err.Error())
		_ = server.Close()
	}
	return nil
}

// inFlight counts the requests that began before the process was told to stop.
// Later ones are not waited for, or a steady stream would keep the door open.
type inFlight struct {
	mu   sync.Mutex
	n    int
	last chan struct{} // closed when the last has landed; nil: counting goes on
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

// landed stops counting, and is closed once those that were counted are done.
func (f *inFlight) landed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = make(chan struct{})
	if f.n == 0 {
		close(f.last)
	}
	return f.last
}

func (s *Server) mux() http.Handler {
	r := chi.NewRouter()
	allowed := map[string][]string{}
	for _, route := range s.routes() {
		handle := route.handle
		if route.operation != "" {
			handle = s.keyed(route.operation, route.parse)
		}
		if !route.open {
			handle = s.authenticated(handle)
		}
		r.Method(route.method, route.pattern, handle)
		if route.method == http.MethodGet {
			r.Method(http.MethodHead, route.pattern, handle) // net/http leaves the body out
			allowed[route.pattern] = append(allowed[route.pattern], http.MethodHead)
		}
		allowed[route.pattern] = append(allowed[route.pattern], route.method)
	}
	r.NotFound(s.notFound)
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		var methods []string
		for pattern, list := range allowed {
			if matches(pattern, r.URL.EscapedPath()) { // as the router: an encoded slash separates nothing
				methods = append(methods, list...)
			}
		}
		sort.Strings(methods)
		s.refuse(w, r, &problem{code: codeMethodNotAllowed, detail: "The resource does not know this method.", allow: strings.Join(methods, ", ")})
	})
	return s.observed(r)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, &problem{code: codeNotFound, detail: "There is no such resource."})
}

// matches reports whether a path is one of a pattern's: {name} stands for one
// segment, a star at the end for any rest.
func matches(pattern, path string) bool {
	p, q := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i := range p {
		if p[i] == "*" {
			return i < len(q)
		}
		if i >= len(q) || p[i] != q[i] && !strings.HasPrefix(p[i], "{") {
			return false
		}
	}
	return len(p) == len(q)
}

func (s *Server) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := s.auth.authenticate(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		visitOf(r).tenant = t
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			ctx, cancel := s.bounded(r.Context(), 0)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next(w, r)
	}
}

// bounded ends when the time is up that a request has, and what more it is given.
// A database that is away refuses; one that hangs says nothing for ever, and whoever
// asks it must be told that within the time that is promised for every answer.
func (s *Server) bounded(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, atLeastASecond(s.o.Within)+more)
}

// atLeastASecond is for one look into the database, however little Stripe is given.
func atLeastASecond(d time.Duration) time.Duration { return max(d, time.Second) }

// visit is what is found out about one request on its way to the handler. The
// context holds one from the beginning, because whatever is put into a context
// later costs a copy of the request.
type visit struct {
	requestID string // ours, never the client's: it names one delivery
	tenant    tenant // behind authenticated
	routes    chi.Context
}

type visitKey struct{}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// visited is ctx with a new visit.
func visited(ctx context.Context) (context.Context, *visit) {
	v := &visit{requestID: newRequestID()}
	return context.WithValue(context.WithValue(ctx, visitKey{}, v), chi.RouteCtxKey, &v.routes), v
}

func newRequestID() string {
	id := uuid.New()
	return "req_" + hex.EncodeToString(id[:])
}

// observed gives every request its id, its line in the log and its place in the
// metrics, and turns a panic into a failed request.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, visit := visited(r.Context())
		var span tracing.Span
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" { // A probe a second is no story.
			ctx, span = s.o.Tracer.Begin(ctx, trace.SpanKindServer, r.Header.Get("Traceparent"), "request", "")
		}
		r = r.WithContext(ctx)
		w.Header().Set("Request-Id", visit.requestID)
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			if bug := recover(); bug != nil {
				if bug == http.ErrAbortHandler { //nolint:errorlint // net/http compares it this way
					panic(bug)
				}
				s.o.Log.Error("bug: a request panicked", "request_id", visit.requestID, "panic", fmt.Sprint(bug), "stack", string(debug.Stack()))
				if seen.status == 0 {
					s.refuse(seen, r, errors.New("panic"))
				}
			}
			route, took := routeOf(r), time.Since(began)
			describe(span, r, route, visit.requestID, seen)
			span.End(nil)
			s.requests.WithLabelValues(method(r), route, strconv.Itoa(seen.status)).Inc()
			s.seconds.WithLabelValues(method(r), route).Observe(took.Seconds())
			if !s.o.Log.Enabled(ctx, slog.LevelInfo) {
				return
			}
			line := []slog.Attr{
				slog.String("request_id", visit.requestID), slog.String("method", method(r)),
				slog.String("route", route), slog.Int("status", seen.status), slog.Duration("took", took),
				slog.Bool("replayed", w.Header().Get("Idempotent-Replayed") != ""), slog.String("key_hash", keyHash(r)),
			}
			if span.Recording() {
				line = append(line, slog.String("trace_id", span.TraceID()))
			}
			s.o.Log.LogAttrs(ctx, slog.LevelInfo, "request", line...)
		}()
		next.ServeHTTP(seen, r)
	})
}

// describe says on a span what the log says in a line.
func describe(span tracing.Span, r *http.Request, route, requestID string, seen *statusWriter) {
	if !span.Recording() {
		return
	}
	span.Rename(method(r)+" ", route)
	span.Set("http.request.method", method(r))
	span.Set("http.route", route)
	span.SetInt("http.response.status_code", int64(seen.status))
	span.Set(tracing.RequestID, requestID)
	span.Set(tracing.KeyHash, keyHash(r))
	span.Set("payonce.replayed", seen.Header().Get("Idempotent-Replayed"))
	if seen.status >= http.StatusInternalServerError {
		span.Fail(strconv.Itoa(seen.status))
	}
}

// routeOf is the matched pattern: bounded, unlike the path.
func routeOf(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		return c.RoutePattern()
	}
	return "unmatched"
}

func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions:
		return r.Method
	}
	return "other"
}

func keyHash(r *http.Request) string {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return ""
	}
	return idempotency.HashForLog(key)
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	// The work may have taken as long as it liked. From here on it is the client's time.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout)) // a test's recorder has none
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ok"}`)})
}

// readyz says whether to send requests here: not while the database is away,
// and not while the process drains.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readinessTimeout)
	defer cancel()
	switch err := s.o.Pool.Ping(ctx); {
	case s.draining.Load():
		s.refuse(w, r, &problem{code: codeUnavailable, detail: "This process is shutting down.", retryAfter: time.Second})
	case err != nil:
		s.refuse(w, r, &problem{code: codeUnavailable, detail: "The database does not answer.", retryAfter: time.Second})
	default:
		write(w, idempotency.Answer{Status: http.StatusOK, ContentType: contentJSON, Body: []byte(`{"status":"ready"}`)})
	}
}
