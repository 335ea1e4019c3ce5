package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/lives"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/terminal"
)

// personMustAct is the exit code of `api restored` when it lists something to do.
const personMustAct exitStatus = 1

// restoredReport is what `api restored` prints.
type restoredReport struct {
	Life           lives.Life              `json:"life"`
	InForce        db.LifeInForceRow       `json:"in_force"`
	Keys           []db.LifeKeysInForceRow `json:"api_keys"` // the last used, up to keysShown
	UnknownTenants []lives.Unknown         `json:"unknown_tenants"`
	Lost           lives.Lost              `json:"lost"`
	NotAsked       []string                `json:"not_asked"`   // why Stripe or the broker was not asked
	NotKept        string                  `json:"cannot_tell"` // which of them does not keep what was lost
}

// keysShown is how many API keys `api restored` lists; `api tenant key list` lists the rest.
const keysShown = 100

// mustAct reports whether a person must do something.
func (r restoredReport) mustAct() bool {
	return len(r.UnknownTenants)+len(r.Lost.Tenants)+len(r.Lost.CameBack)+len(r.NotAsked) > 0
}

// restored begins a new life of a database that was restored, and lists what only a person can repair.
func restored(ctx context.Context, cli cli, args []string) error {
	flags, at := flags("restored"), time.Time{}
	flags.Func("at", "the time of the backup, such as 2026-11-29T03:00:00Z; default: that of the newest event, or of the reconciler's last run", func(s string) (err error) {
		at, err = time.Parse(time.RFC3339, s)
		return err
	})
	again := flags.Bool("again", false, "this is another restore, although the write-ahead log has not gone back")
	asJSON := flags.Bool("json", false, "print JSON")
	if _, err := parse(flags, args); err != nil {
		return err
	}
	if at.After(time.Now()) {
		return usageError("-at is in the future")
	}
	return cli.withDatabase(ctx, func(pool *postgres.Pool) error {
		life, err := lives.Begin(ctx, pool, at, *again)
		if err != nil {
			return err
		}
		r := restoredReport{Life: life}
		if r.InForce, err = pool.LifeInForce(ctx, life.BackupAt); err != nil {
			return fmt.Errorf("read what is in force: %w", err)
		}
		if r.Keys, err = pool.LifeKeysInForce(ctx, db.LifeKeysInForceParams{BackupAt: life.BackupAt, LimitRows: keysShown}); err != nil {
			return fmt.Errorf("read the API keys: %w", err)
		}
		if r.UnknownTenants, err = cli.unknownTenants(ctx, pool, life); err != nil {
			r.NotAsked = append(r.NotAsked, "Stripe: "+oneLine(err))
		}
		r.Lost, err = cli.lost(ctx, pool, life)
		if errors.Is(err, broker.ErrNotReadable) {
			r.NotKept = oneLine(err)
		} else if err != nil {
			r.NotAsked = append(r.NotAsked, "the broker: "+oneLine(err))
		}
		print := printRestored
		if *asJSON {
			print = func(w io.Writer, r restoredReport) error { return printJSON(w, r) }
		}
		if err := print(cli.stdout, r); err != nil {
			return err
		}
		if r.mustAct() {
			return personMustAct
		}
		return nil
	})
}

func (c cli) unknownTenants(ctx context.Context, pool *postgres.Pool, life lives.Life) ([]lives.Unknown, error) {
	o, err := readStripeConfig(c.getenv)
	if err != nil {
		return nil, err
	}
	o.Metrics, o.Log = stripe.NewMetrics(nil), slog.New(slog.DiscardHandler)
	return lives.UnknownTenants(ctx, pool, stripe.New(o), life)
}

func (c cli) lost(ctx context.Context, pool *postgres.Pool, life lives.Life) (lives.Lost, error) {
	e := environment{getenv: c.getenv}
	brokerURL := e.text("BROKER_URL", defaultBroker)
	return lives.ReadLost(ctx, pool, func(ctx context.Context, from time.Time, each func([]outbox.Envelope) error) error {
		return broker.Since(ctx, brokerURL, from, each)
	}, life)
}

func printRestored(w io.Writer, r restoredReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "life %d begins; what was done from %s to %s is lost here\n", r.Life.Number,
		r.Life.BackupAt.Format(time.RFC3339), r.Life.BeganAt.Format(time.RFC3339))
	fmt.Fprintf(&b, "event ids and cursors of the lost life are not given again; %d feeds begin anew\n", r.Life.Feeds)
	fmt.Fprintf(&b, "%d reservations are held until it is known what the lost life has paid\n", r.Life.Held)
	for _, eventType := range slices.Sorted(maps.Keys(r.Lost.Events)) {
		fmt.Fprintf(&b, "lost: %d events %s\n", r.Lost.Events[eventType], terminal.Text(eventType))
	}
	fmt.Fprintf(&b, "look: %d webhook endpoints are enabled; disable again, and rotate the secrets again, of what was disabled or rotated since\n", r.InForce.Endpoints) // part: webhooks
	fmt.Fprintf(&b, "look: %d API keys from before the backup, and %d tenants, are in force; revoke and disable again what was revoked or disabled since\n", r.InForce.ApiKeys, r.InForce.Tenants)
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "  %s %s %s, created %s\n", terminal.Text(k.TenantID), terminal.Text(k.Hint), terminal.Text(k.Name),
			k.CreatedAt.UTC().Format(time.RFC3339))
	}
	if r.NotKept != "" {
		fmt.Fprintf(&b, "look: what the lost life did is not known from the broker: %s\n", r.NotKept)
	}
	for _, why := range r.NotAsked {
		fmt.Fprintf(&b, "DO: what the lost life did is not known from %s\n", terminal.Text(why))
	}
	for _, id := range r.Lost.Tenants {
		if slices.ContainsFunc(r.UnknownTenants, func(u lives.Unknown) bool { return u.TenantID == id }) {
			continue // it is named below
		}
		fmt.Fprintf(&b, "DO: the broker has events of %s, which is no tenant here: api tenant create NAME -id %[1]s\n", terminal.Text(id))
	}
	for _, eventType := range slices.Sorted(maps.Keys(r.Lost.CameBack)) {
		for _, id := range r.Lost.CameBack[eventType] {
			fmt.Fprintf(&b, "DO: %s: %s\n", terminal.Text(id), lives.Repairs[eventType].Do)
		}
	}
	for _, u := range r.UnknownTenants {
		sums := []string{}
		for _, currency := range slices.Sorted(maps.Keys(u.Received)) {
			sums = append(sums, fmt.Sprintf("%d %s", u.Received[currency], currency))
		}
		fmt.Fprintf(&b, "DO: Stripe has %d PaymentIntents of %s (%s received), which is no tenant here: "+
			"api tenant create NAME -id %s, unless the tenant is of another cell\n", u.Intents, terminal.Text(u.TenantID),
			strings.Join(sums, ", "), terminal.Text(u.TenantID))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
