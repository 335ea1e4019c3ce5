package world

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/internal/audit"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
)

// Books is a world with one server, its reconciler and its audit: for tests that
// compare our rows with Stripe's objects.
type Books struct {
	*World
	API        *Local
	Reconciler *reconcile.Reconciler
	// Stripe is a client of Stripe's that is not the service: the dashboard, or a
	// database that was lost.
	Stripe *client.API
}

// NewBooks starts a server in a new world.
func NewBooks(t testing.TB) *Books {
	t.Helper()
	return BooksOn(New(t))
}

// BooksOn starts a server in a world.
func BooksOn(w *World) *Books { return BooksWith(w, LocalOptions{}) }

// BooksWith is BooksOn with options.
func BooksWith(w *World, o LocalOptions) *Books {
	w.T.Helper()
	api := w.Local(o)
	return &Books{
		World: w, API: api, Reconciler: api.NewReconciler(reconcile.NewMetrics(api.Metrics)),
		Stripe: w.DashboardAtStripe(),
	}
}

// DashboardAtStripe is a client of Stripe's that is not the service.
func (w *World) DashboardAtStripe() *client.API {
	return client.New(stripesim.DefaultKey, stripego.NewBackendsWithConfig(&stripego.BackendConfig{
		URL: stripego.String(w.StripeURL), MaxNetworkRetries: stripego.Int64(0),
		EnableTelemetry: stripego.Bool(false), LeveledLogger: &stripego.LeveledLogger{},
	}))
}

// Reconcile compares everything at Stripe with the database once, whatever was
// compared before.
func (b *Books) Reconcile() {
	b.T.Helper()
	b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	for {
		n, err := b.Reconciler.RunOnce(context.Background())
		require.NoError(b.T, err)
		if n == 0 {
			return
		}
	}
}

// Measure sets the reconciler's gauges.
func (b *Books) Measure() {
	b.T.Helper()
	_, err := b.Reconciler.Measure(context.Background())
	require.NoError(b.T, err)
}

// Report is what `api audit -json` prints.
type Report audit.Report

// Audit is the audit as the command runs it: as the role of the service, in sessions that only read. It runs in this
// process, so that a test needs no program; that the command's exit status is the verdict is a test of cmd/api.
func (b *Books) Audit() Report {
	b.T.Helper()
	pool := dbtest.Kept(b.T, b.URL, "audit", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), b.asService(), postgres.Options{
			Name: "payonce-cli", MaxConn: 4, ReadOnly: true, Box: b.Box(DataKey),
		})
	})
	gateway := stripe.New(stripe.Options{
		SecretKey: stripesim.DefaultKey, BaseURL: b.StripeURL, Timeout: StripeTimeout, Limits: stripe.NewLimits(0, nil),
		Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	})
	r, err := audit.Run(postgres.ForAllTenants(context.Background(), "audit"), pool, gateway, nil, 48*time.Hour)
	require.NoError(b.T, err, "not everything was checked: %+v", r)
	return Report(r)
}

// Offends is the number of violations of each check that has any.
func (r Report) Offends() map[string]int {
	found := map[string]int{}
	for _, c := range r.Checks {
		if c.Violations > 0 {
			found[c.ID] = c.Violations
		}
	}
	return found
}

// Drift is how much more Stripe has than our rows say, over all currencies.
func (r Report) Drift() (total int64) {
	for _, d := range r.MoneyDrift {
		total += d.Minor
	}
	return total
}

// RequireClean fails the test if the audit finds anything.
func (b *Books) RequireClean() {
	b.T.Helper()
	r := b.Audit()
	require.Empty(b.T, r.Offends(), "%+v", r)
	require.Zero(b.T, r.Drift())
	require.True(b.T, r.OK)
}

