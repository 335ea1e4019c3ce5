package checkout_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// The faults that a path may meet, by what they leave behind: the call was not
// made, was made and nobody told us, or is an error for as long as Stripe knows
// its key.
var pathFaults = map[string][]string{
	"intent.create": {stripesim.Reset, stripesim.RateLimited, stripesim.Drop, stripesim.EffectError,
		stripesim.StoredError},
	"intent.confirm": {stripesim.Reset, stripesim.RateLimited, stripesim.LockTimeout, stripesim.Drop, stripesim.Cut,
		stripesim.EffectError, stripesim.InvalidJSON, stripesim.StoredError, stripesim.EffectStoredError},
	"intent.capture": {stripesim.Reset, stripesim.RateLimited, stripesim.LockTimeout, stripesim.Drop, stripesim.Cut,
		stripesim.EffectError, stripesim.InvalidJSON, stripesim.StoredError, stripesim.EffectStoredError},
	"intent.cancel": {stripesim.Reset, stripesim.LockTimeout, stripesim.Drop, stripesim.EffectError,
		stripesim.StoredError, stripesim.EffectStoredError},
	"intent.get":    {stripesim.Reset, stripesim.Refuse, stripesim.Cut},
	"refund.create": {stripesim.Reset, stripesim.Drop, stripesim.EffectError},
}

var pathPoints = []string{
	"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded", "action_required",
	"payment_refused", "payment_made",
	"payment_authorized", "capture_recorded", "capture_refused",
	"refund_due", "refund_begun", "release_due", "payment_release_due", "payment_release_begun", "payment_refund_begun",
	"cancel_due", "finished",
}

var pathCards = []string{"pm_card_visa", "pm_card_visa", "pm_card_visa_chargeDeclined",
	"pm_card_authenticationRequired", "pm_card_threeDSecureRequiredChargeDeclined", "pm_nobody"}

// Whatever happens to checkouts, in whatever order, each ends as one of two
// things, and Stripe, the stock and the orders agree with it.
func TestCheckout_EveryPathEndsWhole(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	m := &shop.Mortal{}
	server := w.Local(world.LocalOptions{Boundary: m.Boundary, StripeTimeout: 2 * time.Second, Lease: time.Minute})
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		p := newPath(r, w, server, m)
		r.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) {},
			"Begin":     p.begin,
			"Retry":     p.retry,
			"Complete":  func(*rapid.T) { p.shop.Complete() },
			"Customer":  p.customer,
			"Cancel":    p.cancel,
			"Dashboard": p.dashboard,
			"Fault":     p.fault,
			"Kill":      p.kill,
			"TimesOut":  p.timesOut,
			"ByHand":    p.byHand,
			"HandedOut": func(*rapid.T) { p.checkStock(false) },
		})
		p.rest()
		for _, a := range p.final {
			seen[fmt.Sprint(a.Status, " ", a.Code(), " ", shop.SagaOf(w.T, a).Course())]++
		}
	})
	w.RequireSound()
	t.Logf("%d endings: %v", len(seen), seen)
	require.GreaterOrEqual(t, len(seen), 5, "paths that all end alike show little")
}

// path is one tenant and what is done to its checkouts.
type path struct {
	r      *rapid.T
	shop   shop.Shop
	m      *shop.Mortal
	bodies map[string]string
	wants  map[string]int
	final  map[string]world.Answer
	total  int
}

func newPath(r *rapid.T, w *world.World, server *world.Local, m *shop.Mortal) *path {
	tenant, local := w.NewTenant(), *server
	local.Client = server.As(tenant)
	p := &path{r: r, shop: shop.Shop{Local: &local, World: w}, m: m, bodies: map[string]string{}, wants: map[string]int{},
		final: map[string]world.Answer{}}
	w.Tenant = tenant
	p.total = rapid.IntRange(2, 8).Draw(r, "stock")
	p.shop.Stock("tea", p.total)
	return p
}

func (p *path) begin(r *rapid.T) {
	if len(p.bodies) == 4 {
		return
	}
	key := fmt.Sprint("k", len(p.bodies))
	p.wants[key] = rapid.IntRange(1, 4).Draw(r, "quantity")
	p.bodies[key] = fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":%d,"unit_amount":500}],`+
		`"payment_method":%q,"capture":%q}`, p.wants[key], rapid.SampledFrom(pathCards).Draw(r, "card"),
		rapid.SampledFrom([]string{"automatic", "manual"}).Draw(r, "capture"))
	p.send(key)
}

func (p *path) retry(r *rapid.T) {
	if len(p.bodies) > 0 {
		p.send(fmt.Sprint("k", rapid.IntRange(0, len(p.bodies)-1).Draw(r, "key")))
	}
}

// send asks, and holds an answer that is the last word against the one before.
func (p *path) send(key string) {
	a := p.shop.Checkout(key, p.bodies[key])
	if a.Err != nil || a.Status == http.StatusAccepted || a.Problem().Retryable {
		require.NotContains(p.r, p.final, key, "%s: no answer follows a final one but itself: %s", key, a)
		return
	}
	if before, ok := p.final[key]; ok {
		require.Equal(p.r, before.Identity(), a.Identity())
	}
	p.final[key] = a
}

func (p *path) text(sql string) string { return p.shop.World.Text(sql, p.shop.World.Tenant.ID) }

// customer is somebody at the 3-D Secure page.
func (p *path) customer(r *rapid.T) {
	if intent := p.text(`SELECT intent_id FROM payments WHERE tenant_id = $1 AND status = 'requires_action'
		ORDER BY id LIMIT 1`); intent != "" {
		_ = p.shop.World.Sim.CompleteAuthentication(intent, rapid.Bool().Draw(r, "passes")) // or they have already
	}
}

