package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/internal/broker"
	"example.com/payonce/proof/internal/prometheus"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// TestObserve has a real Prometheus watch two real processes of the API while
// they work and while everything around them fails. Unit tests of the rules cannot
// see whether the service exports what the rules read. In the end every rule has been
// evaluated on series that exist, every query of every panel has returned numbers, and
// the alerts named below fired when something was broken and resolved when it was
// repaired.
//
// It takes about two minutes, most of which is waiting.
func TestObserve(t *testing.T) {
	o := startObserved(t)
	o.workUntilSeen()
	o.play("callers, rows and a database", o.forgedWebhooks(), o.forgedMessages(), o.reusedKeys(), o.retryStorm(), o.brokenSchema(),
		o.parkedByHand(), o.openTransaction(), o.databaseAway())
	o.play("Stripe and the broker", o.stripeAway(), o.brokerAway())
	o.play("a process and money", o.frozenProcess(), o.unmatchedCharge(), o.authorizations(), o.dispute())
	o.requireSeen()
}

// observed is the system under watch.
type observed struct {
	*world.World
	t       *testing.T
	prom    *prometheus.Prometheus
	a, b    *world.Process // b reaches the database through the proxy
	proxy   *pgproxy.Proxy
	broker  broker.Broker
	dir     string // the broker's
	addr    string
	stripe  *client.API // another user of our Stripe key
	repeats atomic.Bool // clients send everything many times
}

func startObserved(t *testing.T) *observed {
	t.Helper()
	findPrometheus(t)
	addr, err := port.Loopback(t.Context())
	require.NoError(t, err)
	o := &observed{t: t, dir: t.TempDir(), addr: addr.String(), World: world.New(t)}
	o.startBroker()
	t.Cleanup(func() { _ = o.broker.Close() })
	proxy, err := pgproxy.Start(o.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	o.proxy = proxy
	o.Exec("UPDATE retention_floor SET answers = '0'")
	// Responses are deleted soon, so that there is something to reap.
	common := []string{"BROKER_URL=nats://" + o.addr, "NOTIFY_PRIVATE_ADDRESSES=true", "IDEMPOTENCY_RETENTION=20s"}
	o.a = o.Process(world.ShortTimes(common...)...)
	// b has the time to be in the middle of many payments at once, on any machine.
	o.b = o.Process(append(common, "DATABASE_URL="+proxy.URL(), "STRIPE_TIMEOUT=5s", "IDEMPOTENCY_LEASE=16s")...)
	o.prom = startPrometheus(t, strings.TrimPrefix(o.a.Admin, "http://"), strings.TrimPrefix(o.b.Admin, "http://"))
	_, err = o.Sim.AddWebhookEndpoint(stripesim.DefaultKey, o.a.Base+"/v1/webhooks/stripe", world.WebhookSecret)
	require.NoError(t, err)
	t.Cleanup(o.explain)
	tenants := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(tenants.Close)
	out, err := o.Command([]string{"tenant", "notify", o.Tenant.ID, tenants.URL},
		"NOTIFY_PRIVATE_ADDRESSES=true").CombinedOutput()
	require.NoError(t, err, string(out))
	o.stripe = client.New(stripesim.DefaultKey, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(o.StripeURL), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{},
	}))
	o.traffic()
	return o
}

