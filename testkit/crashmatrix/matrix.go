package crashmatrix

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

const (
	visa      = "pm_card_visa"
	declining = "pm_card_chargeDeclinedInsufficientFunds"
	careful   = "pm_card_threeDSecure2Required"
)

// operation is one column of money.
type operation struct {
	name     string
	key      string // its name in the table of keys
	op       string // the call to Stripe that counts
	method   string // of the card; a Stripe answer may want another
	places   []place
	outcomes []outcome
	prepare  func(c *cell)
	send     func(c *cell, api *world.Local) world.Answer
	// hurries is the key that a webhook hurries. A cancel's is that of the payment:
	// it learns of its end, and the cancel's own key is left to the completer.
	hurries func(c *cell) string
	judge   func(c *cell)
}

// place is where it can be disturbed: where a recovery point has just become
// durable, by its commit; or where Stripe has answered and nobody has written it
// down. Those are all the places there are: between two of them nothing changes
// that anybody else could see.
type place struct {
	name   string
	commit string   // the statement by which its transaction is known; none: it is a call to Stripe
	alone  bool     // the statement is a transaction by itself
	silent bool     // Stripe has done nothing yet that it could tell of, to anybody who would know what is meant
	only   []string // the answers of Stripe's with which it is reached; none: with each
}

// outcome is what Stripe does with the call that counts.
type outcome struct {
	name    string
	means   string
	fault   string // of the simulator
	times   int    // of the fault
	status  int    // of the fault
	code    string // of the fault
	method  string // of the card
	final   int
	problem string // the code of the final answer
	effects int
	told    bool // something comes of the first attempt, and Stripe tells of it
	// ends is how it ends an authorization, and empty if that stays.
	ends string
	// before is what somebody has done before the first request.
	before func(c *cell)
	// acts is what somebody does meanwhile: the customer, or time.
	acts func(c *cell)
}

var (
	disturbances = []string{"killed", "cut before", "cut after", "delayed"}
	waysBack     = []string{"retry", "completer", "webhook"}
)

// disturbed are the disturbances that a place knows.
func (p place) disturbed() []string {
	switch {
	case p.name == "none":
		return []string{"undisturbed"}
	case p.commit == "":
		return []string{"killed", "delayed"} // There is nothing to commit.
	}
	return disturbances
}

// back are the ways that lead back from a place: a webhook only where Stripe has
// something to tell. Of a payment it always has, because its intent was made before.
func (o operation) back(p place, out outcome, disturbance string) []string {
	stopped := disturbance == "killed" || disturbance == "delayed"
	if p.silent && stopped || !out.told && o.key != payments.CreatePayment {
		return waysBack[:2]
	}
	return waysBack
}

// reached are Stripe's answers with which the place is reached.
func (p place) reached(all []outcome) (list []outcome) {
	for _, o := range all {
		if p.only == nil || slices.Contains(p.only, o.name) {
			list = append(list, o)
		}
	}
	return list
}

// failures of the way to Stripe and back, which are the same for every call.
func failures(created int, stored outcome) []outcome {
	stored.name, stored.means, stored.fault = "error stored", "a 500 without effect, repeated under the key for ever",
		stripesim.StoredError
	return []outcome{
		{name: "response lost", means: "the effect, and the connection is closed", fault: stripesim.Drop, final: created,
			effects: 1, told: true},
		{name: "error after the effect", means: "the effect, and a 502", fault: stripesim.EffectError, final: created,
			effects: 1, told: true},
		{name: "error stored after the effect", means: "the effect, and a 500 that is repeated for ever",
			fault: stripesim.EffectStoredError, final: created, effects: 1, told: true},
		stored,
		{name: "never arrived", means: "the connection is closed before the effect", fault: stripesim.Reset, final: created,
			effects: 1},
		{name: "turned away", means: "429, once", fault: stripesim.RateLimited, final: created, effects: 1},
	}
}

