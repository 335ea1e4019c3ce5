package stripe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
)

// counter lets requests to Stripe pass and remembers them.
type counter struct {
	next http.Handler
	mu   sync.Mutex
	keys []string // of POSTs
	gets atomic.Int64
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.mu.Lock()
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		c.mu.Unlock()
	} else {
		c.gets.Add(1)
	}
	c.next.ServeHTTP(w, r)
}

// take returns the keys of the POSTs since it was asked last.
func (c *counter) take() (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, c.keys = c.keys, nil
	return keys
}

type gatewayBench struct {
	t       *testing.T
	sim     *stripesim.Sim
	seen    *counter
	gateway *stripe.Client
	hasty   *stripe.Client // with gatewayTimeout, for what does not answer in time
	log     *logs.Buffer
	orders  int
}

const gatewayTimeout = time.Second // long enough for a busy machine to send a request

func setupGateway(t *testing.T) *gatewayBench {
	t.Helper()
	t.Parallel()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	b := &gatewayBench{t: t, sim: sim, seen: &counter{next: sim.Handler()}, log: &logs.Buffer{}}
	server := httptest.NewServer(b.seen)
	t.Cleanup(func() {
		require.NoError(t, sim.Close())
		server.CloseClientConnections()
		server.Close()
	})
	b.gateway = newGateway(server.URL, b.log, time.Minute)
	b.hasty = newGateway(server.URL, b.log, gatewayTimeout)
	return b
}

func newGateway(url string, log *logs.Buffer, timeout time.Duration) *stripe.Client {
	return stripe.New(stripe.Options{
		SecretKey: stripesim.DefaultKey, BaseURL: url, Timeout: timeout, Limits: stripe.NewLimits(0, nil),
		Metrics: stripe.NewMetrics(nil),
		Log:     log.Logger(slog.LevelDebug),
	})
}

// intent makes one that waits to be confirmed.
func (b *gatewayBench) intent() string {
	b.t.Helper()
	b.orders++
	order := "ord_" + strings.Repeat("x", b.orders)
	out := b.gateway.CreateIntent(b.t.Context(), stripe.Call{Key: "create:" + order},
		stripe.NewIntent{TenantID: "ten_a", OrderID: order, AmountMinor: 1000, Currency: "usd"})
	require.Equal(b.t, stripe.Done, out.Effect, out.Err)
	require.Equal(b.t, []string{"create:" + order}, b.seen.take())
	return out.Intent.ID
}

