package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// traced is the whole service in this process, wired as serve wires it, whose
// traces are kept in memory.
type traced struct {
	*world.World
	world.Client
	spans *tracetest.InMemoryExporter
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	w := world.New(t)
	spans := tracetest.NewInMemoryExporter()
	c, err := readConfig(settings(map[string]string{
		"STRIPE_SECRET_KEY": stripesim.DefaultKey, "STRIPE_API_BASE": w.StripeURL,
		"STRIPE_WEBHOOK_SECRET": world.WebhookSecret,
		"STRIPE_TIMEOUT":        world.StripeTimeout.String(), "IDEMPOTENCY_LEASE": world.Lease.String(),
		"STRIPE_RPS":               "0",
		"NOTIFY_PRIVATE_ADDRESSES": "true",
	}))
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	pool, err := postgres.Open(t.Context(), w.URL, postgres.Options{Box: w.DB.Box()})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	events, err := broker.Open(t.Context(), "embedded:"+t.TempDir(), broker.Options{Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = events.Close() })
	metrics := prometheus.NewRegistry()
	s, err := wire(t.Context(), resources{config: c, pool: pool, events: events, metrics: metrics, log: log,
		tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))})
	require.NoError(t, err)
	t.Cleanup(s.close)
	server := httptest.NewServer(s.api.Handler())
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(context.Background())
	wait := start(ctx, log, newLoopMetrics(metrics), drain, s.loops...)
	t.Cleanup(func() {
		stop()
		wait()
	})
	_, err = w.Sim.AddWebhookEndpoint(stripesim.DefaultKey, server.URL+"/v1/webhooks/stripe", world.WebhookSecret)
	require.NoError(t, err)
	return &traced{World: w, Client: w.ClientAt(server.URL), spans: spans}
}

// span waits for the span of that name in that trace.
func (s *traced) span(trace, name string, which ...func(tracetest.SpanStub) bool) (found tracetest.SpanStub) {
	s.T.Helper()
	s.Until("there is a span "+name+" in "+trace, func() bool {
		for _, span := range s.spans.GetSpans() {
			if span.Name == name && (trace == "" || span.SpanContext.TraceID().String() == trace) &&
				(len(which) == 0 || which[0](span)) {
				found = span
				return true
			}
		}
		return false
	})
	return found
}

