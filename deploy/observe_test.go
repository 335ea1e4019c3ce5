package deploy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/db/pgproxy"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/observer"
	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// TestObserve has a real Prometheus watch two real processes of the API while
// they work and while everything that can go wrong around them does. It is what
// the unit tests of the rules cannot see: whether the service says what the rules
// listen for. In the end every rule has been evaluated on series that exist,
// every query of every panel has returned numbers, and the alerts named below
// have fired when something was broken and gone when it was mended.
//
// It takes about two minutes, most of which is waiting.
func TestObserve(t *testing.T) {
	o := startObserved(t)
	o.workUntilSeen()
	o.play("callers, rows and a database", o.forgedWebhooks(), o.reusedKeys(), o.retryStorm(), o.brokenSchema(), o.parkedByHand(), o.forgottenTransaction(), o.databaseAway())
	o.play("Stripe and the broker", o.stripeAway(), o.brokerAway())
	o.play("a process and money", o.frozenProcess(), o.ghostCharge())
	o.requireSeen()
}

// observed is the system under watch.
type observed struct {
	*testbed.World
	t       *testing.T
	prom    *observer.Prometheus
	a, b    *testbed.Process // b reaches the database through the proxy
	proxy   *pgproxy.Proxy
	broker  broker.Broker
	dir     string // the broker's
	addr    string
	stripe  *client.API // somebody else who has our Stripe key
	repeats atomic.Bool // clients send everything many times
}

func startObserved(t *testing.T) *observed {
	t.Helper()
	adminA, adminB := freeAddr(t), freeAddr(t)
	o := &observed{t: t, prom: startPrometheus(t, adminA, adminB), dir: t.TempDir(), addr: freeAddr(t), World: testbed.New(t)}
	o.startBroker()
	t.Cleanup(func() { _ = o.broker.Close() })
	proxy, err := pgproxy.Start(o.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	o.proxy = proxy
	// Answers are forgotten soon, so that there is something to reap.
	common := []string{"BROKER_URL=nats://" + o.addr, "NOTIFY_PRIVATE_ADDRESSES=true", "IDEMPOTENCY_RETENTION=20s"}
	o.a = o.Process(append(common, "ADMIN_ADDR="+adminA)...)
	o.b = o.Process(append(common, "ADMIN_ADDR="+adminB, "DATABASE_URL="+proxy.URL())...)
	_, err = o.Sim.AddWebhookEndpoint(stripesim.DefaultKey, o.a.Base+"/v1/webhooks/stripe", testbed.WebhookSecret)
	require.NoError(t, err)
	t.Cleanup(o.explain)
	tenants := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(tenants.Close)
	out, err := o.Command([]string{"tenant", "notify", o.Tenant.ID, tenants.URL}).CombinedOutput()
	require.NoError(t, err, string(out))
	o.stripe = client.New(stripesim.DefaultKey, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(o.StripeURL), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false), LeveledLogger: &stripe.LeveledLogger{},
	}))
	o.traffic()
	return o
}