func operations() []operation {
	none := place{name: "none"}
	payment := operation{
		name: "payment", key: payments.CreatePayment, op: "intent.confirm", method: visa,
		places: []place{
			none,
			{name: "payment_recorded", commit: "PaymentBegin", alone: true, silent: true},
			{name: "intent made",
				silent: true}, // it tells, and of an intent that no payment has by its id: not ours to judge
			{name: "intent_recorded", commit: "PaymentIntentRecord", alone: true},
			{name: "confirm answered"},
			{name: "action_required", commit: "PaymentSettle",
				only: []string{"customer must act", "authentication failed"}},
			{name: "cancel answered", only: []string{"authentication failed"}},
			{name: "finished", commit: "PaymentFinish", alone: true},
		},
		outcomes: append([]outcome{
			{name: "success", means: "Stripe executes the call", final: http.StatusCreated, effects: 1, told: true},
			{name: "declined", means: "the card is declined", method: declining, final: http.StatusPaymentRequired,
				problem: "payment-declined"},
			{name: "customer must act", means: "3-D Secure, which the customer passes", method: careful,
				final: http.StatusCreated, effects: 1, acts: (*cell).authenticate},
			{name: "authentication failed", means: "3-D Secure, which the customer fails; the intent is canceled first",
				method: careful, final: http.StatusPaymentRequired, problem: "payment-failed", acts: (*cell).fail},
		}, failures(http.StatusCreated, outcome{final: http.StatusPaymentRequired, problem: "payment-failed"})...),
		prepare: func(c *cell) { c.order = c.heir.Order() },
		send:    func(c *cell, api *world.Local) world.Answer { return api.Pay(c.key, c.order, c.card()) },
		hurries: func(c *cell) string { return c.key },
		judge: func(c *cell) {
			require.Equal(c, c.outcome.effects, c.w.Sim.ChargeCount(c.order), "charges")
			if c.outcome.effects == 1 {
				c.w.RequireChargedOnce(c.order)
			}
			if c.outcome.name == "authentication failed" {
				require.Equal(c, 1, c.atStripe(stripesim.EffectCancel), "cancels")
				require.Equal(c, "failed", c.w.Text(`SELECT status FROM payments WHERE order_id = $1`, c.order))
			}
		},
	}
	refund := operation{
		name: "refund", key: payments.CreateRefund, op: "refund.create", method: visa,
		places: []place{
			none,
			{name: "refund_recorded", commit: "RefundInsert", silent: true},
			{name: "refund answered"},
			{name: "finished", commit: "RefundSettle"},
		},
		outcomes: append([]outcome{
			{name: "success", means: "Stripe executes the call", final: http.StatusCreated, effects: 1, told: true},
			{name: "refused", means: "the charge is disputed", fault: stripesim.Refuse, times: -1,
				status: http.StatusBadRequest, code: "charge_disputed", final: http.StatusConflict,
				problem: "payment-disputed"},
			{name: "less is left there", means: "somebody has refunded 800 of 1000 in the dashboard",
				final: http.StatusConflict, problem: "refund-exceeds-payment", effects: 1, told: true,
				before: (*cell).refundElsewhere},
		}, failures(http.StatusCreated,
			outcome{final: http.StatusConflict, problem: "payment-not-refundable", acts: (*cell).aDayAndAHalf})...),
		prepare: func(c *cell) {
			c.order = c.heir.Order()
			c.payment = c.heir.Pay("pays-"+c.order, c.order, visa).ID()
		},
		send: func(c *cell, api *world.Local) world.Answer {
			return api.Post("/v1/payments/"+c.payment+"/refunds", c.key, `{"amount":300}`)
		},
		hurries: func(c *cell) string { return c.key },
		judge: func(c *cell) {
			require.Equal(c, c.outcome.effects, c.atStripe(stripesim.EffectRefund), "refunds")
			want := 300 * c.outcome.effects
			if c.outcome.before != nil {
				want = 800
			}
			require.Equal(c, want, c.w.Count(`SELECT amount_refunded_minor FROM orders WHERE id = $1`, c.order))
		},
	}
	waits := func(c *cell) {
		c.order = c.heir.Order()
		a := c.heir.Pay("pays-"+c.order, c.order, careful)
		require.Equal(c, "requires_action", a.Get("status"), a)
		c.payment = a.ID()
	}
	canceled := append([]outcome{{name: "success", means: "Stripe executes the call", final: http.StatusOK, effects: 1,
		told: true}},
		failures(http.StatusOK, outcome{final: http.StatusOK, effects: 1, acts: (*cell).aDayAndAHalf})...)
	judgeCancel := func(c *cell) {
		c.endPayment()
		require.Equal(c, c.outcome.effects, c.atStripe(stripesim.EffectCancel), "cancels")
		require.Equal(c, 1-c.outcome.effects, c.w.Sim.ChargeCount(c.order), "charges")
		want := "canceled"
		if c.outcome.effects == 0 {
			want = "succeeded"
		}
		require.Equal(c, want, c.w.Text(`SELECT status FROM payments WHERE id = $1`, c.payment))
	}
	cancel := operation{
		name: "cancel of a payment", key: payments.CancelPayment, op: "intent.cancel", method: careful,
		places: []place{
			none,
			{name: "cancel_begun", commit: "KeyClaim", silent: true},
			{name: "cancel answered"},
			{name: "finished", commit: "KeyFinish"},
		},
		outcomes: append([]outcome{{name: "too late", means: "the customer has just paid", final: http.StatusConflict,
			problem: "payment-not-cancelable", acts: (*cell).authenticate, told: true}}, canceled...),
		prepare: waits,
		send: func(c *cell, api *world.Local) world.Answer {
			return api.Post("/v1/payments/"+c.payment+"/cancel", c.key, "")
		},
		hurries: func(c *cell) string {
			if c.w.Text(`SELECT status FROM payments WHERE id = $1`, c.payment) == "requires_action" {
				return "pays-" + c.order
			}
			return c.key // It has learned already.
		},
		judge: judgeCancel,
	}
	cancelOrder := cancel
	cancelOrder.name, cancelOrder.key = "cancel of an order", payments.CancelOrder
	cancelOrder.places = []place{
		none,
		{name: "cancel_begun", commit: "OrderCancelBegin", silent: true},
		{name: "cancel answered"},
		{name: "finished", commit: "KeyFinish"},
	}
	cancelOrder.outcomes = append([]outcome{{name: "too late", means: "the customer has just paid",
		final: http.StatusConflict, problem: "order-not-cancelable", acts: (*cell).authenticate, told: true}},
		canceled...)
	cancelOrder.send = func(c *cell, api *world.Local) world.Answer {
		return api.Post("/v1/orders/"+c.order+"/cancel", c.key, "")
	}
	adoption := cancelOrder
	adoption.name, adoption.method = "cancel of an order that adopts", visa
	adoption.outcomes = []outcome{{name: "paid without us", final: http.StatusConflict, problem: "order-not-cancelable",
		means: "the intent of a declined payment was paid in a browser"}}
	adoption.prepare = func(c *cell) {
		c.order = c.heir.Order()
		require.Equal(c, "payment-declined", c.heir.Pay("pays-"+c.order, c.order, declining).Code())
		c.w.ConfirmInBrowser(c.w.IntentOfOrder(c.order), visa)
	}
	adoption.judge = func(c *cell) {
		require.Equal(c, 1, c.w.Sim.ChargeCount(c.order), "charges")
		require.Equal(c, "paid failed succeeded", c.w.Text(`SELECT concat(o.status, ' ', (
			SELECT string_agg(p.status::text, ' ' ORDER BY p.status::text) FROM payments p WHERE p.order_id = o.id))
			FROM orders o WHERE o.id = $1`, c.order))
	}
	return append([]operation{payment, refund, cancel, cancelOrder, adoption}, authorizationEnds()...)
}

