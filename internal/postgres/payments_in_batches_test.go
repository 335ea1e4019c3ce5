package postgres_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// These are payments of the whole service. They are here because only this package can keep every lane busy until all
// of them wait, so that each batch has the rows that a test wants in it.

const (
	visa     = "pm_card_visa"
	declined = "pm_card_visa_chargeDeclined"
	careful  = "pm_card_threeDSecure2Required"
)

// till is a server whose payments can be stopped before a statement, and then make one batch.
type till struct {
	*world.World
	api    *world.Local
	proxy  *pgproxy.Proxy
	gate   *gate
	direct *world.Local // another server, which the proxy does not disturb
	beside *gate        // its gate
}

func newTill(t *testing.T) *till {
	t.Helper()
	b := &till{World: world.New(t), gate: &gate{stops: map[string]*stop{}}, beside: &gate{stops: map[string]*stop{}}}
	b.WatchHolders()
	var err error
	b.proxy, err = pgproxy.Start(b.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.proxy.Close()) })
	server := func(name, database string, gate *gate) *world.Local {
		o := world.LocalOptions{Name: name}
		o.Database = database
		o.Gateway = func(g payments.Gateway) payments.Gateway {
			gate.Gateway = g
			return gate
		}
		return b.Local(o)
	}
	b.api, b.direct = server("batches", b.proxy.URL(), b.gate), server("direct", b.URL, b.beside)
	t.Cleanup(b.gate.open)
	t.Cleanup(b.beside.open)
	return b
}

// gate is a gateway behind which payments stop: after the call that comes before a statement.
type gate struct {
	payments.Gateway
	mu    sync.Mutex
	stops map[string]*stop // by the statement's name
}

type stop struct {
	arrived atomic.Int64
	goOn    chan struct{}
	open    func() // closes goOn, once
}

// before stops payments before a statement, until it is opened.
func (g *gate) before(statement string) *stop {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &stop{goOn: make(chan struct{})}
	s.open = sync.OnceFunc(func() { close(s.goOn) })
	g.stops[statement] = s
	return s
}

// open opens it for good, so that no server waits for a test that has failed.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.stops {
		s.open()
	}
}

func (g *gate) pass(statement string) {
	g.mu.Lock()
	s := g.stops[statement]
	g.mu.Unlock()
	if s != nil {
		s.arrived.Add(1)
		<-s.goOn
	}
}

func (g *gate) Ready(ctx context.Context, tenantID string) (func(), error) {
	defer g.pass("PaymentBegin")
	return g.Gateway.Ready(ctx, tenantID)
}

func (g *gate) CreateIntent(ctx context.Context, c stripe.Call, i stripe.NewIntent) stripe.Outcome {
	defer g.pass("PaymentIntentRecord")
	return g.Gateway.CreateIntent(ctx, c, i)
}

func (g *gate) ConfirmIntent(ctx context.Context, c stripe.Call, id, method string) stripe.Outcome {
	defer g.pass("PaymentFinish")
	return g.Gateway.ConfirmIntent(ctx, c, id, method)
}

// GetIntent stops first: what it reads is what is true when its payment goes on.
func (g *gate) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	g.pass("PaymentFinish")
	return g.Gateway.GetIntent(ctx, tenantID, id)
}

// payment is one that a test has asked for.
type payment struct {
	key, order, card string
	answer           <-chan world.Answer
}

func (b *till) pay(key, order, card string) payment {
	return payment{key, order, card, world.Async(func() world.Answer { return b.api.Pay(key, order, card) })}
}

// gather has payments stop before a statement and calls meanwhile while they do. The function that it returns sends all
// of them as one batch.
func (b *till) gather(statement string, rows int, start, meanwhile func()) (send func()) {
	b.T.Helper()
	stopped := b.gate.before(statement)
	start()
	b.Until("all have come to "+statement, func() bool { return stopped.arrived.Load() == int64(rows) })
	meanwhile()
	return b.sendTogether(rows, stopped.open)
}

// sendTogether takes all lanes, calls start, and waits for so many rows. The function that it returns sends them.
func (b *till) sendTogether(rows int, start func()) (send func()) {
	b.T.Helper()
	b.Until("no lane is taken", func() bool { return b.api.Pool.Busy() == 0 })
	waiting, giveBack := b.api.Pool.TakeLanes()
	start()
	b.Until("all of them wait", func() bool { return waiting() == rows })
	return giveBack
}

// takeOver has the other server take over a payment, and stop before the statement.
func (b *till) takeOver(p payment, statement string) (release func(), answer <-chan world.Answer) {
	b.T.Helper()
	b.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms' WHERE key = $1`, p.key)
	stopped := b.beside.before(statement)
	answer = world.Async(func() world.Answer { return b.direct.Pay(p.key, p.order, p.card) })
	b.Until("another server has taken it over", func() bool { return stopped.arrived.Load() == 1 })
	return stopped.open, answer
}