// explain is for whoever looks into a red run.
func (o *observed) explain() {
	if !o.t.Failed() {
		return
	}
	o.t.Log(o.Text(`SELECT string_agg(concat_ws(' ', key, recovery_point, attempts, leased_until, resume_at, trail::text, last_error), E'\n')
		FROM (SELECT * FROM idempotency_keys WHERE finished_at IS NULL OR key LIKE 'frozen-%' ORDER BY created_at DESC LIMIT 40) k`))
	for name, p := range map[string]*testbed.Process{"a": o.a, "b": o.b} {
		lines := strings.Split(p.Log(), "\n")
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"msg":"request"`) })
		o.t.Logf("the last that %s logged:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

func (o *observed) startBroker() {
	o.t.Helper()
	b, err := broker.Open(context.Background(), "embedded:"+o.dir+"?listen="+o.addr, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(o.t, err)
	o.broker = b
}

// traffic is a day at a shop, until the test ends, and a load balancer that asks
// b whether it is ready. What they are answered is not judged here.
func (o *observed) traffic() {
	var running sync.WaitGroup
	stop := make(chan struct{})
	repeat := func(every time.Duration, f func(n int)) {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(every):
					f(n)
				}
			}
		})
	}
	repeat(100*time.Millisecond, o.shop)
	repeat(250*time.Millisecond, func(int) {
		o.b.Get("/readyz")
		o.b.Get("/v1/orders?limit=1")
	})
	repeat(20*time.Millisecond, func(int) {
		if o.repeats.Load() {
			o.a.Post("/v1/orders", "repeated", basket)
		}
	})
	o.t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
}

const basket = `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`

func (o *observed) shop(n int) {
	key := fmt.Sprintf("shop-%d", n)
	order := o.a.Post("/v1/orders", key+"-order", basket).ID()
	method := "pm_card_visa"
	if n%10 == 9 {
		method = "pm_card_chargeDeclined"
	}
	paid := o.a.Pay(key, order, method)
	switch n % 10 {
	case 0:
		o.a.Do("PUT", "/v1/stock/tea", `{"available":1000}`)
		o.a.Post("/v1/checkouts", key+"-checkout", strings.TrimSuffix(basket, "}")+`,"payment_method":"pm_card_visa"}`)
	case 1:
		o.a.Post("/v1/checkouts", key+"-declined", strings.TrimSuffix(basket, "}")+`,"payment_method":"pm_card_chargeDeclined"}`)
	case 2, 3:
		o.a.Post("/v1/payments/"+paid.ID()+"/refunds", key+"-refund", `{"amount":100}`)
	case 4:
		if n%20 == 4 { // Somebody always clicks twice.
			o.a.Pay(key, order, method)
		}
	}
}

// workUntilSeen returns when Prometheus has seen the service work for a while:
// a spike is measured by what was before it.
func (o *observed) workUntilSeen() {
	o.t.Helper()
	eventually(o.t, 40*time.Second, "both processes are scraped and payments are seen", func() bool {
		up, err := o.prom.Points(o.t.Context(), `sum(up{job="payonce"}) == 2`)
		require.NoError(o.t, err)
		seen, err := o.prom.Points(o.t.Context(), `avg_over_time(operation:payonce_duplicates:rate5m{operation="create_order"}[10s] offset 10s)`)
		require.NoError(o.t, err)
		return up > 10 && seen > 0
	})
	firing := o.firing()
	require.Empty(o.t, firing, "nothing is wrong yet")
}

// act is something that goes wrong, which alerts must say so, and what mends it.
type act struct {
	alerts []string
	breaks func()
	mends  func()
}

const (
	noticedWithin  = 50 * time.Second // gauges are read every ten seconds or so
	forgivenWithin = 50 * time.Second
)

// play breaks things, all at once, waits until every alert fires, mends them and
// waits until none does.
func (o *observed) play(what string, acts ...act) {
	o.t.Helper()
	began, fired, gone := time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
	var expected []string
	for _, a := range acts {
		expected = append(expected, a.alerts...)
		a.breaks()
	}
	defer func() { o.t.Logf("%s: fired after %v, gone after %v", what, fired, gone) }()
	note := func(into map[string]time.Duration, firing bool) func() bool {
		return func() bool {
			now := o.firing()
			for _, name := range expected {
				if _, known := into[name]; !known && now[name] == firing {
					into[name] = time.Since(began).Round(time.Second)
				}
			}
			return len(into) == len(expected)
		}
	}
	eventually(o.t, noticedWithin, "all of "+strings.Join(expected, ", ")+" fire", note(fired, true))
	began = time.Now()
	for _, a := range acts {
		a.mends()
	}
	eventually(o.t, forgivenWithin, "none of "+strings.Join(expected, ", ")+" fires any more", note(gone, false))
}

func nothing() {}

func (o *observed) forgedWebhooks() act {
	return act{alerts: []string{"PayonceWebhookSignatures"}, mends: nothing, breaks: func() {
		for range 6 {
			require.Equal(o.t, http.StatusBadRequest, o.a.Do("POST", "/v1/webhooks/stripe", `{"id":"evt_forged"}`, "Stripe-Signature: t=1,v1=00", "Authorization: -").Status)
		}
	}}
}

func (o *observed) reusedKeys() act {
	return act{alerts: []string{"PayonceKeyMismatches"}, mends: nothing, breaks: func() {
		require.Equal(o.t, http.StatusCreated, o.a.Post("/v1/orders", "reused", basket).Status)
		for n := range 10 {
			a := o.a.Post("/v1/orders", "reused", fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":%d,"unit_amount":500}]}`, 3+n))
			require.Equal(o.t, http.StatusUnprocessableEntity, a.Status, a)
		}
	}}
}

func (o *observed) retryStorm() act {
	return act{
		alerts: []string{"PayonceDuplicatesSpike", "PayonceDuplicateRateHigh"},
		breaks: func() { o.repeats.Store(true) }, mends: func() { o.repeats.Store(false) },
	}
}

