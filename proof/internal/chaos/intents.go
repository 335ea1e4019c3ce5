package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"example.com/payonce/proof/internal/chaos/history"
)

// client sends requests, one after the other, and retries until it
// has them or loses his patience. What he does is drawn from the seed.
type client struct {
	*traffic
	name string
	n    int // intents so far
	rand *rand.Rand
}

func (c *client) calm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traffic.calm
}

func (c *client) oneIn(n int) bool { return c.rand.IntN(n) == 0 }

func (c *client) otherThan(tenant int) int { return (tenant + 1) % len(c.world.tenants) }

// want is one thing that a customer wants, from the first request to the last.
func (c *client) want(ctx context.Context) {
	c.n++
	tenant, name := c.rand.IntN(len(c.world.tenants)), fmt.Sprintf("%s-%d", c.name, c.n)
	switch k := c.rand.IntN(100); {
	case k < 34:
		c.buy(ctx, tenant, name)
	case k < 46:
		c.reserve(ctx, tenant, name)
	case k < 54:
		c.sale(ctx, tenant, name)
	case k < 70:
		c.checkout(ctx, tenant, name)
	case k < 82:
		c.authenticate(ctx, tenant, name)
	case k < 89:
		c.changeMind(ctx, tenant, name)
	case k < 95: // Two tenants use the same keys, for orders of their own.
		var both sync.WaitGroup
		for _, of := range []int{tenant, c.otherThan(tenant)} {
			twin := c.another()
			both.Go(func() { twin.buy(ctx, of, name) })
		}
		both.Wait()
	default:
		c.misbehave(ctx, tenant, name)
	}
	for range 1 + c.rand.IntN(2) {
		c.look(ctx)
	}
}

// another is a client that does something at the same time, with luck of its own.
func (c *client) another() *client {
	return &client{traffic: c.traffic, name: c.name, n: c.n, rand: rand.New(rand.NewPCG(c.rand.Uint64(), 0))}
}

const (
	goodCard      = "pm_card_visa"
	badCard       = "pm_card_visa_chargeDeclined"
	carefulCard   = "pm_card_threeDSecure2Required"
	slowRefunds   = "pm_card_pendingRefund"
	failedRefunds = "pm_card_refundFail"
)

// card is what a payment is made with. A refund to one of two cards takes as
// long as it pleases the bank, so they are not for times in which everything must
// come to its end.
func (c *client) card() string {
	switch k := c.rand.IntN(20); {
	case k < 2:
		return badCard
	case k == 2 && !c.calm():
		return slowRefunds
	case k == 3 && !c.calm():
		return failedRefunds
	}
	return goodCard
}

// order makes an order and returns its id, empty if it was not to be had.
func (c *client) order(ctx context.Context, tenant int, name string) (id string, amount int64) {
	units := 1 + c.rand.Int64N(20)
	a, final := c.until(ctx, request{tenant: tenant, path: "/v1/orders", key: "order-" + name,
		body: fmt.Sprintf(`{"currency":"usd","items":[{"sku":"chaos","quantity":%d,"unit_amount":100}]}`, units)},
		retries)
	if !final {
		return "", 0
	}
	return a.object.ID, units * 100
}

func payBody(order, card string) string {
	return fmt.Sprintf(`{"order_id":%q,"payment_method":%q}`, order, card)
}

// buy is an order, paid once, whatever happens on the way; and sometimes money back.
func (c *client) buy(ctx context.Context, tenant int, name string) {
	order, amount := c.order(ctx, tenant, name)
	if order == "" {
		return
	}
	q := request{tenant: tenant, path: "/v1/payments", key: "pay-" + name, body: payBody(order, c.card())}
	if c.oneIn(12) { // The same key in another tenant, for an order that is not there: nothing may come of it.
		stranger := q
		stranger.tenant = c.otherThan(tenant)
		c.send(ctx, stranger)
	}
	if c.oneIn(4) { // An impatient front end sends several at once.
		c.atOnce(ctx, q, 2+c.rand.IntN(4))
	}
	a, _ := c.until(ctx, q, c.tries())
	if c.oneIn(12) { // A client reuses the key for another request.
		other := q
		other.body = payBody(order, "pm_card_mastercard")
		c.send(ctx, other)
	}
	if c.oneIn(10) { // Another attempt to pay the same order, with a key of its own.
		again := q
		again.key += "-again"
		c.until(ctx, again, 3)
	}
	if a.status == http.StatusCreated && c.oneIn(4) {
		c.refund(ctx, tenant, name, a.object.ID, amount)
	}
}

// crowd is how many pay at the same moment when a sale opens.
const crowd = 8

