package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/payonce/internal/broker"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/ledger"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

// Names of the consumers, at the broker and in the inbox. They are for ever: a
// consumer of another name has seen nothing.
const (
	ledgerConsumer   = "ledger"
	notifierConsumer = "notifier"
)

// How often each loop looks when there was nothing to do. Most are woken before.
const (
	completers    = 8                      // Each takes a few claims at a time; one that waits for Stripe holds up only its own.
	completeEvery = 500 * time.Millisecond // How late an abandoned payment may be noticed.
	inboxEvery    = 500 * time.Millisecond // How late a webhook may be noticed that another process took in.
	relayLease    = 10 * time.Second       // How long the events of a process that died wait, if a claim would not wait for less.
	relayEvery    = 250 * time.Millisecond // How late an event may be noticed whose process died after its commit.
	notifyEvery   = time.Second
	consumeAgain  = 5 * time.Second // When a broker has refused to deliver.
	reserveEvery  = 10 * time.Second
	reapEvery     = time.Minute

	reconcileEvery = 5 * time.Second // How late a window may be noticed that is due; the windows have periods of their own.
	measureEvery   = 10 * time.Second
)

// parts is the service, wired and not yet running.
type parts struct {
	api       *httpapi.Server
	completer *idempotency.Completer
	money     *payments.Service
	inbox     *inbox.Processor
	relay     *outbox.Relay
	notifier  *notifier.Notifier
	broker    broker.Broker
	consumers []*inbox.Consumer
	applied   func(consumer, eventType string) // nil, but in builds that crash on purpose
	reapers   []reaper

	reconciler *payments.Reconciler
	vitals     *vitals
}

type reaper struct {
	name    string
	every   time.Duration
	runOnce func(context.Context) (int, error)
}

// wire makes the parts and gives each what it needs. Nothing starts here.
func wire(c config, pool *postgres.Pool, events broker.Broker, metrics *prometheus.Registry, log *slog.Logger, tracer *tracing.Tracer, fault func(operation, recoveryPoint string)) parts {
	p := parts{broker: events, applied: fault}
	p.relay = outbox.NewRelay(pool, events, outbox.RelayOptions{Lease: min(relayLease, c.IdempotencyLease), Metrics: outbox.NewMetrics(metrics), Log: log, Tracer: tracer})
	keys := idempotency.NewStore(pool, idempotency.Options{
		Lease: c.IdempotencyLease, Metrics: idempotency.NewMetrics(metrics), Log: log, Tracer: tracer,
		Boundary: func(operation, recoveryPoint string) {
			p.relay.Wake() // Whatever was committed most likely came with an event.
			if fault != nil {
				fault(operation, recoveryPoint)
			}
		},
	})
	gateway := payments.NewStripe(payments.StripeOptions{
		SecretKey: c.StripeSecretKey, BaseURL: c.StripeAPIBase, Timeout: c.StripeTimeout,
		Limits: payments.NewLimits(c.StripeRPS, metrics), Metrics: payments.NewStripeMetrics(metrics), Log: log,
	})
	p.money = payments.New(pool, keys, gateway, httpapi.Answers{}, payments.Options{StripeTimeout: c.StripeTimeout, ActionTimeout: c.ActionTimeout, Metrics: payments.NewMetrics(metrics), Log: log})
	operations := p.money.Operations() // One map for both: whatever the API can start, the completer can finish.
	p.completer = idempotency.NewCompleter(keys, operations, c.within())

	received := inbox.NewMetrics(metrics)
	book, notify := ledger.Handler(), notifier.Handler()
	p.consumers = []*inbox.Consumer{inbox.NewConsumer(pool, ledgerConsumer, book, received).Traced(tracer), inbox.NewConsumer(pool, notifierConsumer, notify, received).Traced(tracer)}
	p.inbox = inbox.NewProcessor(pool, map[string]inbox.Handler{
		payments.StripeEvents: p.money.WebhookHandler(), ledgerConsumer: book, notifierConsumer: notify,
	}, inbox.ProcessorOptions{Lease: c.IdempotencyLease, Metrics: received, Log: log, Tracer: tracer})
	p.notifier = notifier.New(pool, notifier.Options{AllowPrivate: c.NotifyPrivate, Metrics: notifier.NewMetrics(metrics), Log: log, Tracer: tracer})

	p.reapers = []reaper{
		{"key reaper", min(reapEvery, max(c.IdempotencyRetention/20, time.Second)), idempotency.NewReaper(keys, c.IdempotencyRetention, 0).RunOnce},
		{"outbox reaper", reapEvery, outbox.NewReaper(pool, 0).RunOnce},
		{"inbox reaper", reapEvery, inbox.NewReaper(pool, 0).RunOnce},
		{"delivery reaper", reapEvery, notifier.NewReaper(pool, 0).RunOnce},
	}
	p.reconciler = payments.NewReconciler(p.money, payments.NewReconcilerMetrics(metrics)).Traced(tracer)
	p.vitals = newVitals(pool, metrics)
	p.api = httpapi.NewServer(httpapi.Options{
		Pool: pool, Keys: keys, Operations: operations, Payments: p.money, Feed: outbox.NewFeed(pool), Within: c.within(), Drain: drain, RateLimit: c.RateLimitRPS,
		Retention: c.IdempotencyRetention, Metrics: metrics, Log: log, Tracer: tracer,
		WebhookSecrets: c.StripeWebhookSecrets, WebhookReceived: p.inbox.Wake,
	})
	return p
}

// loops is everything that runs beside the requests.
func (p parts) loops() []loop {
	list := []loop{
		{name: "inbox", every: inboxEvery, wake: p.inbox.Woken(), runOnce: p.inbox.RunOnce},
		{name: "relay", every: relayEvery, wake: p.relay.Woken(), runOnce: p.relay.RunOnce},
		{name: "notifier", every: notifyEvery, runOnce: p.notifier.RunOnce},
		{name: "reconciler", every: reconcileEvery, runOnce: p.reconciler.RunOnce},
		{name: "gauges", every: measureEvery, runOnce: p.reconciler.Measure},
		{name: "vitals", every: measureEvery, runOnce: p.vitals.RunOnce},
		{name: "reservations", every: reserveEvery, runOnce: p.money.ExpireReservations},
	}
	for range completers {
		list = append(list, loop{name: "completer", every: completeEvery, runOnce: p.completer.RunOnce})
	}
	for _, consumer := range p.consumers {
		list = append(list, loop{name: "consumer " + consumer.Name(), every: consumeAgain, subscribes: true, runOnce: func(ctx context.Context) (int, error) {
			return 0, p.broker.Consume(ctx, consumer.Name(), p.handle(consumer))
		}})
	}
	for _, r := range p.reapers {
		list = append(list, loop{name: r.name, every: r.every, runOnce: r.runOnce})
	}
	return list
}

// handle is a consumer as the broker calls it. Between its return and the
// acknowledgement a process can die: that moment is part of the seam, too.
func (p parts) handle(consumer *inbox.Consumer) broker.Handler {
	if p.applied == nil {
		return consumer.Handle
	}
	return func(ctx context.Context, m inbox.Message) error {
		err := consumer.Handle(ctx, m)
		if err == nil && m.Deliveries <= 1 { // one that comes again may have been applied before
			p.applied(consumer.Name(), m.Type)
		}
		return err
	}
}
