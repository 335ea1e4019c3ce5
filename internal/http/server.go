package http

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/disputes" // part: disputes
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/notifier"   // part: webhooks
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// A client must not be able to hold a connection for ever by sending or reading slowly.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second // Plenty for a body of 64 KiB.
	writeTimeout      = time.Minute      // of what precedes the response, such as 100 Continue
	idleTimeout       = 2 * time.Minute
)

// ClientTimes are how long the server waits for what only a client can do. Zero is the default.
type ClientTimes struct {
	Read     time.Duration // for it to read its response; default 15 s: one that does not would delay a deployment
	Linger   time.Duration // for the rest of a body that was refused; default 5 s
	Unsigned time.Duration // for the whole body of a webhook whose signature is not checked yet; default 5 s
}

func (c ClientTimes) orDefault() ClientTimes {
	return ClientTimes{
		Read:     cmp.Or(c.Read, 15*time.Second),
		Linger:   cmp.Or(c.Linger, 5*time.Second), // less than a client could take for sending its body slowly
		Unsigned: cmp.Or(c.Unsigned, 5*time.Second),
	}
}

// headersMax is for the request line and all headers. They are read before it is known who sends them, so no limit but
// this one holds for their bytes. net/http adds 4 KiB to it for what it has read ahead, so it reads up to 20 KiB.
const headersMax = 16 << 10

// Options of NewServer. All are required but Clients, Metrics, Log and Tracer.
type Options struct {
	Pool       *postgres.Pool
	Keys       *idempotency.Store
	Operations map[string]idempotency.Operation
	Payments   *payments.Service
	Checkouts  *checkout.Service   // part: checkouts
	Disputes   *disputes.Service   // part: disputes
	Endpoints  *notifier.Endpoints // part: webhooks
	History    *keyhistory.Reader  // part: history
	Paths      ids.Paths           // of the objects that keys made
	Own        operations.List     // operations of one's own; may be empty
	Feed       *outbox.Feed        // part: events
	Cell       string              // of this process: keys that name another are refused; empty: none
	Within     time.Duration       // the time one request may take; shorter than the lease
	DrainDelay time.Duration       // how long requests are still accepted at shutdown, so that load balancers see it
	Drain      time.Duration       // the time for requests in progress to finish after that
	Clients    ClientTimes         // what they may take
	RateLimit  float64             // new requests per second and tenant, and a hundred times as many reads; 0 is no limit
	Retention  time.Duration       // how long stored responses are replayed; printed on /docs/idempotency // part: docs
	Metrics    prometheus.Registerer
	Log        *slog.Logger
	Tracer     *tracing.Tracer // nil: off

	WebhookSecrets  []string // none: webhooks are refused
	WebhookReceived func()   // called after a webhook was stored, so that it is applied at once; may be nil
}

// Server is the public API. It has no state that a restart would lose: keys, leases and
// responses are in the database, so any process can serve any retry.
type Server struct {
	o         Options
	auth      *authenticator
	limits    tenantLimits // of new work
	reads     tenantLimits
	networks  *networks
	admission *admission
	logs      *logLines
	ready     *readiness
	waiters   *waiters[idempotency.Found]
	objects   *waiters[struct{}] // that are waited for
	webhooks  *inbox.Intake
	unsigned  *bodies
	received  *bodies
	unread    *unread
	requests  *prometheus.CounterVec
	refused   *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	handler   http.Handler
	draining  atomic.Bool

	readyBefore atomic.Int32 // what the last probe got; see answersReady

	badSignatures prometheus.Counter
	stripeEvents  *prometheus.CounterVec
}

// NewServer returns the API. It starts no goroutine and opens no listener.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WebhookReceived == nil {
		o.WebhookReceived = func() {}
	}
	o.Clients = o.Clients.orDefault()
	f, networks := promauto.With(o.Metrics), newNetworks()
	s := &Server{
		o:         o,
		auth:      newAuthenticator(o.Pool, o.Cell, networks, atLeastASecond(o.Within)),
		limits:    newTenantLimits(o.RateLimit, "Too many new requests per second. Retry with the same key."),
		reads:     newReadLimits(o.RateLimit),
		networks:  networks,
		admission: newAdmission(admissionLimits(o.Pool.Conns(), runtime.GOMAXPROCS(0))),
		logs:      newLogLines(o.Log),
		ready:     &readiness{ping: o.Pool.Ping},
		waiters:   newWaiters[idempotency.Found](tenantWaiters, keyPauseMax),
		objects:   newWaiters[struct{}](tenantObjectWaiters, objectPauseMax),
		webhooks:  inbox.NewIntake(o.Pool),
		unsigned:  newBodies(unsignedMax, errTooManyBodies),
		received:  newBodies(receivedMax, errTooManyOfTenant),
		unread:    newUnread(),
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_http_requests_total",
			Help: "HTTP requests by method, route and status."}, []string{"method", "route", "status"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_http_refused_total",
			Help: "Requests that got 429 or 503, by reason."}, []string{"reason"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{Name: "payonce_http_request_seconds",
			Help:    "Time from reading a request's first line to writing the last byte of its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}},
			[]string{"method", "route"}),
	}
	s.badSignatures = f.NewCounter(prometheus.CounterOpts{Name: "payonce_webhook_signature_failures_total",
		Help: "Webhooks rejected for an invalid signature: wrong secret, wrong clock, or a forged webhook."})
	s.stripeEvents = f.NewCounterVec(prometheus.CounterOpts{Name: "payonce_stripe_events_total",
		Help: "Events of Stripe by their kind, and whether they name an object: an event that names none changes nothing."},
		[]string{"kind", "object"})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "payonce_webhook_unsigned_bytes",
		Help: "Bytes of webhooks that are held until their signature is checked."},
		func() float64 { return float64(s.unsigned.held()) })
	for _, reason := range refusalReasons {
		s.refused.WithLabelValues(string(reason)) // zero from the start, so that the first one shows as an increase
	}
	s.handler = s.mux()
	return s
}

