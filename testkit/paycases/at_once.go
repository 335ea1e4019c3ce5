package paycases

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// authorization is a payment whose money is reserved, on two servers, while several try to end it.
type authorization struct {
	*testing.T
	b              *world.Books
	first, second  *world.Local
	mailbox        *world.Mailbox
	order, payment string
	intent, id     string
	mu             sync.Mutex
	answers        map[string][]world.Answer // by request
}

// An ender tries to end an authorization. name is also its key, if it is a request of ours.
type ender struct {
	name string
	op   string // the call to Stripe of a request of ours
	does func(a *authorization, api *world.Local) world.Answer
	// Elsewhere is without a request of ours, and fails if it comes too late.
	elsewhere func(a *authorization)
}

var (
	capturesAll = ender{name: "capture", op: "intent.capture", does: func(a *authorization, api *world.Local) world.Answer {
		return api.Capture("capture-"+a.id, a.payment, 1000)
	}}
	capturesLess = ender{name: "another capture", op: "intent.capture",
		does: func(a *authorization, api *world.Local) world.Answer {
			return api.Capture("another-"+a.id, a.payment, 300)
		}}
	cancelsPayment = ender{name: "cancel of the payment", op: "intent.cancel",
		does: func(a *authorization, api *world.Local) world.Answer {
			return api.CancelPayment("release-"+a.id, a.payment)
		}}
	cancelsOrder = ender{name: "cancel of the order", op: "intent.cancel",
		does: func(a *authorization, api *world.Local) world.Answer {
			return api.Post("/v1/orders/"+a.order+"/cancel", "order-"+a.id, `{}`)
		}}
	enders = []ender{
		capturesAll, capturesLess, cancelsPayment, cancelsOrder,
		{name: "capture in the dashboard", elsewhere: func(a *authorization) { _ = a.b.Sim.CaptureInDashboard(a.intent, 400) }},
		{name: "cancel in the dashboard", elsewhere: func(a *authorization) { _ = a.b.Sim.CancelInDashboard(a.intent, "") }},
		{name: "lapse", elsewhere: func(a *authorization) { _ = a.b.Sim.LapseAuthorization(a.intent, "") }},
		// The last, because the simulator's time goes on for all.
		{name: "expiry", elsewhere: func(a *authorization) { a.b.Sim.Advance(8 * 24 * time.Hour) }},
	}
)

// twoServers are the servers of a world in which authorizations are ended.
func twoServers(t *testing.T, regime stripesim.ReleaseRegime) *authorization {
	t.Helper()
	w := world.New(t)
	require.NoError(t, w.Sim.SetReleaseRegime(regime))
	mailbox := w.Mailbox()
	b := world.BooksWith(w, world.LocalOptions{Name: "first"})
	return &authorization{b: b, first: b.API, second: w.Local(world.LocalOptions{Name: "second"}), mailbox: mailbox}
}

func (a *authorization) begun(t *testing.T) *authorization {
	t.Helper()
	order := a.first.Order()
	p := a.first.Authorize("pays-"+order, order, visa)
	require.Equal(t, "authorized", p.Get("status"), p)
	return &authorization{T: t, b: a.b, first: a.first, second: a.second, mailbox: a.mailbox, order: order, payment: p.ID(),
		id: order, intent: p.Get("stripe", "payment_intent").(string), answers: map[string][]world.Answer{}}
}

// does has an ender try once.
func (a *authorization) does(e ender, api *world.Local) {
	if e.elsewhere != nil {
		e.elsewhere(a)
		return
	}
	answer := e.does(a, api)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[e.name] = append(a.answers[e.name], answer)
}

// settle has everything that can still happen happen, and each request sent again.
func (a *authorization) settle(tried ...ender) {
	a.Helper()
	for range 4 {
		for _, h := range a.mailbox.Take() {
			require.Equal(a.T, http.StatusOK, a.first.Receive(h).Status)
		}
		a.second.Process()
		a.b.ExpireLeases()
		a.second.Complete()
		a.b.Reconcile()
	}
	for range 2 {
		for _, e := range tried {
			if e.does != nil {
				a.does(e, a.second)
			}
		}
	}
}