// OrphanIntent charges the order at Stripe without a row here, as a database does
// that is then restored from an older copy.
func (b *Books) OrphanIntent(
	order string, change ...func(*stripego.PaymentIntentParams),
) *stripego.PaymentIntent {
	b.T.Helper()
	p := &stripego.PaymentIntentParams{
		Amount: stripego.Int64(1000), Currency: stripego.String("usd"),
		PaymentMethodTypes: stripego.StringSlice([]string{"card"}),
		PaymentMethod:      stripego.String("pm_card_visa"), Confirm: stripego.Bool(true),
	}
	p.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": order}
	p.IdempotencyKey = stripego.String(uuid.NewString())
	for _, f := range change {
		f(p)
	}
	pi, err := b.Stripe.PaymentIntents.New(p)
	require.NoError(b.T, err)
	return pi
}

// Unconfirmed makes an OrphanIntent one that was not confirmed.
func Unconfirmed(p *stripego.PaymentIntentParams) { p.Confirm, p.PaymentMethod = nil, nil }

// Discrepancies are the unresolved ones, oldest first: "kind object drift currency".
func (b *Books) Discrepancies() string {
	b.T.Helper()
	return b.Text(`SELECT string_agg(concat_ws(' ', kind, object_id, drift_minor, currency), '; ' ORDER BY found_at, kind, object_id)
		FROM discrepancies WHERE resolved_at IS NULL`)
}

// LongAgo is a world whose Stripe's clock is so far behind, until today is called.
func LongAgo(t testing.TB, age time.Duration, o LocalOptions) (b *Books, today func()) {
	t.Helper()
	w := *New(t)
	var passed atomic.Bool
	sim, err := stripesim.New(stripesim.Options{Now: func() time.Time {
		if passed.Load() {
			return time.Now()
		}
		return time.Now().Add(-age)
	}})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, sim.Close())
	})
	w.Sim, w.StripeURL = sim, server.URL
	return BooksWith(&w, o), func() { passed.Store(true) }
}

// CopyDatabase copies the world's database as it is now, as a backup would.
func (b *Books) CopyDatabase() (dsn string) {
	b.T.Helper()
	return dbtest.Copy(b.T, b.URL)
}

// OnDatabase is the same world with another database.
func (b *Books) OnDatabase(dsn string) *World {
	b.T.Helper()
	w := *b.World
	w.URL, w.DB, w.opened, w.proxy = dsn, door(b.T, dsn, b.DB.Box()), map[string]int{}, nil
	return &w
}

// AgeWork makes all unfinished work so much older.
func (b *Books) AgeWork(d time.Duration) {
	b.T.Helper()
	b.Exec(`UPDATE stripe_calls
		SET first_sent_at = first_sent_at - $1::interval, last_sent_at = last_sent_at - $1::interval`, d)
	b.Exec("UPDATE orders SET created_at = created_at - $1::interval", d)
	b.Exec("UPDATE intent_searches SET from_at = from_at - $1::interval, until_at = until_at - $1::interval", d)
	b.Exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval WHERE finished_at IS NULL", d)
	b.ExpireLeases()
}

// Backup is a world with a copy of its database that was made while a payment was
// between its first two phases. Its Stripe has gone on since.
type Backup struct {
	*Books
	dsn   string
	age   time.Duration
	today func()
}

// NewBackup calls first, which begins a payment, and copies the database in the
// middle of it.
func NewBackup(t testing.TB, age time.Duration, first func(b *Books)) *Backup {
	t.Helper()
	k := &Backup{age: age}
	k.Books, k.today = LongAgo(t, age, LocalOptions{Boundary: func(_, point string) {
		if point == "payment_recorded" && k.dsn == "" {
			k.dsn = k.CopyDatabase()
		}
	}})
	first(k.Books)
	require.NotEmpty(t, k.dsn, "nothing was copied")
	return k
}

// Restored is a server on the copy, when the backup's age has passed for both sides.
func (k *Backup) Restored(o LocalOptions) *Books {
	k.T.Helper()
	b := BooksWith(k.OnDatabase(k.dsn), o)
	b.AgeWork(k.age)
	k.today()
	return b
}