// authorizationEnds are the operations on a payment whose money is reserved.
func authorizationEnds() []operation {
	reserves := func(c *cell) {
		c.order = c.heir.Order()
		a := c.heir.Authorize("pays-"+c.order, c.order, visa)
		require.Equal(c, "authorized", a.Get("status"), a)
		c.payment = a.ID()
	}
	intent := func(c *cell) string { return c.w.Text(`SELECT intent_id FROM payments WHERE id = $1`, c.payment) }
	judge := func(c *cell) {
		captured, want := 0, "authorized authorized"
		switch {
		case c.outcome.name == "captured elsewhere":
			captured, want = 300, "paid succeeded 300"
		case c.outcome.ends == "captured":
			captured, want = 700, "paid succeeded 700"
		case c.outcome.ends == "expired":
			want = "open canceled authorization_expired"
		case c.outcome.ends == "released":
			want = "open canceled"
		}
		require.Equal(c, want, c.w.Text(`SELECT concat_ws(' ', o.status, p.status, p.captured_minor, p.failure_code)
			FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.id = $1 AND p.capturing_key IS NULL`, c.payment))
		taken := 0
		for _, e := range c.w.Sim.Effects() {
			if e.Kind == stripesim.EffectCharge && e.IntentID == intent(c) {
				taken += int(e.Amount)
			}
		}
		require.Equal(c, captured, taken, "what was captured at Stripe")
		require.Equal(c, 1, c.w.Count(`SELECT count(*) FROM outbox_events e WHERE aggregate_id = $1
			AND version = (SELECT version FROM payments p WHERE p.id = $1)`, c.payment))
	}
	capture := operation{
		name: "capture", key: payments.CapturePayment, op: "intent.capture", method: visa,
		places: []place{
			{name: "none"},
			{name: "capture_recorded", commit: "PaymentCaptureBegin", silent: true},
			{name: "capture answered"},
			{name: "cancel answered", only: []string{"lapsed"}},
			{name: "finished", commit: "KeyFinish"},
		},
		outcomes: append([]outcome{
			{name: "success", means: "Stripe executes the call", final: http.StatusOK, told: true, ends: "captured"},
			{name: "captured elsewhere", means: "300 of 1000 were captured in the dashboard",
				final: http.StatusConflict, problem: "payment-not-capturable", told: true, ends: "captured",
				before: func(c *cell) { require.NoError(c, c.w.Sim.CaptureInDashboard(intent(c), 300)) }},
			{name: "canceled elsewhere", means: "it was canceled in the dashboard",
				final: http.StatusPaymentRequired, problem: "payment-failed", told: true, ends: "released",
				before: func(c *cell) { require.NoError(c, c.w.Sim.CancelInDashboard(intent(c), "")) }},
			{name: "lapsed", means: "the network has dropped the authorization; the intent is canceled first",
				final: http.StatusPaymentRequired, problem: "payment-failed", ends: "expired",
				before: func(c *cell) { require.NoError(c, c.w.Sim.LapseAuthorization(intent(c), "")) }},
		}, ending("captured", failures(http.StatusOK, outcome{final: http.StatusPaymentRequired, problem: "payment-failed"}))...),
		prepare: reserves,
		send:    func(c *cell, api *world.Local) world.Answer { return api.Capture(c.key, c.payment, 700) },
		hurries: func(c *cell) string { return c.key },
		judge:   judge,
	}
	release := operation{
		name: "release", key: payments.CancelPayment, op: "intent.cancel", method: visa,
		places: []place{
			{name: "none"},
			{name: "cancel_begun", commit: "PaymentCaptureBegin", silent: true},
			{name: "cancel answered"},
			{name: "finished", commit: "KeyFinish"},
		},
		outcomes: append([]outcome{
			{name: "success", means: "Stripe executes the call", final: http.StatusOK, told: true, ends: "released"},
			{name: "captured elsewhere", means: "300 of 1000 were captured in the dashboard",
				final: http.StatusConflict, problem: "payment-not-cancelable", told: true, ends: "captured",
				before: func(c *cell) { require.NoError(c, c.w.Sim.CaptureInDashboard(intent(c), 300)) }},
		}, ending("released", failures(http.StatusOK, outcome{final: http.StatusOK, effects: 1, acts: (*cell).aDayAndAHalf}))...),
		prepare: reserves,
		send:    func(c *cell, api *world.Local) world.Answer { return api.CancelPayment(c.key, c.payment) },
		hurries: func(c *cell) string { return c.key },
		judge:   judge,
	}
	return []operation{capture, release}
}

