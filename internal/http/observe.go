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
	"example.com/payonce/internal/tracing"
)

// visit is what is learnt about one request on its way to the handler. It is put into
// the context once, at the beginning, because adding a value later would cost a copy of
// the request.
type visit struct {
	requestID string // ours, never the client's: it identifies one delivery
	tenant    tenant // set by authenticated
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

// observed gives every request its id, its log line and its metrics, and turns a panic
// into a 500.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, visit := visited(r.Context())
		var span tracing.Span
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" { // Probes are not worth a trace.
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

// describe sets the attributes of the log line on a span.
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
	// The work may have taken long. From here on the client is the one to be waited for.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout)) // a test's recorder has none
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