// brokenSchema is a migration that somebody ran by hand.
func (o *observed) brokenSchema() act {
	return act{
		alerts: []string{"PayonceInternalErrors"},
		breaks: func() {
			o.Exec("ALTER TABLE refunds RENAME TO refunds_old")
			require.Equal(o.t, http.StatusInternalServerError, o.a.Get("/v1/refunds/rfd_00000000000000000000000000").Status)
		},
		mends: func() { o.Exec("ALTER TABLE refunds_old RENAME TO refunds") },
	}
}

// parkedByHand stands for what only weeks of failures park. Mended as
// docs/operations.md says.
func (o *observed) parkedByHand() act {
	key := "parked"
	return act{
		alerts: []string{"PayonceKeysParked", "PayonceOutboxParked", "PayonceInboxParked", "PayonceNotifierGaveUp"},
		breaks: func() {
			require.Equal(o.t, http.StatusAccepted, o.a.Pay(key, o.a.Order(), "pm_card_threeDSecure2Required").Status)
			// The webhook about it hurries the key along, parked or not; so that comes first.
			o.Until("its webhook is applied", func() bool {
				return o.Count(`SELECT count(*) FROM inbox_events i JOIN payments p ON p.intent_id = i.object_id
					WHERE p.idempotency_key = $1 AND i.type = 'payment_intent.requires_action' AND i.status = 'done'`, key) == 1
			})
			o.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE tenant_id = $1 AND key = $2`, o.Tenant.ID, key)
			o.Exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, parked_at) VALUES ($1, 'ord_parked', 1, 'order.created', '{}', clock_timestamp())`, o.Tenant.ID)
			o.Exec(`INSERT INTO inbox_events (consumer, event_id, status, type, tenant_id, payload, parked_at)
				VALUES ('notifier', 'ord_parked-2', 'parked', 'order.created', $1, '{}', clock_timestamp())`, o.Tenant.ID)
			o.Exec(`INSERT INTO webhook_deliveries (tenant_id, event_id, status, body, ended_at) VALUES ($1, 'ord_parked-3', 'failed', '{}', clock_timestamp())`, o.Tenant.ID)
		},
		mends: func() {
			o.Exec(`UPDATE idempotency_keys SET resume_at = clock_timestamp(), parked_at = NULL WHERE tenant_id = $1 AND key = $2`, o.Tenant.ID, key)
			o.Exec(`UPDATE outbox_events SET parked_at = NULL, attempts = 0, leased_until = '-infinity' WHERE tenant_id = $1 AND aggregate_id = 'ord_parked' AND parked_at IS NOT NULL`, o.Tenant.ID)
			o.Exec(`UPDATE inbox_events SET status = 'pending', parked_at = NULL, attempts = 0, leased_until = '-infinity' WHERE consumer = 'notifier' AND event_id = 'ord_parked-2' AND status = 'parked'`)
			o.Exec(`UPDATE webhook_deliveries SET status = 'pending', attempts = 0, ended_at = NULL, leased_until = '-infinity' WHERE tenant_id = $1 AND status = 'failed'`, o.Tenant.ID)
		},
	}
}

// forgottenTransaction is a psql in which somebody looked at a key with a lock
// and went to lunch: vacuum can do nothing, and no completer gets at the key.
func (o *observed) forgottenTransaction() act {
	var conn *pgx.Conn
	return act{
		alerts: []string{"PayonceOldTransaction", "PayonceKeysOverdue"},
		breaks: func() {
			ctx := context.Background()
			order := o.a.Order()
			o.Sim.Inject(stripesim.Fault{OrderID: order, Kind: stripesim.Reset, Times: 20})
			require.Equal(o.t, http.StatusAccepted, o.a.Pay("locked", order, "pm_card_visa").Status)
			var err error
			conn, err = pgx.Connect(ctx, o.URL)
			require.NoError(o.t, err)
			o.t.Cleanup(func() { _ = conn.Close(ctx) })
			eventually(o.t, 20*time.Second, "the key is locked while nobody has it", func() bool {
				tx, err := conn.Begin(ctx)
				require.NoError(o.t, err)
				var free bool
				require.NoError(o.t, tx.QueryRow(ctx, `SELECT leased_until < clock_timestamp() AND finished_at IS NULL FROM idempotency_keys WHERE tenant_id = $1 AND key = 'locked' FOR UPDATE`, o.Tenant.ID).Scan(&free))
				if !free {
					require.NoError(o.t, tx.Rollback(ctx))
				}
				return free
			})
		},
		mends: func() { require.NoError(o.t, conn.Close(context.Background())) },
	}
}