// requireOneEnd fails the test unless the authorization has ended once, here and at Stripe, as every answer says.
func (a *authorization) requireOneEnd() {
	a.Helper()
	i, err := a.b.DashboardAtStripe().PaymentIntents.Get(a.intent, nil)
	require.NoError(a.T, err)
	detail := fmt.Sprint(a.answers)
	state := a.b.Text(`SELECT concat_ws(' ', p.status, p.captured_minor, CASE WHEN p.capturing_key IS NOT NULL THEN 'held' END)
		FROM payments p WHERE p.id = $1`, a.payment)
	switch i.Status {
	case "succeeded":
		require.Equal(a.T, fmt.Sprint("succeeded ", i.AmountReceived), state, detail)
		require.Equal(a.T, fmt.Sprint("paid ", i.AmountReceived), a.b.Text(
			`SELECT concat_ws(' ', status, captured_minor) FROM orders WHERE id = $1`, a.order), detail)
	case "canceled":
		require.Equal(a.T, "canceled", state, detail)
		require.Contains(a.T, []string{"open", "canceled"}, a.b.Text(`SELECT status FROM orders WHERE id = $1`, a.order), detail)
	default:
		require.FailNow(a.T, "it has not ended", "%s, %s: %s", i.Status, state, detail)
	}
	require.Equal(a.T, 1, a.b.Count(`SELECT count(*) FROM outbox_events WHERE aggregate_id = $1
		AND type IN ('payment.succeeded', 'payment.canceled')`, a.payment), detail)
	require.Equal(a.T, i.Status == "succeeded", a.b.Sim.ChargeCount(a.order) == 1, detail)
	require.Zero(a.T, a.b.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
	for name, answers := range a.answers {
		var finals []world.Answer
		for _, answer := range answers {
			if !answer.Final() {
				continue
			}
			finals = append(finals, answer)
			ok := map[string]bool{
				"capture": i.Status == "succeeded" && i.AmountReceived == 1000, "cancel of the payment": i.Status == "canceled",
				"another capture": i.Status == "succeeded" && i.AmountReceived == 300, "cancel of the order": i.Status == "canceled",
			}[name]
			if answer.Status == http.StatusOK {
				require.True(a.T, ok, "%s: %s", name, detail)
			}
		}
		require.NotEmpty(a.T, finals, "%s: %s", name, detail)
		require.Empty(a.T, world.Disagreements(finals), name)
	}
	require.Empty(a.T, a.b.Discrepancies(), detail)
}

// Slow is a request of ours that waits for Stripe while something else ends the authorization.
type Slow struct {
	ender
	point stripesim.Point
}

// String is the name of a test about it.
func (s Slow) String() string {
	if s.point == stripesim.BeforeEffect {
		return s.name + "/before"
	}
	return s.name + "/after"
}

// AllSlow are the requests that Stripe can be slow with, each before and after Stripe has executed it.
func AllSlow() (all []Slow) {
	for _, e := range []ender{capturesAll, cancelsPayment, cancelsOrder} {
		all = append(all, Slow{e, stripesim.BeforeEffect}, Slow{e, stripesim.AfterEffect})
	}
	return all
}

// AuthorizationEndsOnce: while one of two servers waits for Stripe to capture or to cancel, before or after Stripe has
// done so, something else ends the authorization. The slow requests take turns with their rivals.
func AuthorizationEndsOnce(t *testing.T, regime stripesim.ReleaseRegime, all ...Slow) {
	t.Helper()
	servers := twoServers(t, regime)
	for n, rival := range enders {
		slow := all[n%len(all)]
		t.Run(rival.name, func(t *testing.T) {
			a := servers.begun(t)
			held := a.b.Sim.Hold(stripesim.Selector{Op: slow.op, OrderID: a.order}, slow.point)
			done := world.Async(func() bool { a.does(slow.ender, a.first); return true })
			world.WaitHeld(a.b.World.T, held)
			a.does(rival, a.second)
			held.Release()
			<-done
			a.settle(slow.ender, rival)
			a.requireOneEnd()
		})
	}
	servers.b.RequireClean()
}

// Seeds are those of CapturesAndReleasesAtOnce and BrowserAndCallersAtOnce, each with another fault of Stripe's.
const Seeds = 8

// CapturesAndReleasesAtOnce: all of them at the same time, while Stripe loses some of its responses.
func CapturesAndReleasesAtOnce(t *testing.T, seed int) {
	t.Helper()
	regime := stripesim.RegimeRefunds
	if seed%2 == 1 {
		regime = stripesim.RegimeBasil
	}
	a := twoServers(t, regime).begun(t)
	lost := []string{stripesim.Drop, stripesim.Reset, stripesim.EffectStoredError, stripesim.StoredError}[seed/2]
	for _, op := range []string{"intent.capture", "intent.cancel"} {
		a.b.Sim.Inject(stripesim.Fault{Op: op, Kind: lost})
	}
	var all sync.WaitGroup
	all.Go(func() { a.does(capturesAll, a.first) })
	all.Go(func() { a.does(capturesAll, a.second) })
	all.Go(func() { a.does(capturesLess, a.second) })
	all.Go(func() { a.does(cancelsPayment, a.first) })
	all.Go(func() { a.does(cancelsOrder, a.second) })
	if seed%3 == 0 {
		all.Go(func() { enders[4+seed%2].elsewhere(a) })
	}
	all.Go(func() {
		for _, h := range a.mailbox.Take() {
			a.first.Receive(h)
		}
		a.second.Process()
	})
	all.Wait()
	tried := []ender{capturesAll, capturesLess, cancelsPayment, cancelsOrder}
	a.settle(tried...)
	a.settle(tried...) // who was refused while another was at work
	a.requireOneEnd()
	a.b.RequireClean()
}

// ProcessingCaptureExcludesOthers: the capture was accepted, and takes time. What comes meanwhile is refused, here and at
// Stripe.
func ProcessingCaptureExcludesOthers(t *testing.T, regime stripesim.ReleaseRegime) {
	t.Helper()
	servers := twoServers(t, regime)
	servers.b.Sim.SetCaptureProcessing(time.Hour)
	a := servers.begun(t)
	slow := capturesLess.does(a, a.first)
	require.Equal(t, http.StatusAccepted, slow.Status, slow)
	require.Equal(t, "authorized", slow.Get("status"))
	for _, e := range []ender{capturesAll, cancelsPayment, cancelsOrder} {
		answer := e.does(a, a.second)
		require.Equal(t, "payment-in-progress", answer.Code(), "%s: %s", e.name, answer)
		require.True(t, answer.Problem().Retryable)
		require.NotEmpty(t, answer.Header.Get("Retry-After"))
	}
	require.Error(t, a.b.Sim.CancelInDashboard(a.intent, ""))
	require.Error(t, a.b.Sim.CaptureInDashboard(a.intent, 0))
	a.b.ExpireLeases()
	a.second.Complete()
	require.Equal(t, "authorized", a.b.Text(`SELECT status FROM payments WHERE id = $1`, a.payment))
	a.b.Sim.Advance(time.Hour)
	a.settle(capturesLess, capturesAll, cancelsPayment, cancelsOrder)
	a.requireOneEnd()
	require.Equal(t, "300", a.b.Text(`SELECT captured_minor FROM payments WHERE id = $1`, a.payment))
	require.Len(t, a.b.Posts("capture"), 1, "it was sent once")
	a.b.RequireClean()
}

// BrowserAndCallersAtOnce: the browser pays while the payment or its order is canceled, or the next payment begins.
func BrowserAndCallersAtOnce(t *testing.T, seed int) {
	t.Helper()
	w := world.New(t)
	mailbox := w.Mailbox()
	b := world.BooksOn(w)
	second := w.Local(world.LocalOptions{Name: "second"})
	order := b.API.Order()
	first := b.API.Pay("k", order, careful)
	require.Equal(t, "requires_action", first.Get("status"))
	intent := w.IntentOfOrder(order)
	if seed%2 == 0 {
		require.NoError(t, b.Sim.CompleteAuthentication(intent, false))
	}
	if seed%3 == 0 {
		b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Drop})
	}
	var all sync.WaitGroup
	all.Go(func() { _ = BrowserPays(b, intent, visa) })
	all.Go(func() {
		if seed%4 < 2 {
			b.API.Post("/v1/payments/"+first.ID()+"/cancel", "cancel", `{}`)
		} else {
			b.API.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`)
		}
	})
	all.Go(func() { second.Pay("another", order, visa) })
	all.Go(func() { second.Pay("k", order, careful) })
	all.Go(func() {
		for _, h := range mailbox.Take() {
			b.API.Receive(h)
		}
		second.Process()
	})
	all.Wait()
	for range 4 {
		for _, h := range mailbox.Take() {
			require.Equal(t, http.StatusOK, b.API.Receive(h).Status)
		}
		b.API.Process()
		b.API.Complete()
		b.Reconcile()
	}
	last := b.API.Pay("last", order, visa)
	b.API.Complete()
	b.Reconcile()
	detail := fmt.Sprint(last, b.Text(`SELECT string_agg(concat_ws(' ', id, status, intent_id), '; ') FROM payments`),
		b.API.Get("/v1/orders/"+order))
	paid := b.Count(`SELECT count(*) FROM payments WHERE status = 'succeeded'`)
	require.Equal(t, paid, b.Sim.ChargeCount(order), detail)
	require.LessOrEqual(t, paid, 1, detail)
	require.Empty(t, b.Discrepancies(), detail)
	require.Zero(t, b.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
	b.RequireClean()
}
