package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"time"

	"example.com/payonce/internal/checkout"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/devpg"
)

// reserved is how many connections the service keeps for API keys and readiness.
const reserved = 3

// service is the API as cmd/api wires it, in a process of its own, with a
// gateway that answers at once, if nothing else is said: what is measured is ours
// and PostgreSQL's.
func service(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	url := flags.String("database", "", "PostgreSQL")
	role := flags.String("role", "", "the service's role; the others have that of the URL")
	dataKey := flags.String("data_key", "", "DATA_KEY; empty: nothing is encrypted")
	tenant := flags.String("tenant", "", "whose keys the bare handler reads")
	conns := flags.Int("pool", 16, "connections of the pool, beside those that are reserved")
	takes := flags.Duration("gateway", 0, "how long each call of the gateway takes")
	brokerURL := flags.String("broker", "", "where the relay publishes; empty: no loops, and a gateway that lists nothing")
	redisAddr := flags.String("redis", "", "where the cache that is measured is; empty: there is none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx = postgres.ForAllTenants(ctx, "bench") // the loops; a request has its tenant
	box, err := sealed.New(*dataKey)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, devpg.As(*url, *role), postgres.Options{MaxConn: int32(*conns) + reserved, Box: box})
	if err != nil {
		return err
	}
	defer pool.Close()
	// The same number of connections for each peer, of which the service's pool keeps some for its batches.
	theirs, err := postgres.Open(ctx, *url, postgres.Options{
		MaxConn: int32(*conns) + pool.Stat().Max - pool.Raw().Stat().MaxConns(),
	})
	if err != nil {
		return err
	}
	defer theirs.Close()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(nowhere, nil)) // A line for each request is part of what it costs.
	stored := idempotency.Options{Lease: time.Minute, Log: log}
	var provider payments.Gateway = &instant{takes: *takes}
	var beside *loops
	received := func() {}
	if *brokerURL != "" {
		if beside, err = newRelayLoop(ctx, pool, *brokerURL); err != nil {
			return err
		}
		provider = &listing{instant: instant{takes: *takes}}
		stored.Boundary = func(string, string) { beside.relay.Wake() }
	}
	keys := idempotency.NewStore(pool, stored)
	money := payments.New(pool, keys, provider, httpapi.Answers{}, payments.Options{
		StripeTimeout: 15 * time.Second, ActionTimeout: time.Hour, Log: log,
	})
	checkouts := checkout.New(pool, keys, provider, money, httpapi.Answers{}, checkout.Options{Log: log})
	if beside != nil {
		beside.follow(keys, provider.(*listing), money)
		received = beside.inbox.Wake
	}
	operations := money.Operations()
	maps.Copy(operations, checkouts.Operations())
	api := httpapi.NewServer(httpapi.Options{
		Pool: pool, Keys: keys, Operations: operations, Payments: money, Checkouts: checkouts,
		Feed: outbox.NewFeed(pool, payments.RenderEvents), Within: 40 * time.Second, Drain: time.Second,
		WebhookSecrets: []string{webhookSecret}, WebhookReceived: received, Log: log,
	})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	others, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := peers(theirs, *tenant, *takes)
	if beside != nil {
		beside.serve(handler)
	}
	if *redisAddr != "" {
		for path, front := range fronts(api.Handler(), *redisAddr, *conns) {
			handler.Handle(path+"/*", http.StripPrefix(path, front))
		}
	}
	peer := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = peer.Serve(others) }() // until the process ends
	fmt.Println(l.Addr(), others.Addr())   // the parent reads them
	err = api.Run(ctx, l)
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("cpu %d max_rss_kb %d\n", usage.Utime.Nano()+usage.Stime.Nano(), usage.Maxrss)
	}
	return err
}

// instant is a Stripe that has always just done it. Its ids are as long as Stripe's, and follow from the order, so that
// the driver and pgbench know them.
type instant struct {
	payments.Gateway // what a payment does not need, panics
	takes            time.Duration
}

func (*instant) Ready(context.Context, string) (func(), error) { return func() {}, nil }

func (g *instant) CreateIntent(_ context.Context, _ stripe.Call, n stripe.NewIntent) stripe.Outcome {
	time.Sleep(g.takes)
	id := intentOf(n.OrderID)
	return stripe.Outcome{Effect: stripe.Done, HTTPStatus: 200, RequestID: stripeRequestOf(id), Intent: stripe.Intent{
		ID: id, Status: stripe.IntentRequiresPaymentMethod, AmountMinor: n.AmountMinor, Currency: n.Currency,
	}}
}

func (g *instant) ConfirmIntent(_ context.Context, _ stripe.Call, intentID, _ string) stripe.Outcome {
	time.Sleep(g.takes)
	return stripe.Outcome{Effect: stripe.Done, HTTPStatus: 200, RequestID: stripeRequestOf(intentID),
		Intent: stripe.Intent{
			ID: intentID, Status: stripe.IntentSucceeded, ChargeID: chargeOf(intentID),
			AmountMinor: 1000, ReceivedMinor: 1000, Currency: "usd", // of every order here
		}}
}

// intentOf is 27 characters, as Stripe's, of the 26 digits of an order, whose ninth and tenth are zero.
func intentOf(order string) string { return "pi_" + order[4:12] + order[14:] }

func chargeOf(intent string) string { return "ch_" + intent[3:] }

func stripeRequestOf(intent string) string { return "req_" + intent[len(intent)-14:] }
