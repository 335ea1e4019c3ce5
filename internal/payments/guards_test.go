package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A test that cannot fail proves nothing. Here each guard is taken away, one at
// a time, and the same scene that passes on the sound service must be found
// wanting by the same judge, for the promise that the guard keeps.
//
// Some guards stand behind one another: without the unique key, the order's row
// lock and two unique indexes would still stop a second payment. So each scene is
// one that its guard alone decides.

// guard is something that can be taken away.
type guard struct {
	name    string
	promise string // what then breaks
	// away takes it from the database, from the statements on their way there,
	// or from the gateway.
	away struct {
		sql     []string
		rewrite []rewrite
		gateway func(payments.Gateway) payments.Gateway
	}
	scene func(w *world.World, a, b *world.Local) (disagreements []string)
}

// rewrite takes a part out of a statement. Parameters stay in it, so that their
// types are known.
type rewrite struct{ statement, part, with string }

func guards() []guard {
	uniqueKey := guard{name: "one row per key", promise: world.OneRowPerKey, scene: duplicateOrders}
	uniqueKey.away.sql = []string{`ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey`}
	uniqueKey.away.rewrite = []rewrite{{"INSERT INTO idempotency_keys", `ON CONFLICT \(tenant_id, key\) DO NOTHING`,
		""}}

	uniquePayment := guard{name: "one payment per key", promise: world.OnePaymentPerKey, scene: duplicatePayments}
	unguarded := []string{`DROP INDEX one_live_payment_per_order`, `DROP TRIGGER intent_is_created_once ON payments`}
	uniquePayment.away.sql = slices.Concat([]string{`ALTER TABLE payments DROP CONSTRAINT one_payment_per_key`}, unguarded,
		uniqueKey.away.sql)
	live := rewrite{"name: PaymentBegin ", `(?s)AND NOT EXISTS \(\s+SELECT FROM payments p\s.*?OFFSET 0\)`, ""}
	uniquePayment.away.rewrite = append([]rewrite{live}, uniqueKey.away.rewrite...)

	fence := guard{name: "the fence of T2", promise: world.OnlyHoldersWrite, scene: staleHolder}
	fence.away.rewrite = []rewrite{{"name: PaymentFinish ", `k\.lease_token = (\w+\.lease_token)`, "$1 IS NOT NULL"}}

	stripeKey := guard{name: "the key that Stripe is given", promise: world.ChargedUnderCallersKey, scene: lostAnswers}
	stripeKey.away.gateway = func(g payments.Gateway) payments.Gateway { return &keyless{Gateway: g} }

	intentKey := guard{name: "the key of the intent's creation", promise: world.OneIntentPerNumber, scene: lostAnswers}
	intentKey.away.gateway = stripeKey.away.gateway

	orderIndex := guard{name: "one live payment per order", promise: world.OnePaymentPerOrder, scene: manyKeys}
	orderIndex.away.sql = unguarded
	orderIndex.away.rewrite = []rewrite{live}
	return []guard{uniqueKey, uniquePayment, fence, stripeKey, intentKey, orderIndex}
}

func TestEachGuardHasAFailingTest(t *testing.T) {
	t.Parallel()
	for _, g := range guards() {
		for _, sound := range []bool{true, false} {
			name := g.name + "/Sound"
			if !sound {
				name = g.name + "/TakenAway"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, first, second := underGuard(t, g, sound)
				broken := slices.Concat(g.scene(w, first, second), w.Violations())
				if sound {
					require.Empty(t, broken)
					return
				}
				found := func(b string) bool { return strings.HasPrefix(b, g.promise+":") }
				require.True(t, slices.ContainsFunc(broken, found),
					"the promise %q was broken and nobody noticed; what was: %q", g.promise, broken)
			})
		}
	}
}

// underGuard is two servers with a guard, or without.
func underGuard(t *testing.T, g guard, sound bool) (w *world.World, first, second *world.Local) {
	t.Helper()
	w = world.New(t)
	w.WatchHolders()
	proxy, err := pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	a, b := world.LocalOptions{Name: "first"}, world.LocalOptions{Name: "second"}
	a.Database, b.Database = proxy.URL(), proxy.URL()
	if !sound {
		for _, sql := range g.away.sql {
			w.Exec(sql)
		}
		for _, r := range g.away.rewrite {
			taken := proxy.Rewrite(r.statement, r.part, r.with)
			t.Cleanup(func() { require.Positive(t, taken.Happened(), "%s has no such part any more", r.statement) })
		}
		a.Gateway, b.Gateway = g.away.gateway, g.away.gateway
	}
	first, second = w.Local(a), w.Local(b)
	return w, first, second
}

