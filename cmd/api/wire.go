package main

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/payonce/internal/admin"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/disputes" // part: disputes
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/keyhistory" // part: history
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/subscriber" // part: consumers
	"example.com/payonce/internal/tracing"
)

// How often each loop polls when it found nothing to do. The relay, the inbox and the completers are woken before, by
// work of this process and by due.
const (
	// Each runs a few claims at a time; one that waits for Stripe delays only its own.
	completers    = 8
	completeEvery = time.Minute
	relayLease    = 10 * time.Second // How long a crashed process's events wait, unless a claim waits for less.
	reapEvery     = time.Minute
	markEvery     = time.Minute // How much more lists of what is open or processing may have to look at.
	resealEvery   = time.Minute
	noteUsesEvery = time.Minute // It is woken when there is something to note.

	reconcileEvery = 10 * time.Second // How late a window may be noticed that is due; windows have their own periods.
	measureEvery   = 20 * time.Second
)

// resources is what the process has opened before it wires the service.
type resources struct {
	config  config
	pool    *postgres.Pool
	events  broker.Broker
	metrics *prometheus.Registry
	log     *slog.Logger
	tracer  *tracing.Tracer // nil: off

	// fault is called at every recovery point and after every consumed event. Nil except in builds that crash on
	// purpose.
	fault func(operation, recoveryPoint string)
}

// service is everything wired and nothing running. A part adds to the fields of the second block.
type service struct {
	resources
	keys       *idempotency.Store
	gateway    payments.Gateway
	payments   *payments.Service
	disputes   *disputes.Service  // part: disputes
	history    *keyhistory.Reader // part: history
	relay      *outbox.Relay
	inbox      *inbox.Processor
	received   *inbox.Metrics
	subscribed *subscriber.Metrics // nil without a consumer // part: consumers
	api        *httpapi.Server

	paths      ids.Paths                        // where the API shows what keys made, by kind of id
	describe   map[string]keyhistory.Describe   // what keys made, by operation // part: history
	operations map[string]idempotency.Operation // what a request can start and the completer can finish, by name
	handlers   map[string]inbox.Handler         // what applies stored events, by consumer
	http       httpapi.Options                  // of the API
	adminToken *admin.Token                     // of the pages and profiles
	pages      map[string]http.Handler          // of the admin address, by pattern
	loops      []loop
	due        *due // wakes loops
	closers    []func()
}

// wire makes the service. Nothing starts here. The caller closes it, also after an error.
func wire(ctx context.Context, r resources) (*service, error) {
	s := &service{
		resources: r, received: inbox.NewMetrics(r.metrics), pages: map[string]http.Handler{},
		paths: payments.Paths(), adminToken: admin.NewToken(r.config.AdminToken),
	}
	s.due = newDue(s.pool, func() []string { return slices.Sorted(maps.Keys(s.handlers)) })
	s.wireKeys()
	s.wirePayments()
	for _, p := range s.config.parts {
		if err := p.wire(ctx, s); err != nil {
			return s, err
		}
	}
	// Only now: each of these needs what every part has registered.
	ownOperations.Register(operations.Tools{
		Pool: s.pool, Keys: s.keys, Gateway: s.gateway, Calls: calls.NewRecorder(s.pool), Answers: httpapi.Answers{},
	}, operations.Shares{
		Operations: s.operations, Paths: s.paths,
		History: s.describe, // part: history
	})
	s.wireCompleter()
	s.wireInbox()
	s.wireResealer()
	s.wireAPI()
	s.wireDue()
	return s, nil
}

// wireKeys makes the outbox's relay and the table of keys.
func (s *service) wireKeys() {
	s.relay = outbox.NewRelay(s.pool, s.events, outbox.RelayOptions{
		Lease:   min(relayLease, s.config.IdempotencyLease),
		Metrics: outbox.NewMetrics(s.metrics), Log: s.log, Tracer: s.tracer, Render: payments.RenderEvents,
	})
	s.loops = append(s.loops, loop{name: "relay", every: wokenEvery, wake: s.relay.Woken(), runOnce: s.relay.RunOnce})
	s.due.wake("relay", s.relay.Wake)
	s.keys = idempotency.NewStore(s.pool, idempotency.Options{
		Lease: s.config.IdempotencyLease, Metrics: idempotency.NewMetrics(s.metrics), Log: s.log, Tracer: s.tracer,
		Boundary: func(operation, recoveryPoint string) {
			s.relay.Wake() // Most phases append an event.
			if s.fault != nil {
				s.fault(operation, recoveryPoint)
			}
		},
	})
	retention := s.config.IdempotencyRetention
	expire := idempotency.NewReaper(s.keys, retention, 0).RunOnce
	if !s.config.IdempotencyReaper { // The same loop, so that the same alert says when nothing is dropped.
		expire = idempotency.NewRetentionWatch(s.keys, retention).RunOnce
	}
	s.reap("key reaper", min(reapEvery, max(retention/20, time.Second)), expire)
	s.reap("outbox reaper", reapEvery, outbox.NewReaper(s.pool, 0).RunOnce)
}