func attributeOf(span tracetest.SpanStub, name string) string {
	for _, a := range span.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

func has(name, value string) func(tracetest.SpanStub) bool {
	return func(s tracetest.SpanStub) bool { return attributeOf(s, name) == value }
}

// traceparent is a client's own, one for each trace.
func traceparent(trace string) string {
	return "Traceparent: 00-" + trace + "-b7ad6b7169203331-01"
}

const (
	traceA = "0af7651916cd43dd8448eb211c80319c"
	traceB = "1bf7651916cd43dd8448eb211c80319c"
)

// TestTraces: all that is done for a request is in one trace or linked to it, in whichever process or loop.
func TestTraces(t *testing.T) {
	t.Parallel()

	t.Run("APaymentIsOneTraceUpToItsConsumers", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		paid := s.Pay("the-key", s.Order(), "pm_card_visa", traceparent(traceA))
		require.Equal(t, http.StatusCreated, paid.Status, paid)

		request := s.span(traceA, "POST /v1/payments")
		require.Equal(t, "b7ad6b7169203331", request.Parent.SpanID().String(), "it continues the client's trace")
		require.Equal(t, "201", attributeOf(request, "http.response.status_code"))
		require.Equal(t, idempotency.HashForLog("the-key"), attributeOf(request, tracing.KeyHash))
		require.Equal(t, paid.Header.Get("Request-Id"), attributeOf(request, tracing.RequestID))
		for _, name := range []string{"phase payment_recorded", "stripe create_intent", "phase intent_recorded",
			"stripe confirm", "phase finished"} {
			span := s.span(traceA, name)
			require.Equal(t, request.SpanContext.SpanID(), span.Parent.SpanID(), name)
			if strings.HasPrefix(name, "phase ") {
				require.Equal(t, idempotency.HashForLog("the-key"), attributeOf(span, tracing.KeyHash), name)
				require.Equal(t, paid.ID(), attributeOf(span, tracing.Resource), name)
			} else {
				require.Equal(t, "done", attributeOf(span, "stripe.outcome"), name)
				require.NotEmpty(t, attributeOf(span, "stripe.request_id"), name)
			}
		}
		// A phase writes the events; other loops publish and consume them.
		for _, name := range []string{"payment.created", "payment.succeeded", "order.paid"} {
			require.Equal(t, request.SpanContext.SpanID(), s.span(traceA, "publish "+name).Parent.SpanID(), name)
			require.Equal(
				t, request.SpanContext.SpanID(),
				s.span(traceA, "consume "+name, has("messaging.consumer.group.name", notifierConsumer)).Parent.SpanID(),
				name,
			)
		}
		booked := s.span(traceA, "consume payment.succeeded", has("messaging.consumer.group.name", ledgerConsumer))
		require.Equal(t, "applied", attributeOf(booked, "payonce.result"))
		require.Equal(t, paid.ID()+"-2", attributeOf(booked, tracing.EventID))

		// A replay has its own trace with a single span.
		require.True(t, s.Pay("the-key", paid.Get("order_id").(string), "pm_card_visa", traceparent(traceB)).Replayed())
		require.Equal(t, "true", attributeOf(s.span(traceB, "POST /v1/payments"), "payonce.replayed"))
		for _, span := range s.spans.GetSpans() {
			require.False(
				t, span.SpanContext.TraceID().String() == traceB && span.Name != "POST /v1/payments", span.Name,
			)
		}
	})

	t.Run("TheCompleterIsLinkedToTheRequest", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		order := s.Order()
		s.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, s.Pay("the-key", order, "pm_card_visa", traceparent(traceA)).Status)
		request := s.span(traceA, "POST /v1/payments")
		lost := s.span(traceA, "stripe confirm")
		require.Equal(t, "unknown", attributeOf(lost, "stripe.outcome"))
		require.NotEmpty(t, lost.Status.Description)
		require.Equal(t, "claim given back", request.Events[0].Name)

		completed := s.span("", "complete create_payment")
		require.NotEqual(t, traceA, completed.SpanContext.TraceID().String(), "its own trace")
		require.Len(t, completed.Links, 1)
		require.Equal(t, request.SpanContext.SpanID(), completed.Links[0].SpanContext.SpanID())
		require.Equal(t, traceA, completed.Links[0].SpanContext.TraceID().String())
		require.Equal(t, idempotency.HashForLog("the-key"), attributeOf(completed, tracing.KeyHash))
		require.Equal(t, "2", attributeOf(completed, tracing.LeaseToken))
		trace := completed.SpanContext.TraceID().String()
		for _, name := range []string{"stripe get_intent", "phase finished", "publish payment.succeeded"} {
			require.Equal(t, completed.SpanContext.SpanID(), s.span(trace, name).Parent.SpanID(), name)
		}
		s.RequireChargedOnce(order)
	})

	t.Run("ARetryIsLinkedToTheRequest", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		spans := tracetest.NewInMemoryExporter()
		// without loops
		api := w.Local(world.LocalOptions{Tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))})
		s := &traced{World: w, Client: api.Client, spans: spans}
		order := s.Order()
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, s.Pay("the-key", order, "pm_card_visa", traceparent(traceA)).Status)
		w.ExpireLeases()
		require.Equal(t, http.StatusCreated, s.Pay("the-key", order, "pm_card_visa", traceparent(traceB)).Status)
		retry := s.span(traceB, "POST /v1/payments")
		require.Len(t, retry.Links, 1)
		require.Equal(t, s.span(traceA, "POST /v1/payments").SpanContext.SpanID(), retry.Links[0].SpanContext.SpanID())
		require.Empty(t, attributeOf(retry, "payonce.replayed"))
	})

	t.Run("AWebhookIsAppliedInTheTraceOfItsRequest", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		require.Equal(t, http.StatusCreated, s.Pay("the-key", s.Order(), "pm_card_visa").Status)
		applied := s.span("", "apply payment_intent.succeeded")
		require.Equal(t, "applied", attributeOf(applied, "payonce.result"))
		taken := s.span(applied.SpanContext.TraceID().String(), "POST /v1/webhooks/stripe")
		require.Equal(t, taken.SpanContext.SpanID(), applied.Parent.SpanID())
	})

	// Attempts go on for three days, so each has its own trace, linked to the change that
	// the delivery reports.
	t.Run("ADeliveryIsLinkedToTheChange", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		var asked atomic.Int32
		shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Webhook-Id"), "ord_") && asked.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		t.Cleanup(shop.Close)
		require.NoError(
			t,
			notifier.SetEndpoint(
				t.Context(),
				s.DB, s.Tenant.ID, shop.URL, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)),
			),
		)
		order := s.Post(
			"/v1/orders", "the-key", `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1000}]}`,
			traceparent(traceA),
		)
		require.Equal(t, http.StatusCreated, order.Status, order)
		request := s.span(traceA, "POST /v1/orders")
		for _, attempt := range []struct{ result, status string }{{"failed", "503"}, {"delivered", "200"}} {
			sent := s.span("", "deliver order.created", has("payonce.result", attempt.result))
			require.NotEqual(t, traceA, sent.SpanContext.TraceID().String(), "its own trace")
			require.Len(t, sent.Links, 1)
			require.Equal(t, request.SpanContext.SpanID(), sent.Links[0].SpanContext.SpanID())
			require.Equal(t, attempt.status, attributeOf(sent, "http.response.status_code"))
			require.Equal(t, order.ID()+"-1", attributeOf(sent, tracing.EventID))
			require.Equal(t, order.ID(), attributeOf(sent, tracing.Resource))
			s.Exec("UPDATE webhook_deliveries SET leased_until = '-infinity' WHERE status = 'pending'")
		}
	})

	// What the reconciler repairs, days later and in another process, can be found from
	// the trace of the order, and the events of the repair are in the trace of the repair.
	t.Run("WhatIsReconciledIsLinkedToTheOrder", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		order := s.Post(
			"/v1/orders", "the-key", `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":1000}]}`,
			traceparent(traceA),
		)
		require.Equal(t, http.StatusCreated, order.Status, order)
		s.Until(
			"every window of intents was read once, so that only the one that is made due finds the unmatched intent",
			func() bool {
				return s.Count(`SELECT count(covered_through) FROM reconciliation_windows
					WHERE name IN ('recent', 'days', 'month')`) == 3
			},
		)
		unmatched, err := stripeClient(s.World).PaymentIntents.New(&stripe.PaymentIntentParams{
			Amount: stripe.Int64(
				1000,
			), Currency: stripe.String("usd"), PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
			PaymentMethod: stripe.String("pm_card_visa"),
			Confirm:       stripe.Bool(true), Metadata: map[string]string{"tenant_id": s.Tenant.ID,
				"order_id": order.ID()},
		})
		require.NoError(t, err)
		s.Exec("UPDATE reconciliation_windows SET next_at = '-infinity' WHERE name = 'recent'")
		repaired := s.span("", "repair payment_intent", has("payonce.result", "adoptable"))
		require.Equal(t, unmatched.ID, attributeOf(repaired, "stripe.object_id"))
		require.Equal(t, order.ID(), attributeOf(repaired, tracing.Resource))
		require.Len(t, repaired.Links, 1)
		require.Equal(t, s.span(traceA, "POST /v1/orders").SpanContext.SpanID(), repaired.Links[0].SpanContext.SpanID())
		trace := repaired.SpanContext.TraceID().String()
		require.NotEqual(t, traceA, trace)
		round := s.span(trace, "reconcile recent")
		require.Equal(t, round.SpanContext.SpanID(), repaired.Parent.SpanID())
		require.Equal(t, round.SpanContext.SpanID(), s.span(trace, "stripe list_intents").Parent.SpanID())
		require.Equal(t, repaired.SpanContext.SpanID(), s.span(trace, "publish payment.succeeded").Parent.SpanID())
	})

	t.Run("ProbesAreNotTraced", func(t *testing.T) {
		t.Parallel()
		s := startTraced(t)
		require.Equal(t, http.StatusOK, s.Get("/readyz").Status)
		require.Equal(t, http.StatusOK, s.Get("/healthz").Status)
		s.Get("/v1/orders")
		s.span("", "GET /v1/orders")
		for _, span := range s.spans.GetSpans() {
			require.NotContains(t, span.Name, "z", "readyz or healthz")
		}
	})

	t.Run("AreSentToTheCollectorOfTheSettings", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		var all, none collector
		p := w.Process("OTEL_EXPORTER_OTLP_ENDPOINT="+all.start(t), "OTEL_SERVICE_NAME=shop")
		off := w.Process("OTEL_EXPORTER_OTLP_ENDPOINT="+none.start(t), "OTEL_SDK_DISABLED=true")
		require.Equal(t, http.StatusCreated, p.Pay("key", p.Order(), "pm_card_visa").Status)
		off.Order()
		for _, process := range []*world.Process{p, off} {
			process.Signal(syscall.SIGTERM)
			require.Zero(t, process.Wait(20*time.Second))
		}
		require.Equal(t, "/v1/traces", all.path)
		for _, want := range []string{"POST /v1/payments", "phase finished", "stripe confirm", "shop"} {
			require.Contains(t, all.received(), want)
		}
		require.Empty(t, none.received())
	})
}

// collector is an OpenTelemetry collector that only receives.
type collector struct {
	mu   sync.Mutex
	path string
	body strings.Builder
}

// start returns its base URL.
func (c *collector) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.path = r.URL.Path
		c.body.Write(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// received is all that was sent to it. Protobuf does not encode texts.
func (c *collector) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.String()
}