// explain logs what helps to find the cause of a red run.
func (o *observed) explain() {
	if !o.t.Failed() {
		return
	}
	o.t.Log(o.Text(`SELECT string_agg(concat_ws(' ', key, recovery_point, attempts, leased_until, next_attempt_at,
		history::text, last_error), E'\n')
		FROM (SELECT * FROM idempotency_keys WHERE finished_at IS NULL OR key LIKE 'frozen-%'
		ORDER BY created_at DESC LIMIT 40) k`))
	for name, p := range map[string]*world.Process{"a": o.a, "b": o.b} {
		lines := strings.Split(p.Log(), "\n")
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"msg":"request"`) })
		o.t.Logf("the last that %s logged:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

func (o *observed) startBroker() {
	o.t.Helper()
	var failed error
	o.wait("the broker listens at its old address again", func() (bool, error) {
		o.broker, failed = broker.Open(context.Background(), "embedded:"+o.dir+"?listen="+o.addr,
			broker.Options{Log: slog.New(slog.DiscardHandler)})
		return failed == nil, failed
	})
}

// traffic is a day at a shop, until the test ends, and a load balancer that asks
// b whether it is ready. Their responses are not checked here.
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
		o.a.Post("/v1/checkouts", key+"-declined",
			strings.TrimSuffix(basket, "}")+`,"payment_method":"pm_card_chargeDeclined"}`)
	case 2, 3:
		o.a.Post("/v1/payments/"+paid.ID()+"/refunds", key+"-refund", `{"amount":100}`)
	case 4:
		if n%20 == 4 { // Some customers click twice.
			o.a.Pay(key, order, method)
		}
	}
}

// workUntilSeen returns when Prometheus has seen the service work for a while,
// because a spike is measured by what was before it, and when nothing is wrong.
// While a machine is busy starting everything, something may be.
func (o *observed) workUntilSeen() {
	o.t.Helper()
	o.wait("both processes are scraped and payments are seen", func() (bool, error) {
		up, err := o.prom.Points(o.t.Context(), `sum(up{job="payonce"}) == 2`)
		if err != nil {
			return false, err
		}
		seen, err := o.prom.Points(o.t.Context(),
			`avg_over_time(operation:payonce_duplicates:rate5m{operation="create_order"}[10s] offset 10s)`)
		return up > 10 && seen > 0, err
	})
	o.wait("no alert fires while nothing is broken", func() (bool, error) {
		firing, err := o.prom.Firing(o.t.Context())
		return err == nil && len(firing) == 0, errors.Join(err, named(firing))
	})
}

// act is a failure, the alerts that must fire, and the repair. A short failure is
// repeated until its alerts have fired: a late scrape must not decide the test.
type act struct {
	alerts []string
	breaks func()
	goesOn func() // again and again until all of its alerts have fired; nil: it stays broken by itself
	repair func()
	tends  func() // again and again until they are gone; nil: it stays repaired
}

// within is how long anything here may take. It is no measure of the service, which is
// usually much faster.
const within = 4 * time.Minute

// play breaks things, all at once, waits until every alert has fired, repairs them
// and waits until none does. What Prometheus has recorded counts, so an alert that
// came and went while we looked elsewhere was seen; and none of them fires before.
func (o *observed) play(what string, acts ...act) {
	o.t.Helper()
	var expected []string
	for _, a := range acts {
		expected = append(expected, a.alerts...)
	}
	left := func() (firing map[string]bool, err error) {
		all, err := o.prom.Firing(o.t.Context())
		firing = map[string]bool{}
		for _, name := range expected {
			if all[name] {
				firing[name] = true
			}
		}
		return firing, err
	}
	o.wait("nothing fires that is about to be broken: "+what, func() (bool, error) {
		firing, err := left()
		return err == nil && len(firing) == 0, errors.Join(err, named(firing))
	}, expected...)

	fired, gone := map[string]time.Duration{}, map[string]time.Duration{}
	defer func() { o.t.Logf("%s: fired after %v, gone after %v", what, fired, gone) }()
	began := time.Now()
	for _, a := range acts {
		a.breaks()
	}
	o.wait("all alerts have fired: "+what, func() (bool, error) {
		for _, a := range acts {
			if a.goesOn != nil && slices.ContainsFunc(a.alerts, func(name string) bool { return fired[name] == 0 }) {
				a.goesOn()
			}
		}
		firings, err := o.prom.Firings(o.t.Context())
		for _, f := range firings {
			if slices.Contains(expected, f.Alert) && f.Until.After(began) && fired[f.Alert] == 0 {
				fired[f.Alert] = max(time.Second, f.From.Sub(began).Round(time.Second))
			}
		}
		missing := map[string]bool{}
		for _, name := range expected {
			if fired[name] == 0 {
				missing[name] = true
			}
		}
		return err == nil && len(missing) == 0, errors.Join(err, named(missing))
	}, expected...)

	began = time.Now()
	for _, a := range acts {
		a.repair()
	}
	o.wait("no alert fires any more: "+what, func() (bool, error) {
		firing, err := left()
		for _, a := range acts {
			for _, name := range a.alerts {
				if err == nil && !firing[name] && gone[name] == 0 {
					gone[name] = max(time.Second, time.Since(began).Round(time.Second))
				}
			}
			if a.tends != nil && slices.ContainsFunc(a.alerts, func(name string) bool { return gone[name] == 0 }) {
				a.tends()
			}
		}
		return len(gone) == len(expected), errors.Join(err, named(firing))
	}, expected...)
}

// named are alerts as the reason why a wait goes on.
func named(alerts map[string]bool) error {
	if len(alerts) == 0 {
		return nil
	}
	return errors.New(strings.Join(slices.Sorted(maps.Keys(alerts)), ", "))
}

// wait waits for a condition. If it does not come, it says why, and what
// Prometheus has to say of the alerts.
func (o *observed) wait(what string, holds func() (bool, error), alerts ...string) {
	o.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(500 * time.Millisecond) {
		held, why := holds()
		if held {
			return
		}
		if time.Now().After(end) {
			for _, name := range alerts {
				if why == nil || strings.Contains(why.Error(), name) {
					o.t.Log(o.prom.Explain(context.Background(), name))
				}
			}
			require.FailNow(o.t, "timed out", "waiting until %s: %v", what, why)
		}
	}
}

func nothing() {}

func (o *observed) forgedWebhooks() act {
	forge := func() {
		for range 6 {
			require.Equal(o.t, http.StatusBadRequest,
				o.a.Do("POST", "/v1/webhooks/stripe", `{"id":"evt_forged"}`, "Stripe-Signature: t=1,v1=00",
					"Authorization: -").Status)
		}
	}
	// While payments are made and no webhook of Stripe's own arrives, which is how a wrong secret shows.
	pays := func() {
		forge()
		order := o.a.Order()
		o.a.Pay("forged "+order, order, "pm_card_visa")
	}
	return act{
		alerts: []string{"PayonceWebhookSignatureFailures"},
		breaks: func() {
			o.Sim.InjectWebhook(stripesim.WebhookFault{Kind: stripesim.WebhookDrop, Times: -1})
			pays()
		},
		goesOn: pays, repair: o.Sim.ClearWebhookFaults,
	}
}

// forgedMessages are those of somebody who can publish to the broker.
func (o *observed) forgedMessages() act {
	times := 0
	forge := func() {
		times++
		conn, err := nats.Connect("nats://" + o.addr)
		require.NoError(o.t, err)
		defer conn.Close()
		require.NoError(o.t, conn.Publish("payonce.ten_none.payment.succeeded", []byte(fmt.Sprintf("forged %d", times))))
		require.NoError(o.t, conn.Flush())
	}
	return act{alerts: []string{"PayonceForgedMessages"}, breaks: forge, goesOn: forge, repair: nothing}
}

func (o *observed) reusedKeys() act {
	times := 0
	reuse := func() {
		times++
		key := fmt.Sprintf("reused-%d", times)
		require.Equal(o.t, http.StatusCreated, o.a.Post("/v1/orders", key, basket).Status)
		for n := range 10 {
			a := o.a.Post("/v1/orders", key,
				fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":%d,"unit_amount":500}]}`, 3+n))
			require.Equal(o.t, http.StatusUnprocessableEntity, a.Status, a)
		}
	}
	return act{alerts: []string{"PayonceKeyMismatches"}, breaks: reuse, goesOn: reuse, repair: nothing}
}

