package main

import (
	"context"
	"errors"
	"log/slog"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// together examines what only the database and Stripe know together.
func (p patient) together(ctx context.Context, d *diagnosis) {
	const payments, events = "stripe.payments", "stripe.events"
	pool, f, err := p.openDatabase(ctx)
	if err != nil {
		d.notAsked("the database is away", payments, events)
		return
	}
	defer pool.Close()
	if !f.Migrated {
		d.notAsked("the database is empty", payments, events)
		return
	}
	ctx = postgres.ForAllTenants(ctx, "doctor")
	p.ofThisAccount(ctx, d, pool, payments)
	switch kinds, err := pool.StripeEventKinds(ctx); {
	case err != nil:
		d.notAsked(err.Error(), events)
	case kinds.Snapshots+kinds.Thin == 0:
		d.say(healthy, events, "none have arrived lately")
	case kinds.Thin == 0:
		d.say(healthy, events, "snapshots arrive")
	case kinds.Snapshots == 0:
		d.say(healthy, events, "thin events arrive")
	default:
		d.say(healthy, events, "both snapshots (%d) and thin events (%d) arrive", kinds.Snapshots, kinds.Thin)
	}
}

// ofThisAccount is whether Stripe knows the newest payment: with the key of another account, or of the other mode, all
// that is open would be looked for in vain.
func (p patient) ofThisAccount(ctx context.Context, d *diagnosis, pool *postgres.Pool, id string) {
	e := environment{getenv: p.getenv}
	key, base := e.stripeKey(), e.baseURL("STRIPE_API_BASE")
	if len(e.wrong) > 0 {
		d.notAsked("no key and address to ask with", id)
		return
	}
	newest, err := pool.PaymentIntentNewest(ctx)
	if err != nil {
		d.notAsked(err.Error(), id)
		return
	}
	if len(newest) == 0 {
		d.say(healthy, id, "none yet")
		return
	}
	_, err = stripe.New(stripe.Options{
		SecretKey: key, BaseURL: base, Timeout: doctorCall, Limits: stripe.NewLimits(0, nil),
		Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	}).GetIntent(ctx, stripe.NoTenant, newest[0])
	switch {
	case errors.Is(err, stripe.ErrNoSuchObject):
		d.say(bad, id, "the account of STRIPE_SECRET_KEY does not know %s, the intent of the newest payment here: the key is of "+
			"another account or of the other mode, or DATABASE_URL is; what is open would be looked for in vain", newest[0])
	case err != nil:
		d.notAsked(err.Error(), id)
	default:
		d.say(healthy, id, "Stripe knows the newest payment, %s", newest[0])
	}
}