// KeyUses has an element when NoteKeyUses has something to do.
func (s *Server) KeyUses() <-chan struct{} { return s.auth.used }

// NoteKeyUses stores in which hour API keys were last used, once an hour for each key, and returns how many it has
// written. A loop calls it, so that no request waits for it.
func (s *Server) NoteKeyUses(ctx context.Context) (int, error) {
	return s.auth.noteUses(ctx, s.o.Pool.Queries)
}

// Handler is the API as a handler, for tests that bring their own listener.
func (s *Server) Handler() http.Handler { return s.handler }

// mux builds the router from the routes. Only here is it decided whether a route requires
// an API key and an Idempotency-Key, so that a handler cannot omit the check.
func (s *Server) mux() http.Handler {
	r := chi.NewRouter()
	allowed := map[string][]string{}
	for _, route := range s.servedRoutes() {
		handle := route.handle
		if route.operation != "" {
			handle = s.keyed(route.operation, route.parse)
		}
		if route.method == http.MethodGet && !route.query {
			handle = s.withoutQuery(handle)
		}
		switch {
		case route.document:
			handle = s.document(handle)
		case !route.open:
			handle = s.authenticated(handle)
		}
		// A counter that appears with its first error shows no increase, so this one is there from the start.
		s.requests.WithLabelValues(route.method, route.pattern, strconv.Itoa(http.StatusInternalServerError))
		// The methods are also recorded in allowed, for a 405.
		r.Method(route.method, route.pattern, handle)
		if route.method == http.MethodGet {
			r.Method(http.MethodHead, route.pattern, handle) // net/http leaves the body out
			allowed[route.pattern] = append(allowed[route.pattern], http.MethodHead)
		}
		allowed[route.pattern] = append(allowed[route.pattern], route.method)
	}
	r.NotFound(s.document(s.unrouted))
	r.MethodNotAllowed(s.document(func(w http.ResponseWriter, r *http.Request) {
		var methods []string
		for pattern, list := range allowed {
			if matches(pattern, r.URL.EscapedPath()) { // like the router: an encoded slash is no separator
				methods = append(methods, list...)
			}
		}
		sort.Strings(methods)
		s.refuse(w, r, &problem{
			code: codeMethodNotAllowed, detail: "The resource does not support this method.",
			allow: strings.Join(methods, ", "),
		})
	}))
	return s.observed(r)
}

// unrouted is for a path without a route.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	// part: docs {
	if page, ok := withoutSlash(r); ok {
		w.Header().Set("Location", page)
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	// part: docs }
	s.notFound(w, r)
}

// notFound has the same problem as an object that does not exist, so that a client needs
// one branch for both.
func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, &problem{code: codeNotFound, detail: "There is no such resource."})
}

// matches reports whether the router would match a path with a pattern: {name} matches
// one segment, a star at the end any rest. The router does not tell which methods a path
// has, and a 405 must list them.
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

// authenticated runs before the body is read and the key is looked up, so that nothing can
// be learned about a tenant's objects without its API key.
func (s *Server) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := s.auth.authenticate(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		visitOf(r).tenant = t
		if t.readOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.refuse(w, r, errForbidden)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			ctx, cancel := s.bounded(r.Context(), 0)
			defer cancel()
			r = r.WithContext(ctx)
			err := s.admit(ctx, r, classRead)
			if err == nil {
				err = s.unread.room(t.id, unreadReads)
			}
			if err == nil {
				err = s.reads.take(t.id)
			}
			if err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		next(w, r)
	}
}

// document is for what anybody may read, and for paths that do not exist.
func (s *Server) document(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := s.bounded(r.Context(), 0)
		defer cancel()
		if err := s.admit(ctx, r, classDocument); err != nil {
			s.refuse(w, r, err)
			return
		}
		next(w, r)
	}
}

// bounded limits a request to the time promised for every response, plus more. A database
// that is down refuses connections, but one that hangs never responds, and the client
// must get its response in time all the same.
func (s *Server) bounded(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, atLeastASecond(s.o.Within)+more)
}

// atLeastASecond leaves time for one read of the database when the timeout for Stripe,
// from which Within is derived, is very short.
func atLeastASecond(d time.Duration) time.Duration { return max(d, time.Second) }