// requireEnded checks the answer of a payment, and that Stripe and the database agree with it.
func (b *till) requireEnded(p payment, a world.Answer) {
	b.T.Helper()
	const own = "each got its own true result: %s"
	if p.card == declined {
		require.Equal(b.T, http.StatusPaymentRequired, a.Status, own, a)
		require.Equal(b.T, p.order, a.Get("payment", "order_id"))
		require.Zero(b.T, b.Sim.ChargeCount(p.order))
	} else {
		require.Equal(b.T, http.StatusCreated, a.Status, own, a)
		require.Equal(b.T, p.order, a.Get("order_id"))
		b.RequireChargedOnce(p.order)
	}
	require.Equal(b.T, a.Identity(), b.direct.Pay(p.key, p.order, p.card).Identity(), own, a)
}

// TestBatchInDoubt loses the COMMIT of a whole batch, once before the server has seen it and once after the server has
// executed it. Each member is in doubt, reads its own row back, and gets its own result: also the one for which the
// statement did nothing, because another server had paid its order or taken over its claim. That one harms no other
// either if nothing is lost.
func TestBatchInDoubt(t *testing.T) {
	t.Parallel()
	const rows = 8
	for _, statement := range []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
		for when, arm := range map[string]func(*pgproxy.Proxy, string, int) *pgproxy.Cut{
			"Before": (*pgproxy.Proxy).BeforeBatch, "After": (*pgproxy.Proxy).AfterBatch, "NotLost": nil,
		} {
			t.Run(statement+"/"+when, func(t *testing.T) {
				t.Parallel()
				b := newTill(t)
				var all []payment
				for i := range rows {
					all = append(all, payment{fmt.Sprint("k", i), b.api.Order(), []string{visa, declined}[i%4/3], nil})
				}
				overtaken, release := all[0], func() {}
				var winner <-chan world.Answer
				send := b.gather(statement, rows, func() {
					for i, p := range all {
						all[i] = b.pay(p.key, p.order, p.card)
					}
				}, func() {
					if statement == "PaymentBegin" {
						require.Equal(t, http.StatusCreated, b.direct.Pay("other", overtaken.order, visa).Status)
					} else {
						release, winner = b.takeOver(overtaken, statement)
					}
				})
				var cut *pgproxy.Cut
				if arm != nil {
					cut = arm(b.proxy, "name: "+statement+" ", rows)
				}
				b.proxy.Seen()
				send()
				answers := make([]world.Answer, rows)
				for i, p := range all {
					answers[i] = <-p.answer
				}
				doubts, seen := b.api.Metric("payonce_commits_in_doubt_total"), strings.Join(b.proxy.Seen(), " ")
				if cut == nil {
					require.Zero(t, doubts)
					require.LessOrEqual(t, strings.Count(seen, "name: "+statement+" "), 2, "one for all, and the order that was "+
						"paid is asked for again")
				} else {
					require.True(t, cut.HasFired())
					require.Equal(t, rows, cut.Rows())
					require.GreaterOrEqual(t, doubts, float64(rows), "not all were in doubt")
					require.LessOrEqual(t, doubts, float64(rows+1), "and one of them twice, if it had claimed nothing")
					reads := strings.Count(seen, "name: KeyRead ")
					require.Positive(t, reads)
					require.Less(t, reads, rows/2, "their rows are read together")
				}

				if statement == "PaymentBegin" {
					require.Equal(t, "order-already-paid", answers[0].Code(), answers[0])
					b.RequireChargedOnce(overtaken.order)
				} else {
					require.Equal(t, "idempotency-key-in-flight", answers[0].Code(),
						"each got its own true result, but for the one whose claim was taken over: %s", answers[0])
					release()
					b.requireEnded(overtaken, <-winner)
				}
				for i, p := range all[1:] {
					b.requireEnded(p, answers[i+1])
				}
				require.Equal(t, rows-1, b.Count(`SELECT count(*) FROM idempotency_keys
					WHERE key <> 'k0' AND key LIKE 'k%' AND attempts = 1`), "each has recognised its own claim")
			})
		}
	}
}