// dashboard is a person at Stripe who captures or cancels what is reserved, or a network that drops it.
func (p *path) dashboard(r *rapid.T) {
	intent := p.text(`SELECT intent_id FROM payments WHERE tenant_id = $1 AND status = 'authorized' ORDER BY id LIMIT 1`)
	if intent == "" {
		return
	}
	switch rapid.IntRange(0, 3).Draw(r, "what") { // It may have ended already.
	case 0:
		_ = p.shop.World.Sim.CaptureInDashboard(intent, 0)
	case 1:
		_ = p.shop.World.Sim.CaptureInDashboard(intent, 100)
	case 2:
		_ = p.shop.World.Sim.CancelInDashboard(intent, "")
	default:
		_ = p.shop.World.Sim.LapseAuthorization(intent, "")
	}
}

func (p *path) cancel(r *rapid.T) {
	if order := p.text(`SELECT id FROM orders WHERE tenant_id = $1 AND status = 'open' ORDER BY id LIMIT 1`); order != "" {
		p.shop.Post("/v1/orders/"+order+"/cancel", "cancel-"+order, "")
	}
}

func (p *path) fault(r *rapid.T) {
	op := rapid.SampledFrom([]string{"intent.create", "intent.confirm", "intent.confirm", "intent.capture",
		"intent.capture", "intent.cancel", "intent.get", "refund.create"}).Draw(r, "op")
	p.shop.World.Sim.Inject(stripesim.Fault{Op: op, Kind: rapid.SampledFrom(pathFaults[op]).Draw(r, "kind"),
		Times: rapid.IntRange(1, 2).Draw(r, "times"), Bytes: 20})
}

func (p *path) kill(r *rapid.T) {
	point := rapid.SampledFrom(pathPoints).Draw(r, "point")
	p.m.DieAt(point)
}

// timesOut lets reservations and 3-D Secure challenges run out.
func (p *path) timesOut(*rapid.T) {
	p.shop.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second' WHERE tenant_id = $1
		AND status = 'held' AND expires_at IS NOT NULL`, p.shop.World.Tenant.ID)
	p.shop.World.Exec(`UPDATE payments SET updated_at = clock_timestamp() - interval '2 hours' WHERE tenant_id = $1
		AND status = 'requires_action'`, p.shop.World.Tenant.ID)
	p.shop.World.ExpireLeases()
	_, err := p.shop.Checkouts.ExpireReservations(p.r.Context())
	require.NoError(p.r, err)
}

// byHand is a person with a SQL prompt who cancels an order that is being paid.
func (p *path) byHand(r *rapid.T) {
	if rapid.IntRange(0, 3).Draw(r, "tempted") == 0 {
		p.shop.World.Exec(`UPDATE orders SET status = 'canceled' WHERE tenant_id = $1 AND status = 'open'`,
			p.shop.World.Tenant.ID)
	}
}

// checkStock counts what there was: at any time it is available, held, or sold.
func (p *path) checkStock(atRest bool) {
	row := p.text(`SELECT s.available + s.reserved + coalesce((SELECT sum(r.quantity) FROM reservations r
		WHERE (r.tenant_id, r.sku) = (s.tenant_id, s.sku) AND r.status = 'consumed'), 0) FROM stock s WHERE s.tenant_id = $1`)
	require.Equal(p.r, fmt.Sprint(p.total), row)
	if !atRest {
		return
	}
	sold := 0
	for key, a := range p.final {
		if a.Status == http.StatusCreated {
			sold += p.wants[key]
		}
	}
	p.shop.RequireStock("tea", p.total-sold, 0)
}

// rest ends the faults and lets everything come to its end.
func (p *path) rest() {
	p.shop.World.Sim.ClearFaults()
	p.m.DieAt("")
	for key := range p.bodies {
		for end := time.Now().Add(world.Patience); p.final[key].Status == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				p.r.Fatalf("the checkout of %s does not come to its end: %s", key, p.story(key))
			}
			p.shop.Complete()
			p.send(key)
			if intent := p.text(`SELECT intent_id FROM payments WHERE tenant_id = $1 AND status = 'requires_action'
				LIMIT 1`); intent != "" {
				_ = p.shop.World.Sim.CompleteAuthentication(intent, true) // or they have already
			}
		}
	}
	require.Empty(p.r, shop.Violations(p.shop.World.T, p.shop.World.DB.Raw(), p.shop.World.Sim))
	p.checkStock(true)
}

// story is what is known about a key, for whoever looks into a red test.
func (p *path) story(key string) string {
	return p.shop.World.Text(`SELECT concat_ws(E'\n', recovery_point, last_error, array_to_string(history, E'\n'),
			(SELECT string_agg(concat_ws(' ', s.step, s.status, s.attempts), E'\n' ORDER BY s.step)
			FROM checkout_steps s WHERE s.checkout_id = k.resource_id),
			(SELECT string_agg(concat_ws(' ', p.id, p.status, p.intent_id, p.failure_code), E'\n') FROM payments p
			WHERE (p.tenant_id, p.idempotency_key) = (k.tenant_id, k.key)),
			(SELECT string_agg(concat_ws(' ', c.stripe_key, c.outcome, c.attempts, c.http_status, c.error_code), E'\n')
			FROM stripe_calls c
				WHERE c.tenant_id = k.tenant_id AND (c.stripe_key LIKE k.tenant_id || ':' || k.key || ':%'
				OR c.stripe_key LIKE '%' || (SELECT order_id FROM checkouts h WHERE h.id = k.resource_id) || '%')))
		FROM idempotency_keys k WHERE tenant_id = $1 AND key = $2`, p.shop.World.Tenant.ID, key)
}
