package world

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/admin"
	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/stripesim"
)

// AdminToken signs in at the operator's page of a Desk.
const AdminToken = "only-for-tests-0123456789abcdef"

// Desk is a world with a service in it, and the operator's page beside it. No
// loop runs: a test says when the completer looks.
type Desk struct {
	*World
	API        *Local
	Reconciler *reconcile.Reconciler
	PageURL    string // of the operator's page
}

// NewDesk starts a service and the operator's page. Without a token the page is
// read-only.
func NewDesk(t testing.TB, token string) *Desk {
	t.Helper()
	w := New(t)
	d := &Desk{World: w, API: w.Local(LocalOptions{})}
	d.Reconciler = d.API.NewReconciler(nil)
	d.PageURL = d.ServePage(t, w.URL, token)
	return d
}

// ServePage serves the operator's page on a database, until the test ends.
func (d *Desk) ServePage(t testing.TB, database, token string) (url string) {
	t.Helper()
	pool, err := postgres.Open(context.Background(), database, postgres.Options{
		Name: "operator", MaxConn: operator.Connections, Statement: operator.Statement, Box: d.DB.Box(),
	})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	server := httptest.NewServer(operator.New(operator.Options{
		Pool: pool, Payments: d.API.Payments, History: d.API.History, Token: admin.NewToken(token),
		Checkouts: d.API.Checkouts, // part: checkouts
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// LoseStripe makes Stripe charge and not respond from then on.
func (d *Desk) LoseStripe() {
	d.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop, Times: -1})
	d.Sim.Inject(stripesim.Fault{Op: "*.get", Kind: stripesim.Refuse, Status: http.StatusBadGateway, Times: -1})
}

// UnknownPayment is a payment whose outcome is unknown; it returns its id.
func (d *Desk) UnknownPayment(key string) (payment, order string) {
	d.T.Helper()
	d.LoseStripe()
	order = d.API.Order()
	a := d.API.Pay(key, order, "pm_card_visa")
	require.Equal(d.T, http.StatusAccepted, a.Status, a)
	return a.ID(), order
}

// ParkedPayment is a payment for which Stripe has not responded for two days.
func (d *Desk) ParkedPayment(key string) (payment, order string) {
	d.T.Helper()
	payment, order = d.UnknownPayment(key)
	d.Exec("UPDATE idempotency_keys SET created_at = created_at - interval '49 hours' WHERE key = $1", key)
	d.API.Complete()
	parked := d.Count("SELECT count(*) FROM idempotency_keys WHERE key = $1 AND parked_at IS NOT NULL", key)
	require.Equal(d.T, 1, parked, "the completer gave it up")
	return payment, order
}

// Park parks an event in each of the tables where one can be parked.
func (d *Desk) Park(order string) {
	d.T.Helper()
	d.Exec(`UPDATE outbox_events SET parked_at = clock_timestamp(), attempts = 30,
			last_error = 'nats: maximum payload exceeded'
		WHERE aggregate_id = $1`, order)
	d.Exec(`INSERT INTO inbox_events
			(consumer, event_id, status, type, payload, attempts, last_error, parked_at, received_at)
		VALUES ('stripe', 'evt_parked', 'parked', 'charge.refunded', '{}', 20, 'prepare: 502 from Stripe',
			clock_timestamp(), clock_timestamp() - interval '3 hours')`)
	d.Exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url)
		VALUES ($1, 'whe_1', 1, 'https://shop.example/hooks')`, d.Tenant.ID)
	d.Exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
		VALUES ($1, 'whe_1', 1, '0123456789abcdef01234567')`, d.Tenant.ID)
	d.Exec(`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_type, event_id, status, body, attempts,
			http_status, last_error, ended_at, created_at)
		VALUES ($1, 'whd_1', 'whe_1', 'order.paid', $2, 'failed', '{}', 40, 503, 'the endpoint answered 503',
			clock_timestamp(), clock_timestamp() - interval '3 days')`, d.Tenant.ID, order+"-1")
}

// LockTable blocks every reader of a table until the test ends, or release is called.
func (d *Desk) LockTable(table string) (release func()) {
	d.T.Helper()
	tx, err := d.DB.Raw().Begin(context.Background())
	require.NoError(d.T, err)
	release = func() { _ = tx.Rollback(context.Background()) }
	d.T.Cleanup(release)
	_, err = tx.Exec(context.Background(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(d.T, err)
	return release
}

// UnmatchedIntent is a charge at Stripe that no row here has; it returns the intent.
func (d *Desk) UnmatchedIntent(order string) string {
	d.T.Helper()
	return d.UnmatchedIntentOf(order, "1000", "pm_card_visa")
}

// UnmatchedIntentOf is an UnmatchedIntent of an amount, with a card.
func (d *Desk) UnmatchedIntentOf(order, amount, card string) string {
	d.T.Helper()
	return d.CallStripe(http.MethodPost, "/v1/payment_intents", url.Values{
		"amount": {amount}, "currency": {"usd"}, "payment_method_types[]": {"card"},
		"payment_method": {card}, "confirm": {"true"},
		"metadata[tenant_id]": {d.Tenant.ID}, "metadata[order_id]": {order},
	})
}

// Reconcile compares everything at Stripe with the database, now.
func (d *Desk) Reconcile() {
	d.T.Helper()
	d.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	for {
		n, err := d.Reconciler.RunOnce(context.Background())
		require.NoError(d.T, err)
		if n == 0 {
			return
		}
	}
}

// AuditTrail is the list of the operator's actions, oldest first.
func (d *Desk) AuditTrail() string {
	return d.Text(`SELECT string_agg(concat_ws(' ', actor, kind, subject, outcome), '; ' ORDER BY created_at)
		FROM operator_actions`)
}