// TestPaymentThatEndsInABatch: another operation has ended a payment, which its statement finds. The others of its
// batch end as they would alone.
func TestPaymentThatEndsInABatch(t *testing.T) {
	t.Parallel()
	b := newTill(t)
	late := payment{key: "late", order: b.api.Order(), card: careful}
	waits := b.api.Pay(late.key, late.order, late.card)
	require.Equal(t, "requires_action", waits.Get("status"), waits)
	all := []payment{{key: "a", card: visa}, {key: "b", card: declined}, {key: "c", card: visa}, {key: "d", card: visa}}
	for i := range all {
		all[i].order = b.api.Order()
	}
	send := b.gather("PaymentFinish", len(all)+1, func() {
		late = b.pay(late.key, late.order, late.card)
		for i, p := range all {
			all[i] = b.pay(p.key, p.order, p.card)
		}
	}, func() {
		canceled := b.direct.Post("/v1/payments/"+waits.ID()+"/cancel", "cancel", "")
		require.Equal(t, http.StatusOK, canceled.Status, canceled)
	})
	b.proxy.Seen()
	send()
	for _, p := range all {
		b.requireEnded(p, <-p.answer)
	}
	answer := <-late.answer
	require.Equal(t, http.StatusPaymentRequired, answer.Status, answer)
	require.Equal(t, "canceled", answer.Get("payment", "status"))
	require.Equal(t, 1, strings.Count(strings.Join(b.proxy.Seen(), " "), "name: PaymentFinish "), "it was halved")
	require.Zero(t, b.Sim.ChargeCount(late.order))
	b.RequireSound()
}

// TestPaymentWhoseIntentWasUsed: before T1 another payment of the order has used the intent, and ended: the first of an
// order that had none, or one between the read of the order and T1. The order is read again, so that no creation is
// recorded as the first that was not, and none is sent with a key that Stripe has.
func TestPaymentWhoseIntentWasUsed(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct {
		first, then []string // the cards of payments before it, and meanwhile
		fails       bool     // the creation meanwhile: Stripe has stored an error for its key
		unseen      bool     // all of it happens between the statement's snapshot and its lock
	}{
		"Created":          {nil, []string{declined}, false, false},
		"CreatedUnseen":    {nil, []string{declined}, false, true},
		"CreatedAnother":   {nil, []string{declined}, true, false},
		"Closed":           {[]string{declined}, []string{careful}, false, false},
		"ClosedAndCreated": {[]string{declined}, []string{careful, declined}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTill(t)
			blind := &pgproxy.Rewriting{}
			if run.unseen {
				blind = b.proxy.Rewrite("name: PaymentBegin ", `(?s)OR p.intent_number > asked.*?intent_closed\)\)`, ")")
			}
			order := b.api.Order()
			pay := func(key, card string) {
				answer := b.direct.Pay(key, order, card)
				if card == careful { // canceled by the customer, so its intent is canceled
					require.Equal(t, "requires_action", answer.Get("status"), answer)
					answer = b.direct.Post("/v1/payments/"+answer.ID()+"/cancel", "cancel-"+key, "")
					require.Equal(t, http.StatusOK, answer.Status, answer)
					return
				}
				for answer.Status == http.StatusAccepted {
					b.ExpireLeases()
					b.direct.Complete()
					answer = b.direct.Pay(key, order, card)
				}
				require.Equal(t, http.StatusPaymentRequired, answer.Status, answer)
			}
			for i, card := range run.first {
				pay(fmt.Sprint("first-", i), card)
			}
			begins := b.gate.before("PaymentBegin")
			goOn, arrived := begins.open, func() bool { return begins.arrived.Load() == 1 }
			if run.first != nil {
				begins.open()
				release := make(chan struct{})
				read := b.proxy.Hold("name: OrderToPay ", release)
				goOn, arrived = func() { close(release) }, read.HasFired
			}
			late := b.pay("late", order, visa)
			b.Until("it is about to begin", arrived)
			if run.fails {
				b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError})
			}
			for i, card := range run.then {
				pay(fmt.Sprint("then-", i), card)
			}
			if name != "Closed" { // which makes another intent; the others have one, and would not survive another creation
				b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Drop})
			}
			goOn()
			require.Equal(t, http.StatusCreated, (<-late.answer).Status)
			require.Equal(t, 1, b.Sim.ChargeCount(order))
			require.Zero(t, b.Count(`SELECT count(*) FROM (SELECT FROM stripe_calls GROUP BY stripe_key HAVING count(*) > 1) t`))
			b.RequireSound()
			require.Equal(t, run.unseen, blind.Happened() > 0)
		})
	}
}

