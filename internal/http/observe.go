package http

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// visit is what the middlewares learn about one request. It is the request's context and
// the router's in one, because each value that is added to a context by itself is an
// allocation, and one that is added later copies the request.
type visit struct {
	context.Context //nolint:containedctx // it is one

	requestID string // generated here: a client may send the same id with each retry
	tenant    tenant // set by authenticated
	slot      slot
	bodyRead  bool // to its end
	probe     bool
	changed   bool // a probe has another result than the one before it
	gone      <-chan struct{}
	routes    chi.Context
}

type visitKey struct{}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// Value implements context.Context. chi finds its own context here, which it would
// otherwise add, and each statement the tenant whose rows it may see.
func (v *visit) Value(key any) any {
	switch key {
	case visitKey{}:
		return v
	case chi.RouteCtxKey:
		return &v.routes
	case postgres.ScopeKey{}:
		if v.tenant.id != "" {
			return v.tenant.id
		}
	}
	return v.Context.Value(key)
}

// visited returns a new visit on ctx.
//
// The context does not end with the connection. net/http cancels it as soon as the client
// closes its sending side, which a client may do when it has sent its request, and it
// would then get a 500. What a request may take is limited by bounded instead.
func visited(ctx context.Context) (context.Context, *visit) {
	v := &visit{Context: context.WithoutCancel(ctx), requestID: newRequestID(), gone: ctx.Done()}
	return v, v
}

// newRequestID is random, because ids must not collide between processes.
func newRequestID() string {
	id := uuid.New()
	return string(hex.AppendEncode(append(make([]byte, 0, 36), "req_"...), id[:]))
}

// observed gives every request its id, its log line, its span and its metrics. It turns a
// panic into a 500, because a bug must fail one request and not the process, which may
// be charging other customers.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, visit := visited(r.Context())
		var span tracing.Span
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" { // Probes would be most of the traces.
			ctx, span = s.o.Tracer.Begin(ctx, trace.SpanKindServer, r.Header.Get("Traceparent"), "request", "")
		}
		r = r.WithContext(ctx)
		w.Header().Set("Request-Id", visit.requestID)
		seen := &statusWriter{ResponseWriter: w, visit: visit, unread: s.unread, times: s.o.Clients}
		defer seen.linger(r) // after the metrics, which do not count it
		defer visit.slot.release()
		defer func() {
			if bug := recover(); bug != nil {
				// net/http uses this panic to close a connection; it is no bug.
				if bug == http.ErrAbortHandler { //nolint:errorlint // net/http compares it this way
					panic(bug)
				}
				s.o.Log.Error("bug: a request panicked",
					"request_id", visit.requestID, "panic", fmt.Sprint(bug), "stack", string(debug.Stack()))
				if seen.status == 0 {
					s.refuse(seen, r, errors.New("panic"))
				}
			}
			route, took := routeOf(r), time.Since(began)
			describe(span, r, route, visit.requestID, seen)
			span.End(nil)
			s.requests.WithLabelValues(method(r), route, strconv.Itoa(seen.status)).Inc()
			s.seconds.WithLabelValues(method(r), route).Observe(took.Seconds())
			if !s.o.Log.Enabled(ctx, slog.LevelInfo) || !s.logged(visit, route, seen.status) {
				return
			}
			line := []slog.Attr{
				slog.String("request_id", visit.requestID), slog.String("method", method(r)),
				slog.String("route", route), slog.Int("status", seen.status), slog.Duration("took", took),
				slog.Bool("replayed", w.Header().Get("Idempotent-Replayed") != ""), slog.String("key_hash", keyHash(r)),
			}
			if visit.tenant.id != "" {
				line = append(line, slog.String("tenant_id", visit.tenant.id))
			}
			if span.Recording() {
				line = append(line, slog.String("trace_id", span.TraceID()))
			}
			s.o.Log.LogAttrs(ctx, slog.LevelInfo, "request", line...)
		}()
		next.ServeHTTP(seen, r)
	})
}

// logged reports whether the request has a line in the log.
func (s *Server) logged(v *visit, route string, status int) bool {
	switch {
	case v.changed:
		return true
	case v.probe && status == http.StatusOK:
		return s.logs.allowProbe(status, route)
	}
	return s.logs.allow("request", status, v.tenant.id)
}

// describe gives a span the attributes of the log line, so that one is found by the other.
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

// routeOf is the matched pattern. It is used in metrics instead of the path, which would
// create a time series for each object.
func routeOf(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		return c.RoutePattern()
	}
	return "unmatched"
}

// method limits the label's values: clients may send any word as a method.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead,
		http.MethodOptions:
		return r.Method
	}
	return "other"
}

// keyHash is what logs and spans show instead of the key, which is half of a credential.
func keyHash(r *http.Request) string {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return ""
	}
	return idempotency.HashForLog(key)
}

// statusWriter records the status for the metrics and the log, which are written after the
// response.
type statusWriter struct {
	http.ResponseWriter
	visit     *visit
	unread    *unread
	times     ClientTimes
	status    int
	lingering bool
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	if w.visit.slot.class != classDocument { // What is left to do is in the hands of the client.
		w.visit.slot.release()
	}
	// The deadline starts here and not with the request, because the work may have taken
	// long. A recorder in a test has no deadline, hence no check of the error.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.times.Read))
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection, for its deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