// ending says how the authorization ends with each outcome that has an effect.
func ending(how string, all []outcome) []outcome {
	for i := range all {
		if all[i].effects > 0 {
			all[i].ends = how
		}
	}
	return all
}

// seam is where the victim is disturbed, once.
type seam struct {
	operation string
	mu        sync.Mutex
	armed     *disturbance
	passed    []string
}

type disturbance struct {
	place   string
	kill    bool
	reached chan struct{}
	goOn    chan struct{}
	release func()
}

// at is called when the victim comes to a place.
func (s *seam) at(place string) {
	s.mu.Lock()
	d := s.armed
	if s.passed = append(s.passed, place); d == nil || d.place != place {
		s.mu.Unlock()
		return
	}
	s.armed = nil
	s.mu.Unlock()
	close(d.reached)
	if d.kill {
		panic(http.ErrAbortHandler)
	}
	<-d.goOn
}

func (s *seam) arm(place string, kill bool) *disturbance {
	d := &disturbance{place: place, kill: kill, reached: make(chan struct{}), goOn: make(chan struct{})}
	d.release = sync.OnceFunc(func() { close(d.goOn) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = d
	return d
}

func (s *seam) boundary(operation, point string) {
	if operation == s.operation {
		s.at(point)
	}
}

// seamAtStripe is the seam where Stripe has answered.
type seamAtStripe struct {
	payments.Gateway
	seam *seam
}

func (g seamAtStripe) CreateIntent(ctx context.Context, c stripe.Call, i stripe.NewIntent) stripe.Outcome {
	defer g.seam.at("intent made")
	return g.Gateway.CreateIntent(ctx, c, i)
}

func (g seamAtStripe) ConfirmIntent(ctx context.Context, c stripe.Call, id, method string) stripe.Outcome {
	defer g.seam.at("confirm answered")
	return g.Gateway.ConfirmIntent(ctx, c, id, method)
}

func (g seamAtStripe) CaptureIntent(ctx context.Context, c stripe.Call, id string, amountMinor int64) stripe.Outcome {
	defer g.seam.at("capture answered")
	return g.Gateway.CaptureIntent(ctx, c, id, amountMinor)
}

func (g seamAtStripe) CancelIntent(ctx context.Context, c stripe.Call, id string) stripe.Outcome {
	defer g.seam.at("cancel answered")
	return g.Gateway.CancelIntent(ctx, c, id)
}

func (g seamAtStripe) CreateRefund(ctx context.Context, c stripe.Call, r stripe.NewRefund) stripe.Outcome {
	defer g.seam.at("refund answered")
	return g.Gateway.CreateRefund(ctx, c, r)
}

// cell is one of them.
type cell struct {
	*testing.T
	*stage
	place          place
	outcome        outcome
	key            string
	order, payment string
	answers        []world.Answer
	fenced         float64 // writes of the victim's that were refused before
}

func (s *stage) cell(t *testing.T, p place, out outcome, disturbed, way string) {
	s.cells++
	c := &cell{
		T: t, stage: s, place: p, outcome: out, key: fmt.Sprintf("k%d", s.cells),
		fenced: s.victim.Metric("payonce_fenced_writes_total"),
	}
	c.o.prepare(c)
	c.mailbox.Take() // what Stripe has told so far is about something else
	var fault string
	if c.outcome.fault != "" {
		fault = c.w.Sim.Inject(stripesim.Fault{Op: c.o.op, OrderID: c.order, Kind: c.outcome.fault,
			Times: c.outcome.times, Status: c.outcome.status, Code: c.outcome.code})
	}
	if c.outcome.name == "too late" {
		c.outcome.acts(c)
	}
	if c.outcome.before != nil {
		c.outcome.before(c)
	}
	release := c.disturb(disturbed)
	switch way {
	case "retry":
		c.retry(c.heir)
	case "completer":
		c.complete()
	case "webhook":
		c.deliverWebhooks()
	}
	release()
	if fault != "" {
		require.Positive(c, c.w.Sim.FaultsFired()[fault], "Stripe has not done what this cell is about")
		c.w.Sim.ClearFaults()
	}
	c.settled(disturbed)
}

// disturb sends the first request, and returns when its server has been
// disturbed. release lets one that was delayed go on.
func (c *cell) disturb(how string) (release func()) {
	c.Helper()
	release = func() {}
	var cut *pgproxy.Cut
	var d *disturbance
	switch how {
	case "killed", "delayed":
		d = c.seam.arm(c.place.name, how == "killed")
	case "cut before":
		cut = c.cut(c.proxy.Before, c.proxy.BeforeCommit)
	case "cut after":
		cut = c.cut(c.proxy.After, c.proxy.AfterCommit)
	}
	for range 6 { // The place may be on the way of a second request only: when the first was told that nobody knows.
		answered := world.Async(func() world.Answer { return c.o.send(c, c.victim) })
		select {
		case a := <-answered:
			c.answers = append(c.answers, a)
		case <-reached(d):
			if how == "killed" {
				<-answered // or what net/http was told when it asked again by itself, on a new connection
				return release
			}
			c.Cleanup(d.release) // for a cell that fails before
			return func() {
				d.release()
				c.answers = append(c.answers, <-answered)
			}
		}
		last := c.answers[len(c.answers)-1]
		switch {
		case d == nil && cut == nil, cut != nil && cut.HasFired():
			return release
		case d != nil && last.Err != nil: // killed, and the connection was faster than the channel
			<-d.reached
			c.answers = c.answers[:len(c.answers)-1]
			return release
		}
		require.False(c, last.Final(), "it was finished without having been disturbed: %v", last)
		c.meanwhile()
	}
	require.FailNow(c, "the place was never reached")
	return release
}

func reached(d *disturbance) <-chan struct{} {
	if d == nil {
		return nil
	}
	return d.reached
}

func (c *cell) cut(statement, commit func(string) *pgproxy.Cut) *pgproxy.Cut {
	if c.place.alone {
		return statement("name: " + c.place.commit + " ")
	}
	return commit("name: " + c.place.commit + " ")
}

// meanwhile is what others do while somebody waits.
func (c *cell) meanwhile() {
	if c.outcome.acts != nil {
		c.outcome.acts(c)
	}
}

// retry is the client, who has nobody but a server without loops.
func (c *cell) retry(api *world.Local) {
	c.Helper()
	for range 8 {
		a := c.o.send(c, api)
		c.answers = append(c.answers, a)
		if a.Final() {
			return
		}
		c.meanwhile()
		c.w.ExpireLeases()
	}
	require.FailNow(c, "no key is stuck", "%s after all these retries: %v", c.key, c.answers)
}

// complete is the completer of another process, and nobody asks.
func (c *cell) complete() {
	c.Helper()
	for range 8 {
		c.w.ExpireLeases()
		_, err := c.heir.Completer.RunOnce(c.Context())
		require.NoError(c, err)
		if c.w.RecoveryPoint(c.key) == "finished" {
			return
		}
		c.meanwhile()
	}
	require.FailNow(c, "no key is stuck", "%s is at %q", c.key, c.w.RecoveryPoint(c.key))
}

// deliverWebhooks receives Stripe's webhook, long before the completer would have looked by itself.
func (c *cell) deliverWebhooks() {
	c.Helper()
	c.meanwhile()
	hurried := c.o.hurries(c)
	open := c.w.RecoveryPoint(hurried) != "finished"
	c.w.ExpireLeases()
	c.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour'
		WHERE finished_at IS NULL`)
	early, err := c.heir.Completer.RunOnce(c.Context())
	require.NoError(c, err)
	require.Zero(c, early, "nothing is due yet")
	hooks := c.mailbox.Take()
	require.NotEmpty(c, hooks, "Stripe has told nothing")
	for _, h := range hooks {
		require.Equal(c, http.StatusOK, c.heir.Receive(h).Status)
	}
	c.heir.Process()
	looked, err := c.heir.Completer.RunOnce(c.Context())
	require.NoError(c, err)
	if open && (hurried == c.key) == (c.o.method != careful) {
		require.Equal(c, 1, looked, "the webhook was to have %s looked at", hurried)
	}
	// One look may not be enough, and a cancel's own key is not what is hurried.
	if c.w.RecoveryPoint(c.key) != "finished" {
		c.complete()
	}
}

// settled judges the cell.
func (c *cell) settled(disturbed string) {
	c.Helper()
	last := c.o.send(c, c.heir)
	c.answers = append(c.answers, last)
	require.True(c, last.Replayed(), "%v", last)
	if c.outcome.final < 300 {
		require.Equal(c, c.outcome.final, last.Status, "what may have happened was called a failure: %v", last)
	} else {
		require.Equal(c, c.outcome.problem, last.Code(), "%v", last)
		require.Equal(c, c.outcome.final, last.Status)
	}
	finals := slices.DeleteFunc(slices.Clone(c.answers), func(a world.Answer) bool { return !a.Final() })
	require.Empty(c, world.Disagreements(finals))
	if disturbed == "delayed" && c.place.name != "finished" {
		require.Greater(c, c.victim.Metric("payonce_fenced_writes_total"), c.fenced,
			"who woke up late was to be refused")
	}
	c.o.judge(c)
	require.Empty(c, c.w.Violations())
}

func (c *cell) card() string {
	if c.outcome.method != "" {
		return c.outcome.method
	}
	return c.o.method
}

// atStripe counts the effects of a kind on the cell's order.
func (c *cell) atStripe(kind string) (n int) {
	for _, e := range c.w.Sim.Effects() {
		if e.Kind == kind && e.Metadata["order_id"] == c.order {
			n++
		}
	}
	return n
}

// authenticate is the customer passing 3-D Secure, as soon as there is something to pass.
func (c *cell) authenticate() {
	for _, e := range c.w.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated && e.Metadata["order_id"] == c.order {
			_ = c.w.Sim.CompleteAuthentication(e.IntentID, true) // or they have already
		}
	}
}

// refundElsewhere is somebody refunding most of the payment in Stripe's dashboard.
func (c *cell) refundElsewhere() {
	refund := &stripego.RefundParams{
		PaymentIntent: stripego.String(c.w.Text(`SELECT intent_id FROM payments WHERE id = $1`, c.payment)),
		Amount:        stripego.Int64(800),
	}
	refund.IdempotencyKey = stripego.String(uuid.NewString())
	_, err := c.w.DashboardAtStripe().Refunds.New(refund)
	require.NoError(c, err)
}

// fail is the customer failing it.
func (c *cell) fail() {
	for _, e := range c.w.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated && e.Metadata["order_id"] == c.order {
			_ = c.w.Sim.CompleteAuthentication(e.IntentID, false) // or they have already
		}
	}
}

// aDayAndAHalf is the time after which Stripe has forgotten a key and what it
// stored under it.
func (c *cell) aDayAndAHalf() {
	c.w.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '37 hours', last_sent_at = ` +
		`last_sent_at - interval '37 hours' WHERE attempts > 1`)
}

// endPayment lets a payment's own operation learn what a cancel has done to it.
func (c *cell) endPayment() {
	c.w.ExpireLeases()
	_, err := c.heir.Completer.RunOnce(c.Context())
	require.NoError(c, err)
}

// requireInvariants asks every query of the audit, and holds the list of places
// to those that the victim has passed.
func (s *stage) requireInvariants() {
	s.t.Helper()
	checks, err := s.w.DB.Invariants(s.t.Context())
	require.NoError(s.t, err)
	for _, check := range checks {
		require.Empty(s.t, check.Rows, "%s %s", check.ID, check.Name)
	}
	for _, passed := range s.seam.passed {
		known := slices.ContainsFunc(s.o.places, func(p place) bool { return p.name == passed })
		require.True(s.t, known || strings.HasPrefix(passed, "cancel"),
			"%s has the place %q, at which nothing is disturbed", s.o.name, passed)
	}
}