// TestRefusedPaymentsAmongHundreds: the database refuses some payments, each for itself. No other payment of their
// batches fails with them.
func TestRefusedPaymentsAmongHundreds(t *testing.T) {
	t.Parallel()
	const rows, every = 260, 37
	b := newTill(t)
	const poison = "pm_card_poison"
	b.Exec(`ALTER TABLE payments ADD CONSTRAINT not_poison CHECK (payment_method <> '` + poison + `')`)
	var all []payment
	for i := range rows {
		all = append(all, payment{key: fmt.Sprint("k", i), order: b.direct.Order(), card: visa})
		if i%every == 3 {
			all[i].card = poison
		}
	}
	b.gather("PaymentBegin", rows, func() {
		for i, p := range all {
			all[i] = b.pay(p.key, p.order, p.card)
		}
	}, func() {})()
	refused := 0
	for _, p := range all {
		answer := <-p.answer
		if p.card == poison {
			refused++
			require.Equal(t, http.StatusInternalServerError, answer.Status, answer)
			continue
		}
		require.Equal(t, http.StatusCreated, answer.Status, "a row that is refused fails no other: %s", answer)
		require.Equal(t, 1, b.Sim.ChargeCount(p.order))
	}
	require.Equal(t, 7, refused)
	require.Equal(t, rows-refused, b.Count(`SELECT count(*) FROM orders WHERE status = 'paid'`))
	require.Equal(t, rows-refused, b.Count(`SELECT count(*) FROM idempotency_keys
		WHERE key LIKE 'k%' AND recovery_point = 'finished'`), "a refused payment has claimed nothing")
	require.Equal(t, rows-refused, b.EffectsOf(stripesim.EffectCharge))
	require.Less(t, b.Count(`SELECT count(DISTINCT xmin::text) FROM outbox_events WHERE type = 'payment.created'`),
		rows/2, "they shared no commits, so nothing was shown")
	b.RequireSound()
}

// TestRoundTripsOfABatch: a payment waits for the server four times, and so does a batch of payments: once to look up
// their keys, and once for each of T1, T1b and T2, their commits included.
func TestRoundTripsOfABatch(t *testing.T) {
	t.Parallel()
	b := newTill(t)
	create := b.api.Payments.Operations()[payments.CreatePayment]
	requests := func(prefix string, n int) (list []idempotency.Request) {
		for i := range n {
			list = append(list, idempotency.Request{
				TenantID: b.Tenant.ID, Key: fmt.Sprint(prefix, i), Operation: payments.CreatePayment,
				Fingerprint: make([]byte, 32), RequestID: "req", Body: []byte(world.PayBody(b.direct.Order(), visa)),
			})
		}
		return list
	}
	// lockstep makes the payments, all of them together at each statement, and returns the round trips of each.
	lockstep := func(requests []idempotency.Request) (trips []int) {
		n := len(requests)
		var all sync.WaitGroup
		each := func(do func(i int)) {
			for i := range n {
				all.Go(func() { do(i) })
			}
		}
		warm := requests[0]
		warm.Key += "-unused"
		if _, err := b.api.Keys.Lookup(t.Context(), warm); err != nil { // a connection that rested is asked whether it lives
			t.Errorf("look-up: %v", err)
		}
		count := func() {
			b.Until("the batch is done", func() bool { return b.api.Pool.Busy() == 0 })
			trips = append(trips, b.proxy.RoundTrips())
		}
		b.proxy.RoundTrips()
		b.sendTogether(n, func() {
			each(func(i int) {
				if found, err := b.api.Keys.Lookup(t.Context(), requests[i]); err != nil || found.State != idempotency.Fresh {
					t.Errorf("look-up %d: %v %v", i, found.State, err)
				}
			})
		})()
		all.Wait()
		count()
		stops := map[string]*stop{}
		for _, statement := range []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
			stops[statement] = b.gate.before(statement)
		}
		each(func(i int) {
			claim, _, err := create.Begin(t.Context(), requests[i])
			if err != nil {
				t.Errorf("begin %d: %v", i, err)
				return
			}
			if answer, err := create.Run(t.Context(), claim); err != nil || answer.Status != http.StatusCreated {
				t.Errorf("run %d: %d %v", i, answer.Status, err)
			}
		})
		for _, statement := range []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
			b.Until("all have come to "+statement, func() bool { return stops[statement].arrived.Load() == int64(n) })
			b.sendTogether(n, stops[statement].open)()
			count()
		}
		all.Wait()
		return trips
	}
	lockstep(requests("prepares", 1)) // each statement is prepared on its connection
	for _, n := range []int{1, postgres.BatchRows} {
		var fewest []int
		// On a busy machine a connection may rest for a second between two statements, too.
		for try := range 5 {
			trips := lockstep(requests(fmt.Sprint("of", n, "try", try, "number"), n))
			if fewest == nil {
				fewest = trips
			}
			for i := range fewest {
				fewest[i] = min(fewest[i], trips[i])
			}
			if !slices.ContainsFunc(fewest, func(trips int) bool { return trips > 1 }) {
				break
			}
		}
		require.Equal(t, []int{1, 1, 1, 1}, fewest, "%d payments", n)
	}
	b.RequireSound()
}