// TestGateway drives every failure through a socket: what the classification is
// told is what a connection really says when it is reset, cut, slow or lied on.
// Each is one attempt and one request, whatever the library or net/http would
// have liked to do about it.
func TestGateway(t *testing.T) {
	type fault = stripesim.Fault
	const slow = 3 * gatewayTimeout
	for _, c := range []struct {
		name           string
		fault          fault
		first, inDoubt stripe.Effect
		frozen         bool
	}{
		{"the connection is reset", fault{Kind: stripesim.Reset}, stripe.Unknown, stripe.Unknown, false},
		{"nobody answers", fault{Kind: stripesim.BlackHole}, stripe.Unknown, stripe.Unknown, false},
		{"the key is refused", fault{Kind: stripesim.Unauthorized}, stripe.NotExecuted, stripe.Unknown, false},
		{"the account is refused", fault{Kind: stripesim.Refuse, Status: 403, Code: "account_invalid"},
			stripe.NotExecuted, stripe.Unknown, false},
		{"too many requests", fault{Kind: stripesim.RateLimited}, stripe.NotExecuted, stripe.Unknown, false},
		{"the object is locked", fault{Kind: stripesim.LockTimeout}, stripe.NotExecuted, stripe.Unknown, false},
		{"the key is in use", fault{Kind: stripesim.InUse}, stripe.Unknown, stripe.Unknown, false},
		{"a conflict", fault{Kind: stripesim.Refuse, Status: 409, Code: "conflict"}, stripe.NotExecuted, stripe.Unknown,
			false},
		{"a parameter is refused", fault{Kind: stripesim.Refuse, Status: 400, Code: "parameter_invalid_empty"},
			stripe.Refused, stripe.Conflict, false},
		{"the object is gone", fault{Kind: stripesim.Refuse, Status: 404, Code: "resource_missing"}, stripe.Refused,
			stripe.Conflict, false},
		{"a dependency failed", fault{Kind: stripesim.StoredError, Status: 424}, stripe.Unknown, stripe.Unknown, true},
		{"an outage", fault{Kind: stripesim.Refuse, Status: 503}, stripe.Unknown, stripe.Unknown, false},
		{"a proxy's outage", fault{Kind: stripesim.Refuse, Status: 502, HTML: true}, stripe.Unknown, stripe.Unknown,
			false},
		{"a proxy's refusal", fault{Kind: stripesim.Refuse, Status: 403, HTML: true}, stripe.Unknown, stripe.Unknown,
			false},
		{"an error that asks for a retry", fault{Kind: stripesim.RetryError}, stripe.Unknown, stripe.Unknown, false},
		{"an error, frozen", fault{Kind: stripesim.StoredError}, stripe.Unknown, stripe.Unknown, true},
		{"done, and an error is frozen", fault{Kind: stripesim.EffectStoredError}, stripe.Unknown, stripe.Unknown,
			true},
		{"done, and the connection closed", fault{Kind: stripesim.Drop}, stripe.Unknown, stripe.Unknown, false},
		{"done, and answered too late", fault{Kind: stripesim.Delay, Delay: slow}, stripe.Unknown, stripe.Unknown,
			false},
		{"done too late", fault{Kind: stripesim.DelayBefore, Delay: slow}, stripe.Unknown, stripe.Unknown, false},
		{"done, and half an answer in time", fault{Kind: stripesim.SlowBody, Delay: slow}, stripe.Unknown,
			stripe.Unknown, false},
		{"done, and the answer is cut", fault{Kind: stripesim.Cut, Bytes: 300}, stripe.Unknown, stripe.Unknown, false},
		{"done, and the answer is cut to nothing", fault{Kind: stripesim.Cut}, stripe.Unknown, stripe.Unknown, false},
		{"done, and a gateway in between failed", fault{Kind: stripesim.EffectError}, stripe.Unknown, stripe.Unknown,
			false},
		{"done, and a gateway in between says so in HTML", fault{Kind: stripesim.EffectError, HTML: true},
			stripe.Unknown, stripe.Unknown, false},
		{"done, and the answer is not JSON", fault{Kind: stripesim.InvalidJSON}, stripe.Unknown, stripe.Unknown, false},
		{"done, and the answer knows more than we do", fault{Kind: stripesim.UnknownFields}, stripe.Done, stripe.Done,
			false},
		{"done, in a state that we do not know", fault{Kind: stripesim.UnknownEnum}, stripe.Done, stripe.Done, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setupGateway(t)
			c.fault.Op = "intent.confirm"
			for _, inDoubt := range []bool{false, true} {
				intent := b.intent()
				id := b.sim.Inject(c.fault)
				gateway := b.gateway
				if c.fault.Delay > 0 || c.fault.Kind == stripesim.BlackHole {
					gateway = b.hasty
				}
				began := time.Now()
				out := gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "confirm:" + intent, InDoubt: inDoubt},
					intent, "pm_card_visa")
				require.Equal(t, 1, b.sim.FaultsFired()[id], "the fault did not happen")
				require.Equal(t, []string{"confirm:" + intent}, b.seen.take(),
					"one attempt is one request, under the key it was given")
				require.Less(t, time.Since(began), time.Minute, "an attempt has a deadline of its own")
				want := map[bool]stripe.Effect{false: c.first, true: c.inDoubt}[inDoubt]
				require.Equal(t, want.String(), out.Effect.String(), "in doubt: %v; %+v", inDoubt, out)
				require.Equal(t, c.frozen, out.ErrorCached)
				require.Equal(t, want == stripe.Done, out.Err == nil)
				require.NotContains(t, b.log.String(), "_secret_")
				if out.Err != nil {
					require.NotContains(t, out.Err.Error(), "_secret_")
				}
			}
		})
	}

	t.Run("a success is repeated under its key", func(t *testing.T) {
		b := setupGateway(t)
		intent := b.intent()
		first := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, intent, "pm_card_visa")
		again := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, intent, "pm_card_visa")
		require.Equal(t, stripe.Done, first.Effect)
		require.False(t, first.Replayed)
		require.Equal(t, stripe.Done, again.Effect)
		require.True(t, again.Replayed)
		require.Equal(t, first.Intent, again.Intent)
		require.Equal(t, stripe.IntentSucceeded, first.Intent.Status)
		require.NotEmpty(t, first.Intent.ChargeID)
		require.NotEmpty(t, first.RequestID)

		other := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "another"}, intent, "pm_card_visa")
		require.Equal(t, stripe.Conflict, other.Effect, "it succeeded already: our own success, seen from outside")
		collision := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, intent, "pm_card_mastercard")
		require.Equal(t, stripe.Refused, collision.Effect)
		require.Equal(t, "idempotency_error", collision.ErrorCode)
	})

	t.Run("a decline is a decline, also for who did not hear it", func(t *testing.T) {
		b := setupGateway(t)
		intent := b.intent()
		for range 2 {
			out := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, intent,
				"pm_card_chargeDeclinedInsufficientFunds")
			require.Equal(t, stripe.Refused, out.Effect)
			require.True(t, out.Declined)
			require.Equal(t, "card_declined", out.Failure.Code)
			require.Equal(t, "insufficient_funds", out.Failure.DeclineCode)
			require.NotContains(t, b.log.String()+out.Err.Error(), "_secret_", "a decline carries the whole intent")
		}
	})

	t.Run("a payment method that does not exist is refused, and not by the issuer", func(t *testing.T) {
		b := setupGateway(t)
		out := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, b.intent(), "pm_nope")
		require.Equal(t, stripe.Refused, out.Effect)
		require.False(t, out.Declined)
		require.Equal(t, "resource_missing", out.Failure.Code)
	})

	t.Run("a customer who must act is not a failure", func(t *testing.T) {
		b := setupGateway(t)
		out := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, b.intent(), "pm_card_threeDSecure2Required")
		require.Equal(t, stripe.Done, out.Effect)
		require.Equal(t, stripe.IntentRequiresAction, out.Intent.Status)
		require.Contains(t, string(out.Intent.NextAction), "client_secret")
	})

	// net/http takes a POST with an Idempotency-Key for one that it may repeat
	// when a connection that served before turns out to be dead.
	for _, kind := range []string{stripesim.ReusedReset, stripesim.ReusedDrop} {
		for name, op := range map[string]string{"with parameters": "intent.confirm", "without": "intent.cancel"} {
			t.Run(kind+" of a request "+name+" sends nothing twice", func(t *testing.T) {
				b := setupGateway(t)
				intent := b.intent() // and by it a connection that is kept
				id := b.sim.Inject(stripesim.Fault{Op: op, Kind: kind})
				var out stripe.Outcome
				if op == "intent.confirm" {
					out = b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, intent, "pm_card_visa")
				} else {
					out = b.gateway.CancelIntent(t.Context(), stripe.Call{Key: "k"}, intent)
				}
				require.Equal(t, 1, b.sim.FaultsFired()[id], "no connection was reused, so nothing was shown")
				require.Equal(t, []string{"k"}, b.seen.take())
				require.Equal(t, stripe.Unknown, out.Effect)
			})
		}
	}

	t.Run("without a connection nothing was sent", func(t *testing.T) {
		t.Parallel()
		nobody := "http://127.0.0.1:1" // A port that was free a moment ago may be another test's server by now.
		plain := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(plain.Close)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, try := range map[string]struct {
			ctx context.Context
			url string
		}{
			"dial refused":          {t.Context(), nobody},
			"no such host":          {t.Context(), "http://stripe.invalid"},
			"TLS handshake fails":   {t.Context(), strings.Replace(plain.URL, "http:", "https:", 1)},
			"time is up beforehand": {ended, plain.URL},
		} {
			g := newGateway(try.url, &logs.Buffer{}, gatewayTimeout)
			require.Equal(t, stripe.NotExecuted,
				g.ConfirmIntent(try.ctx, stripe.Call{Key: "k"}, "pi_1", "pm_card_visa").Effect, name)
			require.Equal(t, stripe.Unknown,
				g.ConfirmIntent(try.ctx, stripe.Call{Key: "k", InDoubt: true}, "pi_1", "pm_card_visa").Effect, name)
		}
	})

	t.Run("a redirect is not followed", func(t *testing.T) {
		t.Parallel()
		seen := &counter{next: http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect)}
		server := httptest.NewServer(seen)
		t.Cleanup(server.Close)
		out := newGateway(server.URL, &logs.Buffer{}, time.Minute).ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, "pi_1",
			"pm_card_visa")
		require.Equal(t, stripe.Unknown, out.Effect)
		require.Equal(t, []string{"k"}, seen.take())
	})

	t.Run("every call says how long its body is", func(t *testing.T) {
		b := setupGateway(t)
		sim, lengths := b.seen.next, make(chan int64, 2)
		b.seen.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lengths <- r.ContentLength // -1 when it comes in chunks
			sim.ServeHTTP(w, r)
		})
		intent := b.intent()
		require.Positive(t, <-lengths)
		require.Equal(t, stripe.Done, b.gateway.CancelIntent(t.Context(), stripe.Call{Key: "k"}, intent).Effect)
		require.Zero(t, <-lengths)
		require.Equal(t, []string{"k"}, b.seen.take())
	})

	// A proxy that mixes answers up, a cache, a bug: what says that it succeeded is
	// not what was to succeed.
	t.Run("another object is no answer", func(t *testing.T) {
		b := setupGateway(t)
		intent := b.intent()
		paid := b.gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "paid"}, b.intent(), "pm_card_visa").Intent
		const theirs = `{"id":"%s","object":"payment_intent","status":"succeeded","amount":1000,` +
			`"amount_received":1000,"currency":"usd","latest_charge":"ch_1","metadata":{"tenant_id":"ten_a",` +
			`"order_id":"ord_other"}}`
		for name, body := range map[string]string{
			"nothing":          `{}`,
			"a charge":         `{"id":"ch_1","object":"charge","status":"succeeded","amount":1000,"currency":"usd"}`,
			"another's intent": fmt.Sprintf(theirs, paid.ID),
			"a refund": `{"id":"re_1","object":"refund","status":"succeeded","amount":400,"currency":"usd",` +
				`"metadata":{"refund_id":"rfd_other"}}`,
			"more of a refund": `{"id":"re_1","object":"refund","status":"succeeded","amount":500,"currency":"usd",` +
				`"metadata":{"refund_id":"rfd_a"}}`,
			"an id and no more": `{"id":"x"}`,
		} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}))
			t.Cleanup(server.Close)
			g, call := newGateway(server.URL, &logs.Buffer{}, time.Minute), stripe.Call{Key: "k"}
			for op, out := range map[string]stripe.Outcome{
				"create": g.CreateIntent(t.Context(), call,
					stripe.NewIntent{TenantID: "ten_a", OrderID: "ord_a", AmountMinor: 1000, Currency: "usd"}),
				"confirm": g.ConfirmIntent(t.Context(), call, intent, "pm_card_visa"),
				"cancel":  g.CancelIntent(t.Context(), call, intent),
				"refund": g.CreateRefund(t.Context(), call,
					stripe.NewRefund{TenantID: "ten_a", OrderID: "ord_a", PaymentID: "pay_a", RefundID: "rfd_a",
						IntentID: intent, AmountMinor: 400}),
			} {
				require.Equal(t, stripe.Unknown.String(), out.Effect.String(), "%s answered with %s", op, name)
				require.Error(t, out.Err)
				require.Empty(t, out.Intent, "%s answered with %s", op, name)
				require.Empty(t, out.Refund, "%s answered with %s", op, name)
			}
			_, err := g.GetIntent(t.Context(), stripe.NoTenant, intent)
			require.Error(t, err, name)
			require.NotErrorIs(t, err, stripe.ErrNoSuchObject)
		}
	})

	t.Run("a call without a key is not made", func(t *testing.T) {
		b := setupGateway(t)
		require.Panics(t, func() { b.gateway.ConfirmIntent(t.Context(), stripe.Call{}, "pi_1", "pm_card_visa") })
		require.Empty(t, b.seen.take())
	})

	t.Run("an intent that is not there is said not to be", func(t *testing.T) {
		b := setupGateway(t)
		_, err := b.gateway.GetIntent(t.Context(), stripe.NoTenant, "pi_nope")
		require.ErrorIs(t, err, stripe.ErrNoSuchObject)
		b.sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Refuse, Status: 500})
		_, err = b.gateway.GetIntent(t.Context(), stripe.NoTenant, b.intent())
		require.Error(t, err)
		require.NotErrorIs(t, err, stripe.ErrNoSuchObject)
	})
}

// TestGatewayLeavesNothingBehind: attempts that were given up do not pile up.
func TestGatewayLeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	gateway := newGateway(server.URL, &logs.Buffer{}, gatewayTimeout)
	sim.Inject(stripesim.Fault{Kind: stripesim.BlackHole, Times: 3})
	for range 3 {
		out := gateway.ConfirmIntent(t.Context(), stripe.Call{Key: "k"}, "pi_1", "pm_card_visa")
		require.Equal(t, stripe.Unknown, out.Effect)
	}
	require.NoError(t, sim.Close())
	server.CloseClientConnections()
	server.Close()
	goleak.VerifyNone(t, before)
}