// retryStorm comes in waves: a spike is one only as long as there is calm to
// compare it with.
func (o *observed) retryStorm() act {
	const wave, calm = 40 * time.Second, 80 * time.Second
	var began time.Time
	return act{
		alerts: []string{"PayonceDuplicatesSpike", "PayonceDuplicateRateHigh"},
		breaks: func() { began = time.Now(); o.repeats.Store(true) },
		goesOn: func() { o.repeats.Store(time.Since(began)%(wave+calm) < wave) },
		repair: func() { o.repeats.Store(false) },
	}
}

// brokenSchema is a migration that was run by hand. The keys are measured without this table.
func (o *observed) brokenSchema() act {
	ask := func() {
		require.Equal(o.t, http.StatusInternalServerError, o.a.Get("/v1/disputes/dsp_00000000000000000000000000").Status)
	}
	return act{
		alerts: []string{"PayonceInternalErrors"},
		breaks: func() { o.Exec("ALTER TABLE disputes RENAME TO disputes_old"); ask() },
		goesOn: ask,
		repair: func() { o.Exec("ALTER TABLE disputes_old RENAME TO disputes") },
	}
}

// parkedByHand stands for what only weeks of failures park. The repair is that of
// docs/operations.md.
func (o *observed) parkedByHand() act {
	key := "parked"
	return act{
		alerts: []string{"PayonceKeysParked", "PayonceOutboxParked", "PayonceInboxParked", "PayonceDeliveriesFailed"},
		breaks: func() {
			require.Equal(o.t, http.StatusAccepted, o.a.Pay(key, o.a.Order(), "pm_card_threeDSecure2Required").Status)
			// The payment's webhook makes the key due, parked or not, and the process that claims it then releases it
			// as not parked. So both come first.
			o.Until("its webhook is applied", func() bool {
				return o.Count(`SELECT count(*) FROM inbox_events i JOIN payments p ON p.intent_id = i.object_id
					WHERE p.idempotency_key = $1 AND i.type = 'payment_intent.requires_action' AND i.status = 'done'`,
					key) == 1
			})
			o.Until("no process works on it", func() bool {
				return o.Count(`SELECT count(*) FROM idempotency_keys WHERE key = $1 AND leased_until < clock_timestamp()
					AND next_attempt_at > clock_timestamp() + interval '5 s'`, key) == 1
			})
			o.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE tenant_id = $1 AND key = $2`,
				o.Tenant.ID, key)
			o.Exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, parked_at)
				VALUES ($1, 'ord_parked', 1, 'order.created', '{}', clock_timestamp())`, o.Tenant.ID)
			o.Exec(`INSERT INTO inbox_events (consumer, event_id, status, type, tenant_id, payload, parked_at)
				VALUES ('notifier', 'ord_parked-2', 'parked', 'order.created', $1, '{}', clock_timestamp())`,
				o.Tenant.ID)
			o.Exec(`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, status, body, ended_at)
				VALUES ($1, 'whd_parked', (SELECT id FROM webhook_endpoints WHERE tenant_id = $1 LIMIT 1), 'ord_parked-3',
					'order.created', 'failed', '{}', clock_timestamp())`, o.Tenant.ID)
		},
		repair: func() {
			o.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp(), parked_at = NULL WHERE tenant_id = $1
				AND key = $2`, o.Tenant.ID, key)
			o.Exec(`UPDATE outbox_events SET parked_at = NULL, attempts = 0, next_attempt_at = '-infinity'
				WHERE tenant_id = $1 AND aggregate_id = 'ord_parked' AND parked_at IS NOT NULL`, o.Tenant.ID)
			o.Exec(`UPDATE inbox_events SET status = 'pending', parked_at = NULL, attempts = 0, leased_until = ` +
				`'-infinity' WHERE consumer = 'notifier' AND event_id = 'ord_parked-2' AND status = 'parked'`)
			o.Exec(`UPDATE webhook_deliveries
				SET status = 'pending', attempts = 0, ended_at = NULL, leased_until = '-infinity' WHERE tenant_id = $1
				AND status = 'failed' AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE tenant_id = $1 AND disabled_at IS NULL)`,
				o.Tenant.ID)
		},
	}
}

// openTransaction is a psql session that locked a key and was left open: vacuum can
// remove nothing, and no completer can claim the key.
func (o *observed) openTransaction() act {
	var conn *pgx.Conn
	return act{
		alerts: []string{"PayonceOldTransaction", "PayonceKeysOverdue"},
		breaks: func() {
			ctx := context.Background()
			order := o.a.Order()
			o.Sim.Inject(stripesim.Fault{OrderID: order, Kind: stripesim.Reset, Times: -1})
			require.Equal(o.t, http.StatusAccepted, o.a.Pay("locked", order, "pm_card_visa").Status)
			var err error
			conn, err = pgx.Connect(ctx, o.URL)
			require.NoError(o.t, err)
			o.t.Cleanup(func() { _ = conn.Close(ctx) })
			o.wait("the key is locked while no process has claimed it", func() (bool, error) {
				tx, err := conn.Begin(ctx)
				require.NoError(o.t, err)
				var free bool
				require.NoError(o.t,
					tx.QueryRow(ctx,
						`SELECT leased_until < clock_timestamp() AND finished_at IS NULL FROM idempotency_keys WHERE tenant_id = $1
							AND key = 'locked' FOR UPDATE`, o.Tenant.ID).Scan(&free))
				if !free {
					require.NoError(o.t, tx.Rollback(ctx))
				}
				return free, nil
			})
		},
		repair: func() {
			o.Sim.ClearFaults()
			require.NoError(o.t, conn.Close(context.Background()))
		},
	}
}

func (o *observed) databaseAway() act {
	return act{
		alerts: []string{"PayonceDatabaseUnavailable"},
		breaks: func() { o.proxy.Away(true) }, repair: func() { o.proxy.Away(false) },
	}
}

// stripeAway loses the answers to one confirm and one capture, and then everything.
func (o *observed) stripeAway() act {
	return act{
		alerts: []string{
			"PayonceUnknownOutcomeOld", "PayonceCaptureInDoubt", "PayonceStripeUnknownOutcomes",
			"PayonceStripeCircuitBreakerOpen",
		},
		breaks: func() {
			held := o.a.Order()
			authorized := o.a.Authorize("held", held, "pm_card_visa")
			require.Equal(o.t, http.StatusCreated, authorized.Status)
			var orders []string
			for range 60 {
				orders = append(orders, o.a.Order())
			}
			o.Sim.Inject(stripesim.Fault{OrderID: orders[0], Kind: stripesim.Drop, Skip: 1, Times: -1})
			require.Equal(o.t, http.StatusAccepted, o.a.Pay("unknown", orders[0], "pm_card_visa").Status)
			o.Sim.Inject(stripesim.Fault{OrderID: held, Kind: stripesim.Drop, Times: -1})
			require.Equal(o.t, http.StatusAccepted, o.a.Capture("doubt", authorized.ID(), 0).Status)
			o.Sim.Inject(stripesim.Fault{Kind: stripesim.Reset, Times: -1})
			world.Together(len(orders)-1,
				func(n int) int { return o.a.Pay(fmt.Sprintf("away-%d", n), orders[n+1], "pm_card_visa").Status })
		},
		repair: o.Sim.ClearFaults,
	}
}

func (o *observed) brokerAway() act {
	return act{
		alerts: []string{"PayonceOutboxLag"},
		breaks: func() {
			require.NoError(o.t, o.broker.Close())
			o.a.Order()
		},
		repair: o.startBroker,
	}
}

// frozenProcess stops b in the middle of some payments, for longer than its
// leases last; what is left of them is ended by hand, so that the takeovers come
// together. The other process finishes them; when b wakes up it is too late.
func (o *observed) frozenProcess() act {
	const payments = 24 // more than ten takeovers within the alert's time raise it
	return act{
		alerts: []string{"PayonceDown", "PayonceLeaseTakeovers", "PayonceFencedWrites"},
		breaks: func() {
			hold := o.Sim.Hold(stripesim.Selector{Op: "intent.confirm", Key: "frozen"}, stripesim.AfterEffect)
			var orders []string
			for range payments {
				orders = append(orders, o.a.Order())
			}
			for n, order := range orders {
				go o.b.Pay(fmt.Sprintf("frozen-%d", n), order, "pm_card_visa") // the response is not needed
			}
			o.Until("the payments are at Stripe", func() bool { return len(hold.Waiting()) == payments })
			o.b.Freeze()
			o.Until("b is stopped", o.b.Frozen)
			hold.Release()
			o.Exec(`UPDATE idempotency_keys
				SET leased_until = clock_timestamp() - interval '1 ms', next_attempt_at = clock_timestamp() - interval '1 ms'
				WHERE key LIKE 'frozen-%' AND finished_at IS NULL`)
			o.wait("the other process has finished them", func() (bool, error) { // the keys' responses are deleted soon
				return o.Count(`SELECT count(*) FROM payments WHERE idempotency_key LIKE 'frozen-%'
					AND status = 'succeeded'`) == payments, nil
			})
			o.wait("PayonceDown fires for b", func() (bool, error) {
				firing, err := o.prom.Firing(o.t.Context())
				return firing["PayonceDown"], err
			}, "PayonceDown")
			o.b.Thaw()
		},
		repair: nothing,
	}
}

// unmatchedCharge is a charge that was made with our Stripe key by another program, for
// an order that does not exist here.
func (o *observed) unmatchedCharge() act {
	var intent *stripe.PaymentIntent
	reconcile := func() { o.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'") }
	return act{
		alerts: []string{"PayonceMoneyDrift", "PayonceDiscrepanciesOpen"},
		breaks: func() {
			var err error
			intent, err = o.stripe.PaymentIntents.New(&stripe.PaymentIntentParams{
				Metadata: map[string]string{"tenant_id": o.Tenant.ID, "order_id": "ord_0000000000000000000000gone"},
				Amount:   stripe.Int64(1000), Currency: stripe.String("usd"),
				PaymentMethodTypes: stripe.StringSlice([]string{"card"}), PaymentMethod: stripe.String("pm_card_visa"),
				Confirm: stripe.Bool(true),
			})
			require.NoError(o.t, err)
			reconcile()
		},
		goesOn: reconcile, // one that was under way has looked before
		tends:  reconcile,
		repair: func() {
			_, err := o.stripe.Refunds.New(&stripe.RefundParams{PaymentIntent: &intent.ID})
			require.NoError(o.t, err)
			reconcile()
		},
	}
}

// authorizations are one that expires in an hour, and one that the network has dropped. The second is forgotten after a
// day, which a test cannot wait for.
func (o *observed) authorizations() act {
	authorize := func(key string) (payment, intent string) {
		a := o.a.Authorize(key, o.a.Order(), "pm_card_visa")
		require.Equal(o.t, http.StatusCreated, a.Status)
		return a.ID(), a.Get("stripe", "payment_intent").(string)
	}
	var expiring, dropped string
	return act{
		alerts: []string{"PayonceAuthorizationExpiring", "PayonceAuthorizationsExpired"},
		breaks: func() {
			var intent string
			expiring, _ = authorize("expiring")
			o.Exec(`UPDATE payments SET capture_before = clock_timestamp() + interval '1 hour' WHERE id = $1`, expiring)
			dropped, intent = authorize("dropped")
			require.NoError(o.t, o.Sim.LapseAuthorization(intent, ""))
			require.Equal(o.t, http.StatusPaymentRequired, o.a.Capture("too-late", dropped, 0).Status)
		},
		repair: func() {
			require.Equal(o.t, http.StatusOK, o.a.Capture("in-time", expiring, 0).Status)
			o.Exec(`UPDATE payments SET updated_at = clock_timestamp() - interval '2 days' WHERE id = $1`, dropped)
		},
	}
}

// dispute is one whose evidence is due in an hour. The bank's deadline is a week away, so the row is changed, and again
// whenever the service has read it at Stripe.
func (o *observed) dispute() act {
	var id string
	due := func() {
		o.Exec(`UPDATE disputes SET evidence_due_by = clock_timestamp() + interval '1 hour', version = version + 1
			WHERE stripe_dispute_id = $1 AND evidence_due_by > clock_timestamp() + interval '1 day'`, id)
	}
	return act{
		alerts: []string{"PayonceDisputesNeedResponse", "PayonceDisputeDueSoon", "PayonceDisputeDueNow"},
		breaks: func() {
			paid := o.a.Pay("disputed", o.a.Order(), "pm_card_visa")
			require.Equal(o.t, http.StatusCreated, paid.Status)
			var err error
			id, err = o.Sim.OpenDispute(paid.Get("stripe", "charge").(string), "fraudulent", false)
			require.NoError(o.t, err)
			o.wait("the dispute is recorded", func() (bool, error) {
				return o.Count(`SELECT count(*) FROM disputes WHERE stripe_dispute_id = $1`, id) == 1, nil
			})
			due()
		},
		goesOn: due,
		repair: func() {
			_, err := o.stripe.Disputes.Close(id, nil)
			require.NoError(o.t, err)
		},
	}
}

// requireSeen holds every rule and every query of every panel to what Prometheus
// has of it.
func (o *observed) requireSeen() {
	o.t.Helper()
	var seen prometheus.Seen
	o.wait("every rule and every panel has had numbers", func() (bool, error) {
		var err error
		seen, err = o.prom.Seen(o.t.Context())
		return err == nil && len(seen.Blind) == 0, errors.Join(err, errors.New(strings.Join(seen.Blind, "\n")))
	})
	require.Greater(o.t, seen.Queries, 40)
	o.t.Logf("%d rules and %d queries of panels returned data", seen.Rules, seen.Queries)
}