// sale is many orders that are paid at the same moment, through the same node: there they are a batch.
func (c *client) sale(ctx context.Context, tenant int, name string) {
	var ordered, paid sync.WaitGroup
	pays := make([]request, crowd)
	for i := range pays {
		twin, of := c.another(), fmt.Sprintf("%s-%d", name, i)
		ordered.Go(func() {
			if order, _ := twin.order(ctx, tenant, of); order != "" {
				pays[i] = request{tenant: tenant, path: "/v1/payments", key: "pay-" + of, body: payBody(order, twin.card())}
			}
		})
	}
	ordered.Wait()
	door := c.knock(c.rand)
	for _, q := range pays {
		if q.key == "" {
			continue
		}
		twin := c.another()
		paid.Go(func() {
			first := q
			first.door = door
			if _, outcome := twin.send(ctx, first); outcome != history.Final {
				twin.until(ctx, q, twin.tries())
			}
		})
	}
	paid.Wait()
}

// refund wants some of the money back: a part, all that is left, or two parts at
// once, which together may be more than there is.
func (c *client) refund(ctx context.Context, tenant int, name, payment string, amount int64) {
	q := request{tenant: tenant, path: "/v1/payments/" + payment + "/refunds", key: "refund-" + name,
		body: fmt.Sprintf(`{"amount":%d}`, 1+c.rand.Int64N(amount))}
	switch c.rand.IntN(3) {
	case 0:
		q.body = `{}`
	case 1:
		var both sync.WaitGroup
		for i := range 2 {
			part, twin := q, c.another()
			part.key = fmt.Sprintf("%s-%d", q.key, i)
			both.Go(func() { twin.until(ctx, part, 3) })
		}
		both.Wait()
	}
	if c.oneIn(3) {
		c.atOnce(ctx, q, 2)
	}
	c.until(ctx, q, c.tries())
}