// keyless gives every attempt a Stripe key of its own.
type keyless struct {
	payments.Gateway
	attempts atomic.Int64
}

func (k *keyless) fresh(c stripe.Call) stripe.Call {
	c.Key = fmt.Sprintf("%s:%d", c.Key, k.attempts.Add(1))
	return c
}

func (k *keyless) CreateIntent(ctx context.Context, c stripe.Call, n stripe.NewIntent) stripe.Outcome {
	return k.Gateway.CreateIntent(ctx, k.fresh(c), n)
}

func (k *keyless) ConfirmIntent(ctx context.Context, c stripe.Call, intent, method string) stripe.Outcome {
	return k.Gateway.ConfirmIntent(ctx, k.fresh(c), intent, method)
}

// duplicateOrders asks for one order many times at once. An order has no row that
// could be locked before it exists, so its key is all that holds.
func duplicateOrders(w *world.World, a, b *world.Local) []string {
	return world.Disagreements(crowd(w, 8, func(i int) world.Answer {
		return []*world.Local{a, b}[i%2].Post("/v1/orders", "k",
			`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}],"customer_reference":"one"}`)
	}, `LOCK TABLE idempotency_keys IN SHARE MODE`))
}

// duplicatePayments asks for one payment many times at once.
func duplicatePayments(w *world.World, a, b *world.Local) []string {
	order := a.Order()
	return world.Disagreements(crowd(w, 8,
		func(i int) world.Answer { return []*world.Local{a, b}[i%2].Pay("k", order, visa) },
		`SELECT FROM orders WHERE id = $1 FOR UPDATE`, order))
}

// crowd sends requests at once, so that all of them have found their key unused
// before the first of them claims it, and all of them have tried to claim it before
// any has finished. Who gets a 503, because the lock was not to be had in time, asks again.
func crowd(w *world.World, n int, send func(i int) world.Answer, lock string, args ...any) (answers []world.Answer) {
	working := w.Sim.Hold(stripesim.Selector{Op: "intent.create"}, stripesim.BeforeEffect)
	w.WhileLocked(n, func() {
		all := world.Async(func() []world.Answer {
			return world.Together(n, func(i int) (a world.Answer) {
				end := time.Now().Add(world.Patience)
				for a = send(i); a.Status == http.StatusServiceUnavailable && time.Now().Before(end); a = send(i) {
				}
				return a
			})
		})
		calm := 0 // one look may fall between two waits
		w.Until("everybody has tried", func() bool {
			if calm++; w.WaitingForLocks() > 0 || w.Count(`SELECT count(*) FROM idempotency_keys WHERE key ~ '^k'`) == 0 {
				calm = 0
			}
			return calm > 5
		})
		working.Release()
		answers = <-all
	}, lock, args...)
	return answers
}

// staleHolder is a holder that wakes up while its successor is at work.
func staleHolder(w *world.World, a, b *world.Local) []string {
	o := overtake(w, a, b, false)
	return world.Disagreements([]world.Answer{o.firstAnswer, o.secondAnswer})
}

// lostAnswers is a payment during which Stripe's answers are lost.
func lostAnswers(w *world.World, a, _ *world.Local) []string {
	order := a.Order()
	for _, op := range []string{"intent.create", "intent.confirm"} {
		w.Sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.Drop})
	}
	a.PayUntilFinal("k", order, visa)
	return nil
}

// manyKeys pays one order under many keys at once.
func manyKeys(w *world.World, a, b *world.Local) (broken []string) {
	order := a.Order()
	answers := crowd(w, 8, func(i int) world.Answer {
		return []*world.Local{a, b}[i%2].Pay(fmt.Sprint("k", i), order,
			visa)
	},
		`SELECT FROM orders WHERE id = $1 FOR UPDATE`, order)
	paid := 0
	for _, answer := range answers {
		if answer.Status == http.StatusCreated {
			paid++
		}
	}
	if paid != 1 {
		broken = append(broken, fmt.Sprintf("%d payments of one order succeeded", paid))
	}
	return broken
}
