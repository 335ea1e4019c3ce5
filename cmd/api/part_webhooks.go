package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/notifier"
	"example.com/payonce/internal/postgres"
)

// notifierConsumer names the consumer at the broker and in the inbox. It must never change: to both, a consumer of
// another name has not received anything yet, and every tenant would get its old events again.
const notifierConsumer = "notifier"

// webhooksPart sends every event to its tenant's endpoint, signed. Webhooks from Stripe are no part: payments need
// them.
var webhooksPart = part{
	name: "webhooks",
	read: func(e *environment) partSettings {
		return webhooks{allowPrivate: e.boolean("NOTIFY_PRIVATE_ADDRESSES", false)}
	},
	commands: []command{{
		name: "tenant notify", args: "TENANT URL", run: notifyTenant,
		help: "send the tenant's events to URL too, beside the endpoints that it made; prints the signing secret, once",
	}},
}

type webhooks struct {
	allowPrivate bool // deliver to private addresses too. For development: tenants choose the URLs
}

func (w webhooks) wire(_ context.Context, s *service) error {
	n := notifier.New(s.pool, notifier.Options{
		AllowPrivate: w.allowPrivate, Metrics: notifier.NewMetrics(s.metrics), Log: s.log, Tracer: s.tracer,
	})
	endpoints := notifier.NewEndpoints(s.pool, s.keys, httpapi.Answers{}, w.allowPrivate)
	maps.Copy(s.operations, endpoints.Operations())
	maps.Copy(s.paths, notifier.Paths())
	for name := range endpoints.Operations() { // part: history
		s.describe[name] = notifier.History // part: history
	} // part: history
	s.http.Endpoints = endpoints
	// The consumer only stores a delivery for each event; the loop sends it. A slow endpoint never delays the broker.
	s.consume(notifierConsumer, notifier.Handler())
	woken := newWakeup()
	s.loops = append(s.loops, loop{name: "notifier", every: wokenEvery, wake: woken, runOnce: n.RunOnce})
	s.due.wake("notifier", woken.send)
	s.reap("delivery reaper", reapEvery, notifier.NewReaper(s.pool, 0).RunOnce)
	return nil
}

// notifyTenant sets the endpoint that gets a tenant's events. The secret that signs them is shown here only.
func notifyTenant(ctx context.Context, cli cli, args []string) error {
	if err := arguments(args, "TENANT", "URL"); err != nil {
		return err
	}
	tenantID, url := args[0], args[1]
	if err := checkText("the webhook's URL", url); err != nil {
		return err
	}
	e := environment{getenv: cli.getenv}
	private := e.boolean("NOTIFY_PRIVATE_ADDRESSES", false)
	if e.err != nil {
		return e.err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	return cli.withDataKey(ctx, func(pool *postgres.Pool) error {
		if err := mustBeServed(ctx, pool, tenantID); err != nil {
			return err
		}
		if err := notifier.CheckURL(ctx, url, private); err != nil {
			return err
		}
		if err := notifier.SetEndpoint(ctx, pool, tenantID, url, secret); err != nil {
			return err
		}
		return json.NewEncoder(cli.stdout).Encode(struct {
			URL    string `json:"url"`
			Secret string `json:"secret"`
		}{url, secret})
	})
}