func (o *observed) databaseAway() act {
	return act{
		alerts: []string{"PayonceStoreFailures"},
		breaks: func() { o.proxy.Away(true) }, mends: func() { o.proxy.Away(false) },
	}
}

// stripeAway loses the answer to one confirm, and then everything.
func (o *observed) stripeAway() act {
	return act{
		alerts: []string{"PayonceUnknownOld", "PayonceStripeUnknownOutcomes", "PayonceBreakerOpen"},
		breaks: func() {
			var orders []string
			for range 60 {
				orders = append(orders, o.a.Order())
			}
			o.Sim.Inject(stripesim.Fault{OrderID: orders[0], Kind: stripesim.Drop, Skip: 1, Times: -1})
			require.Equal(o.t, http.StatusAccepted, o.a.Pay("unknown", orders[0], "pm_card_visa").Status)
			o.Sim.Inject(stripesim.Fault{Kind: stripesim.Reset, Times: -1})
			testbed.Together(len(orders)-1, func(n int) int { return o.a.Pay(fmt.Sprintf("away-%d", n), orders[n+1], "pm_card_visa").Status })
		},
		mends: o.Sim.ClearFaults,
	}
}

func (o *observed) brokerAway() act {
	return act{
		alerts: []string{"PayonceOutboxLag"},
		breaks: func() {
			require.NoError(o.t, o.broker.Close())
			o.a.Order()
		},
		mends: o.startBroker,
	}
}

// frozenProcess stops b in the middle of some payments, for longer than its
// leases last. The other finishes them; when b wakes up it is too late.
func (o *observed) frozenProcess() act {
	const payments = 14 // more than ten takeovers raise the alert
	return act{
		alerts: []string{"PayonceDown", "PayonceLeaseSteals", "PayonceFencedWrites"},
		breaks: func() {
			hold := o.Sim.Hold(stripesim.Selector{Op: "intent.confirm", Key: "frozen"}, stripesim.AfterEffect)
			var orders []string
			for range payments {
				orders = append(orders, o.a.Order())
			}
			for n, order := range orders {
				go o.b.Pay(fmt.Sprintf("frozen-%d", n), order, "pm_card_visa") // nobody waits for the answer
			}
			o.Until("the payments are at Stripe", func() bool { return len(hold.Waiting()) == payments })
			o.b.Freeze()
			o.Until("b stands still", o.b.Frozen)
			hold.Release()
			eventually(o.t, 30*time.Second, "the other process has finished them", func() bool {
				return o.Count(`SELECT count(*) FROM idempotency_keys WHERE key LIKE 'frozen-%' AND finished_at IS NOT NULL`) == payments
			})
			eventually(o.t, 10*time.Second, "b is missed", func() bool { return o.firing()["PayonceDown"] })
			o.b.Thaw()
		},
		mends: nothing,
	}
}

// ghostCharge is money that somebody took with our Stripe key, in the name of an
// order that we do not have.
func (o *observed) ghostCharge() act {
	var intent *stripe.PaymentIntent
	reconcile := func() { o.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'") }
	return act{
		alerts: []string{"PayonceMoneyDrift", "PayonceFindingsOpen"},
		breaks: func() {
			var err error
			intent, err = o.stripe.PaymentIntents.New(&stripe.PaymentIntentParams{
				Metadata: map[string]string{"tenant_id": o.Tenant.ID, "order_id": "ord_0000000000000000000000gone"}, Amount: stripe.Int64(1000), Currency: stripe.String("usd"),
				PaymentMethodTypes: stripe.StringSlice([]string{"card"}), PaymentMethod: stripe.String("pm_card_visa"), Confirm: stripe.Bool(true),
			})
			require.NoError(o.t, err)
			reconcile()
		},
		mends: func() {
			_, err := o.stripe.Refunds.New(&stripe.RefundParams{PaymentIntent: &intent.ID})
			require.NoError(o.t, err)
			reconcile()
		},
	}
}

// firing are the alerts that fire now.
func (o *observed) firing() map[string]bool {
	o.t.Helper()
	names, err := o.prom.Firing(o.t.Context())
	require.NoError(o.t, err)
	return names
}

// requireSeen holds every rule and every query of every panel to what Prometheus
// has of it.
func (o *observed) requireSeen() {
	o.t.Helper()
	seen, err := o.prom.Seen(o.t.Context())
	require.NoError(o.t, err)
	require.Empty(o.t, seen.Blind)
	require.Greater(o.t, seen.Queries, 40)
	o.t.Logf("%d rules and %d queries of panels returned data", seen.Rules, seen.Queries)
}