// reserve authorizes a payment and then captures all of it or a part, or releases it, or two of these at once; or a
// person at the dashboard does, or it stays authorized.
func (c *client) reserve(ctx context.Context, tenant int, name string) {
	order, amount := c.order(ctx, tenant, name)
	if order == "" {
		return
	}
	card := goodCard
	if c.oneIn(8) {
		card = badCard
	}
	q := request{tenant: tenant, path: "/v1/payments", key: "pay-" + name,
		body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q,"capture":"manual"}`, order, card)}
	if c.oneIn(4) {
		c.atOnce(ctx, q, 2)
	}
	a, _ := c.until(ctx, q, c.tries())
	if a.status != http.StatusCreated {
		return
	}
	payment := "/v1/payments/" + a.object.ID
	capture := func(key string, part int64) request {
		r := request{tenant: tenant, path: payment + "/capture", key: key + name, body: `{}`}
		if part < amount {
			r.body = fmt.Sprintf(`{"amount":%d}`, part)
		}
		return r
	}
	release := request{tenant: tenant, path: payment + "/cancel", key: "release-" + name, body: `{}`}
	part := 1 + c.rand.Int64N(amount)
	switch k := c.rand.IntN(10); {
	case k < 4:
		if c.oneIn(3) {
			c.atOnce(ctx, capture("capture-", part), 2)
		}
		done, _ := c.until(ctx, capture("capture-", part), c.tries())
		if done.status == http.StatusOK && c.oneIn(3) {
			c.refund(ctx, tenant, name, a.object.ID, part)
		}
	case k < 5:
		c.until(ctx, release, c.tries())
	case k < 8: // Two of them want different things.
		rivals := []request{capture("capture-", part), release}
		if c.oneIn(3) {
			rivals[1] = capture("another-", amount)
		} else if c.oneIn(2) {
			rivals[1] = request{tenant: tenant, path: "/v1/orders/" + order + "/cancel", key: "cancel-" + name, body: `{}`}
		}
		var both sync.WaitGroup
		for _, rival := range rivals {
			twin := c.another()
			both.Go(func() { twin.until(ctx, rival, twin.tries()) })
		}
		both.Wait()
	}
}

// captureInVain reserves money, and begins the hopeless capture.
func (c *client) captureInVain(ctx context.Context) error {
	order, _ := c.order(ctx, 0, c.name)
	a, final := c.until(ctx, request{path: "/v1/payments", key: "pay-" + c.name,
		body: fmt.Sprintf(`{"order_id":%q,"payment_method":%q,"capture":"manual"}`, order, goodCard)}, retries)
	if !final || a.status != http.StatusCreated {
		return fmt.Errorf("reserve money: status %d", a.status)
	}
	c.send(ctx, request{path: "/v1/payments/" + a.object.ID + "/capture", key: hopelessKey, body: `{}`})
	return nil
}

// checkout buys in one go. Some cards are declined, and some things are gone;
// then what was done must be undone.
func (c *client) checkout(ctx context.Context, tenant int, name string) {
	sku, card := "chaos", goodCard
	switch c.rand.IntN(8) {
	case 0, 1:
		card = badCard
	case 2:
		sku = "rare"
	}
	capture := [...]string{"automatic", "manual"}[c.rand.IntN(2)] // the money at once, or reserved first
	q := request{tenant: tenant, path: "/v1/checkouts", key: "checkout-" + name, body: fmt.Sprintf(
		`{"currency":"usd","items":[{"sku":%q,"quantity":%d,"unit_amount":100}],"payment_method":%q,"capture":%q}`,
		sku, 1+c.rand.Int64N(3), card, capture)}
	if c.oneIn(4) {
		c.atOnce(ctx, q, 2)
	}
	c.until(ctx, q, c.tries())
}

// authenticate pays with a card whose bank asks its owner first. He agrees, or
// fails, or goes away, or the shop takes the payment back; and sometimes two of these at once.
func (c *client) authenticate(ctx context.Context, tenant int, name string) {
	order, _ := c.order(ctx, tenant, name)
	if order == "" {
		return
	}
	q := request{tenant: tenant, path: "/v1/payments", key: "pay-" + name, body: payBody(order, carefulCard)}
	var a answer
	for range retries {
		a, _ = c.send(ctx, q)
		if a.object.Status == "requires_action" || ctx.Err() != nil {
			break
		}
		c.pause(ctx)
	}
	payment, intent := a.object.ID, a.object.Stripe.PaymentIntent
	if payment == "" || intent == "" {
		return // The customer has seen nothing yet. He comes back when everything is over.
	}
	k := c.rand.IntN(6)
	if k == 5 && !c.calm() {
		return // He goes away, and comes back when everything is over.
	}
	fails := k == 1 || k == 4
	if k != 3 {
		_ = c.world.sim.CompleteAuthentication(intent, !fails) // it may be canceled already
	}
	if fails {
		c.people.given(a.object.NextAction.ClientSecret) // His browser still has it.
	}
	if k == 2 || k == 3 {
		c.until(ctx, request{tenant: tenant, path: "/v1/payments/" + payment + "/cancel", key: "cancel-" + name,
			body: `{}`}, 5)
	}
	c.until(ctx, q, c.tries())
}

// changeMind orders and cancels, before, while or after it pays.
func (c *client) changeMind(ctx context.Context, tenant int, name string) {
	order, _ := c.order(ctx, tenant, name)
	if order == "" {
		return
	}
	pay := request{tenant: tenant, path: "/v1/payments", key: "pay-" + name, body: payBody(order, c.card())}
	cancel := request{tenant: tenant, path: "/v1/orders/" + order + "/cancel", key: "cancel-" + name, body: `{}`}
	var both sync.WaitGroup
	if twin := c.another(); c.oneIn(2) {
		both.Go(func() { twin.until(ctx, pay, twin.tries()) })
	}
	c.until(ctx, cancel, c.tries())
	both.Wait()
}

// misbehave sends what is refused before it is claimed.
func (c *client) misbehave(ctx context.Context, tenant int, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	n, key, body := c.knock(c.rand), c.world.tenants[tenant].Key, payBody("ord_none", goodCard)
	a, err := c.do(ctx, n, http.MethodPost, "/v1/payments", key+"x", body, "Idempotency-Key", "bad-"+name)
	if err == nil && a.status < 500 {
		c.rule("I21", a.status == http.StatusUnauthorized, "an unknown API key got %d", a.status)
	}
	a, err = c.do(ctx, n, http.MethodPost, "/v1/payments", key, `{"order_id":"ord_none"}`, "Idempotency-Key",
		"bad-"+name)
	if err == nil && a.status < 500 {
		c.rule("I20", a.status == http.StatusBadRequest, "half a request got %d", a.status)
	}
	c.send(ctx, request{tenant: tenant, path: "/v1/payments", key: "bad-" + name, body: body})
}

// retries is how often a client asks that wants an answer. One in five gives up
// after the first, and the service must finish what it began without him.
const retries = 20

func (c *client) tries() int {
	if c.oneIn(5) && !c.calm() {
		return 1
	}
	return retries
}

// atOnce sends the same request over several connections at the same time.
func (c *client) atOnce(ctx context.Context, q request, n int) {
	if c.oneIn(2) {
		q.prefer = "wait=2"
	}
	var all sync.WaitGroup
	for range n {
		twin := c.another()
		all.Go(func() { twin.send(ctx, q) })
	}
	all.Wait()
}

// until asks until there is a final answer.
func (c *client) until(ctx context.Context, q request, tries int) (a answer, final bool) {
	began := time.Now()
	for try := range tries {
		var outcome history.Outcome
		if a, outcome = c.send(ctx, q); outcome == history.Final {
			final = true
			break
		}
		if try == 0 && outcome == history.Away && !c.calm() && c.oneIn(2) {
			break // It believes that nothing was begun, and never uses the key again.
		}
		if !c.calm() && ctx.Err() != nil {
			break
		}
		c.pause(ctx)
	}
	if tries == retries {
		c.settled(q.path+" with key "+q.key, time.Since(began), final)
	}
	return a, final
}

func (c *client) pause(ctx context.Context) {
	pause := time.Duration(20+c.rand.IntN(200)) * time.Millisecond
	if c.calm() {
		ctx = context.WithoutCancel(ctx) // it has begun, so it ends
	}
	rest(ctx, pause)
}