// wirePayments makes orders, payments and refunds, with what keeps them equal to Stripe, and begins the table of
// operations: the API and the completer get the same table, so that the completer can finish whatever the API can
// start.
func (s *service) wirePayments() {
	c := s.config
	gateway := stripe.New(stripe.Options{
		SecretKey: c.StripeSecretKey, BaseURL: c.StripeAPIBase, Timeout: c.StripeTimeout,
		Limits: stripe.NewLimits(c.StripeRPS, s.metrics), Metrics: stripe.NewMetrics(s.metrics), Log: s.log,
	})
	s.gateway = gateway
	// part: disputes {
	s.disputes = disputes.New(s.pool, gateway, disputes.Options{
		Metrics: disputes.NewMetrics(s.metrics), Log: s.log,
	})
	// part: disputes }
	s.payments = payments.New(s.pool, s.keys, s.gateway, httpapi.Answers{}, payments.Options{
		StripeTimeout: c.StripeTimeout, ActionTimeout: c.ActionTimeout, Log: s.log,
		Registered: ownOperations.Registered(),
		Disputes:   s.disputes, // part: disputes
	})
	s.disputes.AdoptWith(s.payments.Repairs()) // part: disputes
	// The table of operations. A part adds its own with maps.Copy; a name must never change, because keys have it.
	s.operations = s.payments.Operations()
	s.handlers = map[string]inbox.Handler{payments.StripeEvents: s.payments.WebhookHandler()}

	reconciler := reconcile.New(s.pool, s.gateway, s.payments, reconcile.Options{
		Metrics: reconcile.NewMetrics(s.metrics), Log: s.log,
	}).Traced(s.tracer)
	s.loops = append(s.loops,
		loop{name: "reconciler", every: reconcileEvery, runOnce: reconciler.RunOnce},
		loop{name: "lists", every: markEvery, runOnce: s.payments.MarkLasting},
		loop{name: "gauges", every: measureEvery, runOnce: reconciler.Measure},
		loop{name: "vitals", every: measureEvery, runOnce: newVitals(s.pool, s.metrics).RunOnce},
	)
}

// wireCompleter makes the loops that finish abandoned work of any operation in the table.
func (s *service) wireCompleter() {
	completer := idempotency.NewCompleter(s.keys, s.operations, s.config.within())
	for range completers {
		woken := newWakeup()
		s.loops = append(s.loops, loop{name: "completer", every: completeEvery, wake: woken, runOnce: completer.RunOnce})
		s.due.wake("completer", woken.send)
	}
}

// wireInbox makes the loop that applies webhooks from Stripe, and messages that a consumer could not apply at once.
func (s *service) wireInbox() {
	s.inbox = inbox.NewProcessor(s.pool, s.handlers, inbox.ProcessorOptions{
		Lease: s.config.IdempotencyLease, Metrics: s.received, Log: s.log, Tracer: s.tracer,
	})
	s.loops = append(s.loops, loop{name: "inbox", every: wokenEvery, wake: s.inbox.Woken(), runOnce: s.inbox.RunOnce})
	s.due.wake("inbox", s.inbox.Wake)
	s.reap("inbox reaper", reapEvery, inbox.NewReaper(s.pool, 0).RunOnce)
}

// wireResealer makes the loop that encrypts with the first key of DATA_KEY what is not yet encrypted with it.
func (s *service) wireResealer() {
	if !s.pool.Box().Seals() {
		return
	}
	r := postgres.NewResealer(s.pool, s.log)
	s.loops = append(s.loops, loop{name: "re-encryption", every: resealEvery, runOnce: r.RunOnce})
	f := promauto.With(s.metrics)
	f.NewCounterFunc(prometheus.CounterOpts{Name: "payonce_reencrypted_total",
		Help: "Stored values that this process has encrypted with the first key of DATA_KEY, and that were plain or encrypted with another."},
		r.Resealed)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "payonce_reencryption_unreadable",
		Help: "Stored values that this process could not decrypt, and so not encrypt anew."}, r.Unreadable)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "payonce_reencryption_settled_seconds",
		Help: "Seconds since this process has last found a value that was not encrypted with the first key of DATA_KEY; 0 until it has looked at all."},
		r.Settled)
}

// wireAPI comes last: the routes refuse an operation that is not in the table.
func (s *service) wireAPI() {
	c, o := s.config, s.http
	o.Pool, o.Keys, o.Operations, o.Payments = s.pool, s.keys, s.operations, s.payments
	o.Paths, o.Own, o.Cell = s.paths, ownOperations, c.Cell
	o.Within, o.DrainDelay, o.Drain, o.RateLimit = c.within(), c.DrainDelay, drain, c.RateLimitRPS
	o.Metrics, o.Log, o.Tracer = s.metrics, s.log, s.tracer
	o.WebhookSecrets, o.WebhookReceived = c.StripeWebhookSecrets, s.inbox.Wake
	s.api = httpapi.NewServer(o)
	s.loops = append(s.loops, loop{
		name: "api key uses", every: noteUsesEvery, wake: s.api.KeyUses(), runOnce: s.api.NoteKeyUses,
	})
}

// wireDue makes the loop that wakes others. All others wake it, once they have worked: a webhook that was applied may
// have made a key due, and a message a delivery.
func (s *service) wireDue() {
	for i := range s.loops {
		s.loops[i].worked = s.due.woken.send
	}
	s.loops = append(s.loops, loop{
		name: "due", every: dueEvery, wake: s.due.woken, rest: dueRest, runOnce: s.due.RunOnce,
	})
}

// reap adds a loop that deletes rows after their retention.
func (s *service) reap(name string, every time.Duration, runOnce func(context.Context) (int, error)) {
	s.loops = append(s.loops, loop{name: name, every: every, runOnce: runOnce})
}

// close releases what the parts have opened.
func (s *service) close() {
	for _, closer := range s.closers {
		closer()
	}
}
