package paycases

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// Elsewhere is a world in which somebody refunds in Stripe's dashboard. Order and Payment are those that it is about.
type Elsewhere struct {
	*world.Books
	Mailbox        *world.Mailbox
	Order, Payment string
}

// On is a world that has neither an order nor a payment yet.
func On(w *world.World) *Elsewhere { return &Elsewhere{Mailbox: w.Mailbox(), Books: world.BooksOn(w)} }

// New is a world with an order that was paid.
func New(t *testing.T) *Elsewhere {
	t.Helper()
	w := world.New(t)
	o := On(w)
	o.Order, o.Payment = Paid(o.API)
	o.Mailbox.Take()
	return o
}

// NewLate is a world with a payment that succeeded after its order was canceled, so that the service has to give its money
// back by itself.
func NewLate(t *testing.T, card string) *Elsewhere {
	t.Helper()
	w := world.New(t)
	o := On(w)
	o.Order = o.API.Order()
	require.Equal(t, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "cancel", `{}`).Status)
	intent := o.OrphanIntent(o.Order, func(p *stripego.PaymentIntentParams) { p.PaymentMethod = &card })
	o.Reconcile()
	o.Payment = o.Text(`SELECT id FROM payments WHERE intent_id = $1`, intent.ID)
	require.Equal(t, "automatic pending 1000", o.Rows())
	return o
}

// NewUnpaid is a world in which an order is open here, with a payment that can still be made in the customer's browser.
func NewUnpaid(t *testing.T, card string) (o *Elsewhere, intent string) {
	t.Helper()
	w := world.New(t)
	o = On(w)
	o.Order = o.API.Order()
	a := o.API.Pay("pays", o.Order, card)
	o.Payment = o.Text(`SELECT id FROM payments`)
	require.Contains(t, []int{http.StatusAccepted, http.StatusPaymentRequired}, a.Status, a)
	o.Mailbox.Take()
	return o, o.IntentOfOrder(o.Order)
}

// At is a server, its reconciler and a mailbox for Stripe's webhooks, under one of Stripe's regimes.
func At(t *testing.T, regime stripesim.ReleaseRegime) *Elsewhere {
	t.Helper()
	w := world.New(t)
	require.NoError(t, w.Sim.SetReleaseRegime(regime))
	return On(w)
}

// Dashboard refunds an amount of the payment at Stripe, and returns Stripe's id.
func (o *Elsewhere) Dashboard(amount int64, metadata ...string) string {
	o.T.Helper()
	made, err := o.TryDashboard(amount, metadata...)
	require.NoError(o.T, err)
	return made.ID
}

// TryDashboard is Dashboard, and Stripe may refuse it.
func (o *Elsewhere) TryDashboard(amount int64, metadata ...string) (*stripego.Refund, error) {
	o.T.Helper()
	p := &stripego.RefundParams{
		PaymentIntent: stripego.String(o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment)),
		Amount:        stripego.Int64(amount), Reason: stripego.String("requested_by_customer"),
	}
	p.IdempotencyKey = stripego.String(uuid.NewString())
	for i := 0; i < len(metadata); i += 2 {
		p.AddMetadata(metadata[i], metadata[i+1])
	}
	return o.Stripe.Refunds.New(p)
}

// DeliverWebhooks delivers Stripe's webhooks, one at a time.
func (o *Elsewhere) DeliverWebhooks() {
	o.T.Helper()
	for _, hook := range o.Mailbox.Take() {
		require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
		o.API.Process()
	}
	require.Zero(o.T, o.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
}

// Rows are the refunds here: "origin status amount".
func (o *Elsewhere) Rows() string {
	return o.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', ' ORDER BY origin, amount_minor, status::text)
		FROM refunds`)
}

// Refunded is what was refunded of the payment and of the order, in minor units.
func (o *Elsewhere) Refunded() (payment, order int) {
	return o.Count(`SELECT amount_refunded_minor FROM payments`), o.Count(`SELECT amount_refunded_minor FROM orders`)
}

// RequireAgrees fails the test unless these are the refunds, with this sum, and the reconciler agrees.
func (o *Elsewhere) RequireAgrees(rows string, refunded int) {
	o.T.Helper()
	require.Equal(o.T, rows, o.Rows())
	payment, order := o.Refunded()
	require.Equal(o.T, refunded, payment, "the payment")
	require.Equal(o.T, refunded, order, "the order")
	o.Reconcile()
	require.Equal(o.T, rows, o.Rows(), "the reconciler changes nothing")
	require.Empty(o.T, o.Discrepancies())
	o.Measure()
	require.Zero(o.T, o.API.Metric("payonce_money_drift_minor"))
}

// Listen delivers webhooks, and those that wait once more.
func (o *Elsewhere) Listen(hooks []world.Webhook) {
	o.T.Helper()
	for _, hook := range hooks {
		require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
		o.API.Process()
	}
	CompleteOnce(o.World, o.API)
	o.Exec(`UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'`)
	o.API.Process()
	require.Zero(o.T, o.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
}

// Owed is what is owed: "attempts parked|due|ended how".
func (o *Elsewhere) Owed() string {
	return o.Text(`SELECT concat_ws(' ', attempts, CASE WHEN ended_at IS NOT NULL THEN ended_how::text
		WHEN parked_at IS NOT NULL THEN 'parked' ELSE 'due' END) FROM refunds_owed`)
}

// Relabel has the payment's intent name another order, as anybody with access to the Stripe account can.
func (o *Elsewhere) Relabel(tenant, order string) {
	o.T.Helper()
	p := &stripego.PaymentIntentParams{}
	p.AddMetadata("tenant_id", tenant)
	p.AddMetadata("order_id", order)
	_, err := o.Stripe.PaymentIntents.Update(o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment), p)
	require.NoError(o.T, err)
}

