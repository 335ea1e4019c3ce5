package postgres_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
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
	direct *world.Local // another server, which the proxy does not disturb
	proxy  *pgproxy.Proxy
	gate   *gate
}

func newTill(t *testing.T) *till {
	t.Helper()
	b := &till{World: world.New(t), gate: &gate{stops: map[string]*stop{}}}
	var err error
	b.proxy, err = pgproxy.Start(b.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.proxy.Close()) })
	b.direct = b.Local(world.LongTimeouts("direct"))
	o := world.LongTimeouts("batches")
	o.Database = b.proxy.URL()
	o.Gateway = func(g payments.Gateway) payments.Gateway {
		b.gate.Gateway = g
		return b.gate
	}
	b.api = b.Local(o)
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
	open    chan struct{}
}

// before stops payments before a statement, until open is closed.
func (g *gate) before(statement string) *stop {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stops[statement] = &stop{open: make(chan struct{})}
	return g.stops[statement]
}

func (g *gate) pass(statement string) {
	g.mu.Lock()
	s := g.stops[statement]
	g.mu.Unlock()
	if s != nil {
		s.arrived.Add(1)
		<-s.open
	}
}

func (g *gate) Ready(ctx context.Context) error {
	defer g.pass("PaymentBegin")
	return g.Gateway.Ready(ctx)
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
func (g *gate) GetIntent(ctx context.Context, id string) (stripe.Intent, error) {
	g.pass("PaymentFinish")
	return g.Gateway.GetIntent(ctx, id)
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
	return b.sendTogether(rows, func() { close(stopped.open) })
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

// takeOver has the other server take over a payment, and stand still before it has decided anything.
func (b *till) takeOver(p payment, at string) (release func(), answer <-chan world.Answer) {
	b.T.Helper()
	b.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms' WHERE key = $1`, p.key)
	held := b.Sim.Hold(stripesim.Selector{Op: at, OrderID: p.order}, stripesim.BeforeEffect)
	answer = world.Async(func() world.Answer { return b.direct.Pay(p.key, p.order, p.card) })
	world.WaitHeld(b.World, held)
	return held.Release, answer
}

// requireEnded checks the answer of a payment, and that Stripe and the database agree with it.
func (b *till) requireEnded(p payment, a world.Answer) {
	b.T.Helper()
	if p.card == declined {
		require.Equal(b.T, http.StatusPaymentRequired, a.Status, a)
		require.Equal(b.T, p.order, a.Get("payment", "order_id"))
		require.Zero(b.T, b.Sim.ChargeCount(p.order))
	} else {
		require.Equal(b.T, http.StatusCreated, a.Status, a)
		require.Equal(b.T, p.order, a.Get("order_id"))
		b.RequireChargedOnce(p.order)
	}
	require.Equal(b.T, a.Identity(), b.direct.Pay(p.key, p.order, p.card).Identity(), "each got its own true result")
}

// TestBatchInDoubt loses the COMMIT of a whole batch, once before the server has seen it and once after the server has
// executed it. Each member is in doubt, reads its own row back, and gets its own result: also the one for which the
// statement did nothing, because another server had paid its order or taken over its claim.
func TestBatchInDoubt(t *testing.T) {
	t.Parallel()
	const rows = 8
	for _, statement := range []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
		for when, arm := range map[string]func(*pgproxy.Proxy, string, int) *pgproxy.Cut{
			"Before": (*pgproxy.Proxy).BeforeBatch, "After": (*pgproxy.Proxy).AfterBatch,
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
					switch statement {
					case "PaymentBegin":
						require.Equal(t, http.StatusCreated, b.direct.Pay("other", overtaken.order, visa).Status)
					case "PaymentIntentRecord":
						release, winner = b.takeOver(overtaken, "intent.confirm")
					default:
						release, winner = b.takeOver(overtaken, "intent.get")
					}
				})
				cut := arm(b.proxy, "name: "+statement+" ", rows)
				b.proxy.Seen()
				send()
				answers := make([]world.Answer, rows)
				for i, p := range all {
					answers[i] = <-p.answer
				}
				require.True(t, cut.HasFired())
				require.Equal(t, rows, cut.Rows())

				doubts := b.api.Metric("payonce_commits_in_doubt_total")
				require.GreaterOrEqual(t, doubts, float64(rows), "not all were in doubt")
				require.LessOrEqual(t, doubts, float64(rows+1), "and one of them twice, if it had claimed nothing")
				reads := strings.Count(strings.Join(b.proxy.Seen(), " "), "name: KeyRead ")
				require.Positive(t, reads)
				require.Less(t, reads, rows/2, "their rows are read together")

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