// RelabelCharge has its charge do so too.
func (o *Elsewhere) RelabelCharge(tenant, order string) {
	o.T.Helper()
	p := &stripego.ChargeParams{}
	p.AddMetadata("tenant_id", tenant)
	p.AddMetadata("order_id", order)
	_, err := o.Stripe.Charges.Update(o.Text(`SELECT charge_id FROM payments WHERE id = $1`, o.Payment), p)
	require.NoError(o.T, err)
}

// Authorize reserves the money of a new order, which becomes the Order and Payment of o.
func (o *Elsewhere) Authorize(key string) {
	o.T.Helper()
	o.Order = o.API.Order()
	a := o.API.Authorize(key, o.Order, visa)
	require.Equal(o.T, http.StatusCreated, a.Status, a)
	o.Payment = a.ID()
	o.DeliverWebhooks()
}

// Intent is the PaymentIntent of the payment.
func (o *Elsewhere) Intent() string {
	return o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment)
}

// State is "order, payment; captured; refunded; disputed; failure code; refunds".
func (o *Elsewhere) State() string {
	return o.Text(`SELECT concat_ws('; ', o.status || ', ' || p.status, coalesce(p.captured_minor, 0),
			p.amount_refunded_minor || coalesce((SELECT ' ' || string_agg(r.origin || ' ' || r.amount_minor, ' ' ORDER BY r.origin, r.amount_minor)
				FROM refunds r WHERE r.payment_id = p.id AND r.status = 'succeeded'), ''),
			p.amount_disputed_minor, p.failure_code)
		FROM payments p JOIN orders o ON o.tenant_id = p.tenant_id AND o.id = p.order_id WHERE p.id = $1`, o.Payment)
}

// Captures captures an amount of the authorization in Stripe's dashboard; 0 is all of it.
func (o *Elsewhere) Captures(amount int64) {
	o.T.Helper()
	require.NoError(o.T, o.Sim.CaptureInDashboard(o.Intent(), amount))
}

// Shuffled delivers the webhooks in the reverse order and then all once more.
func (o *Elsewhere) Shuffled() {
	o.T.Helper()
	hooks := o.Mailbox.Take()
	slices.Reverse(hooks)
	for range 2 {
		for _, hook := range hooks {
			require.Equal(o.T, http.StatusOK, o.API.Receive(hook).Status)
			o.API.Process()
		}
	}
	o.SettleInbox()
}

// SettleInbox processes the events that were kept until something else was known.
func (o *Elsewhere) SettleInbox() {
	o.T.Helper()
	for range 5 {
		if o.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`) == 0 {
			return
		}
		o.Exec(`UPDATE inbox_events SET leased_until = now() - interval '1 second' WHERE status <> 'done'`)
		o.API.Process()
	}
	require.Equal(o.T, "", o.Text(`SELECT string_agg(concat_ws(' ', type, status, last_error), ' | ')
		FROM inbox_events WHERE status <> 'done'`))
}

// Paid is an order that was paid, and the payment.
func Paid(api *world.Local) (order, payment string) {
	order = api.Order()
	return order, api.Pay("pays-"+order, order, visa).ID()
}

// Refund requests a refund of 300 minor units.
func Refund(api *world.Local, key, payment string) world.Answer {
	return api.Post("/v1/payments/"+payment+"/refunds", key, `{"amount":300}`)
}

// CompleteOnce lets leases and pauses pass and has the completer look once.
func CompleteOnce(w *world.World, api *world.Local) {
	w.T.Helper()
	w.ExpireLeases()
	_, err := api.Completer.RunOnce(w.T.Context())
	require.NoError(w.T, err)
}

// BrowserPays confirms an intent as a browser does that holds its client secret: without us.
func BrowserPays(b *world.Books, intent, card string) error {
	_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{
		PaymentMethod: stripego.String(card),
	})
	return err
}
