package stripesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// TestFaults goes through the table in the package documentation: for each kind,
// what the client sees, whether the money moved, and what the key says when the
// same request comes again.
func TestFaults(t *testing.T) {
	t.Parallel()

	const (
		free   = "free"   // the same request executes
		stored = "stored" // the same request replays the true answer
		frozen = "frozen" // the same request replays a 500
	)
	noAnswer := func(t *testing.T, _ *stripe.PaymentIntent, err error) {
		t.Helper()
		require.Error(t, err)
		var e *stripe.Error
		require.False(t, errors.As(err, &e), "there should have been no answer: %v", err)
	}
	status := func(want int, code stripe.ErrorCode) func(*testing.T, *stripe.PaymentIntent, error) {
		return func(t *testing.T, _ *stripe.PaymentIntent, err error) {
			t.Helper()
			refused(t, err, want, code)
		}
	}
	fine := func(t *testing.T, pi *stripe.PaymentIntent, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	}
	proxy := func(t *testing.T, _ *stripe.PaymentIntent, err error) {
		t.Helper()
		require.ErrorContains(t, err, "<html>")
	}

	for name, tc := range map[string]struct {
		fault  Fault
		sees   func(*testing.T, *stripe.PaymentIntent, error)
		effect bool
		key    string
		leaves bool // the client hangs up once the fault has it
	}{
		"Reset":        {Fault{Kind: Reset}, noAnswer, false, free, false},
		"BlackHole":    {Fault{Kind: BlackHole}, noAnswer, false, free, true},
		"Unauthorized": {Fault{Kind: Unauthorized}, status(401, ""), false, free, false},
		"RateLimited": {Fault{Kind: RateLimited}, status(429, stripe.ErrorCodeRateLimit), false, free,
			false},
		"LockTimeout": {Fault{Kind: LockTimeout}, status(429, stripe.ErrorCodeLockTimeout), false, free,
			false},
		"InUse": {Fault{Kind: InUse}, status(409, stripe.ErrorCodeIdempotencyKeyInUse), false, free,
			false},
		"Refuse 500":      {Fault{Kind: Refuse}, status(500, ""), false, free, false},
		"Refuse 503":      {Fault{Kind: Refuse, Status: 503}, status(503, ""), false, free, false},
		"Refuse 502 HTML": {Fault{Kind: Refuse, Status: 502, HTML: true}, proxy, false, free, false},
		"Refuse 400": {Fault{Kind: Refuse, Status: 400, Code: "parameter_unknown"},
			status(400, stripe.ErrorCodeParameterUnknown), false, free, false},
		"Refuse 404": {Fault{Kind: Refuse, Status: 404, Code: "resource_missing"},
			status(404, stripe.ErrorCodeResourceMissing), false, free, false},
		"RetryError":  {Fault{Kind: RetryError}, status(500, ""), false, free, false},
		"StoredError": {Fault{Kind: StoredError}, status(500, ""), false, frozen, false},
		"DelayBefore": {Fault{Kind: DelayBefore, Delay: 20 * time.Millisecond}, fine, true, stored, false},
		"DelayExecuting": {Fault{Kind: DelayExecuting, Delay: 20 * time.Millisecond}, fine, true, stored,
			false},
		"Delay":                {Fault{Kind: Delay, Delay: time.Minute}, noAnswer, true, stored, true},
		"SlowBody":             {Fault{Kind: SlowBody, Delay: time.Minute}, noAnswer, true, stored, true},
		"Drop":                 {Fault{Kind: Drop}, noAnswer, true, stored, false},
		"Cut":                  {Fault{Kind: Cut, Bytes: 100}, noAnswer, true, stored, false},
		"Cut at once":          {Fault{Kind: Cut}, noAnswer, true, stored, false},
		"EffectError":          {Fault{Kind: EffectError}, status(502, ""), true, stored, false},
		"EffectError 504 HTML": {Fault{Kind: EffectError, Status: 504, HTML: true}, proxy, true, stored, false},
		"InvalidJSON":          {Fault{Kind: InvalidJSON}, noAnswer, true, stored, false},
		"EffectStoredError":    {Fault{Kind: EffectStoredError}, status(500, ""), true, frozen, false},
		"EffectForgotten":      {Fault{Kind: EffectForgotten, Status: 503}, status(503, ""), true, free, false},
		"Stale": {Fault{Kind: Stale}, status200(stripe.PaymentIntentStatusRequiresPaymentMethod), true,
			stored, false},
		"UnknownEnum":            {Fault{Kind: UnknownEnum}, status200("awaiting_the_future"), true, stored, false},
		"UnknownFields":          {Fault{Kind: UnknownFields}, fine, true, stored, false},
		"Delay with no patience": {Fault{Kind: DelayBefore, Delay: time.Second}, noAnswer, true, stored, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.broken()
			pi := b.create("o1")
			tc.fault.Op = "intent.confirm"
			fault := b.sim.Inject(tc.fault)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			p := &stripe.PaymentIntentConfirmParams{Params: keyed("k"), PaymentMethod: stripe.String("pm_card_visa")}
			p.Context = ctx
			if tc.leaves {
				go func() {
					for ctx.Err() == nil && b.sim.FaultsFired()[fault] == 0 {
						time.Sleep(time.Millisecond)
					}
					hangUp()
				}()
			}
			got, err := b.api.PaymentIntents.Confirm(pi.ID, p)
			tc.sees(t, got, err)
			require.Equal(t, map[string]int{fault: 1}, b.sim.FaultsFired())

			want := 0
			if tc.effect {
				want = 1
				// The effect does not wait for the client, nor the client for it.
				require.Eventually(
					t,
					func() bool { return b.sim.ChargeCount("o1") == 1 },
					30*time.Second, 5*time.Millisecond,
				)
			}
			require.Equal(t, want, b.sim.ChargeCount("o1"))

			got, err = b.confirm(pi.ID, "k", "pm_card_visa")
			switch {
			case tc.key == frozen:
				refused(t, err, 500, "")
				require.Equal(t, "true", b.header("Idempotent-Replayed"))
			case tc.key == free && tc.effect: // executed anew: the intent itself refuses
				refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
				require.Empty(t, b.header("Idempotent-Replayed"))
			default:
				require.NoError(t, err)
				require.Equal(t, stripe.PaymentIntentStatusSucceeded, got.Status)
				require.Equal(t, tc.key == stored, b.header("Idempotent-Replayed") == "true")
			}
			if tc.key == frozen && !tc.effect {
				require.Zero(t, b.sim.ChargeCount("o1"))
			} else {
				require.Equal(t, 1, b.sim.ChargeCount("o1"))
			}
		})
	}

	t.Run("ResetIsRudeAndDropIsPolite", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.sim.Inject(Fault{Kind: Reset})
		b.sim.Inject(Fault{Kind: Drop})
		_, err := b.api.PaymentIntents.Get("pi_1", nil)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = b.api.PaymentIntents.Get("pi_1", nil)
		require.ErrorIs(t, err, io.EOF)
	})

	t.Run("LimiterAlsoHitsAReplay", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		b.sim.Inject(Fault{Op: "*.post", Kind: RateLimited, Code: "global-concurrency"})
		_, err := b.confirm(pi.ID, "confirm-o1", "pm_card_visa")
		refused(t, err, 429, stripe.ErrorCodeRateLimit)
		require.Equal(t, "global-concurrency", b.header("Stripe-Rate-Limited-Reason"))
		require.NotEmpty(t, b.header("Request-Id"))
	})

	t.Run("LockTimeoutHasNoName", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.sim.Inject(Fault{Kind: LockTimeout})
		_, err := b.api.PaymentIntents.Get("pi_1", nil)
		refused(t, err, 429, stripe.ErrorCodeLockTimeout)
		require.Empty(t, b.header("Request-Id"))
		require.Empty(t, b.header("Stripe-Rate-Limited-Reason"))
	})

	t.Run("RetryErrorAsksForIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.sim.Inject(Fault{Kind: RetryError})
		b.sim.Inject(Fault{Kind: Refuse, Header: map[string]string{"Stripe-Should-Retry": "false"}})
		for _, want := range []string{"true", "false"} {
			_, err := b.api.PaymentIntents.Get("pi_1", nil)
			refused(t, err, 500, "")
			require.Equal(t, want, b.header("Stripe-Should-Retry"))
		}
	})

	t.Run("DelayExecutingShowsTheEffectUnderAKeyInUse", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		b.sim.Inject(Fault{Op: "intent.confirm", Kind: DelayExecuting, Delay: 2 * time.Second})
		answered := make(chan error)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		require.Eventually(t, func() bool { return b.sim.ChargeCount("o1") == 1 }, 30*time.Second, time.Millisecond)
		_, err := newClient(
			DefaultKey, b.url, http.DefaultTransport, time.Second,
		).PaymentIntents.Confirm(
			pi.ID, &stripe.PaymentIntentConfirmParams{Params: keyed("k"), PaymentMethod: stripe.String("pm_card_visa")},
		)
		refused(t, err, 409, stripe.ErrorCodeIdempotencyKeyInUse)
		require.NoError(t, <-answered)
	})

	// The reason there is a fault for reused connections: net/http sends the
	// request again on its own, and a client that counts attempts counts wrong.
	t.Run("ReusedConnectionDiesAndNetHTTPRepeats", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []string{ReusedReset, ReusedDrop} {
			b := setup(t)
			b.shapes.repeats = true
			pi := b.create("o1") // warms the connection
			fault := b.sim.Inject(Fault{Op: "intent.confirm", Kind: kind, Times: -1})
			got, err := b.confirm(pi.ID, "k", "pm_card_visa")
			require.NoError(t, err, kind)
			require.Equal(t, stripe.PaymentIntentStatusSucceeded, got.Status)
			require.Equal(t, kind == ReusedDrop, b.header("Idempotent-Replayed") == "true", kind)
			require.Equal(t, 1, b.sim.ChargeCount("o1"))
			require.Equal(t, 1, b.sim.FaultsFired()[fault], "the repetition comes on a fresh connection")
		}
	})

	t.Run("SelectsByKeyOrderSkipAndTimes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one, two := b.create("o1"), b.create("o2")
		byOrder := b.sim.Inject(Fault{Op: "intent.confirm", Kind: Refuse, OrderID: "o2"})
		_, err := b.confirm(one.ID, "k1", "pm_card_visa")
		require.NoError(t, err)
		_, err = b.confirm(two.ID, "k2", "pm_card_visa")
		refused(t, err, 500, "")

		byKey := b.sim.Inject(Fault{Kind: Refuse, Key: "special", Times: -1, Skip: 1})
		for i := range 4 {
			_, err = b.api.PaymentIntents.New(
				&stripe.PaymentIntentParams{
					Params: keyed(fmt.Sprint("very-special-", i)), Amount: stripe.Int64(100),
					Currency: stripe.String("usd"),
				},
			)
			require.Equal(t, i == 0, err == nil)
		}
		b.create("o3")
		require.Equal(t, map[string]int{byOrder: 1, byKey: 3}, b.sim.FaultsFired())
	})

	t.Run("FiresByChanceTheSameWayEachTime", func(t *testing.T) {
		t.Parallel()
		run := func() string {
			b := setup(t)
			b.sim.Inject(Fault{Op: "intent.get", Kind: Refuse, Times: -1, Probability: 0.5, Seed: 7})
			var pattern strings.Builder
			for range 40 {
				_, err := b.api.PaymentIntents.Get("pi_1", nil)
				var refusal *stripe.Error
				require.ErrorAs(t, err, &refusal)
				fmt.Fprint(&pattern, refusal.HTTPStatusCode/100)
			}
			return pattern.String()
		}
		first := run()
		require.Contains(t, first, "4")
		require.Contains(t, first, "5")
		require.Equal(t, first, run())
	})

	t.Run("RefusesAScriptThatBreaksNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Panics(t, func() { b.sim.Inject(Fault{Kind: "typo"}) })
		require.Panics(t, func() { b.sim.Inject(Fault{Kind: Drop, Op: "intent.conform"}) })
		require.Panics(t, func() { b.sim.InjectWebhook(WebhookFault{Kind: "typo"}) })
		for _, body := range []string{`{"kind":"typo"}`, `{"kind":"drop","opp":"intent.confirm"}`,
			`{"kind":"drop","delay":"soon"}`} {
			code, _ := b.adminDo("POST", "/faults", body)
			require.Equal(t, 400, code, body)
		}
	})

	t.Run("HitNoEffectThatIsRefused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		b.sim.Inject(Fault{Op: "refund.create", Kind: EffectStoredError})
		_, err := b.refund(pi.ID, "r1", 1001)
		refused(t, err, 400, "")
		_, err = b.refund(pi.ID, "r1", 1001)
		refused(t, err, 400, "")
		declined := b.create("o2")
		b.sim.Inject(Fault{Op: "intent.confirm", Kind: EffectStoredError})
		_, err = b.confirm(declined.ID, "k", "pm_card_chargeDeclined")
		refused(t, err, 500, "")
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, b.get(declined.ID).Status)
		require.NotNil(t, b.get(declined.ID).LastPaymentError, "a decline changes the intent")
	})

	// A frozen 500 is not the end at Stripe: it may roll the work forward or
	// back. The key keeps its 500 either way.
	t.Run("CanBeRepaired", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		b.sim.Inject(Fault{Op: "intent.confirm", Kind: StoredError})
		_, err := b.confirm(pi.ID, "k1", "pm_card_visa")
		refused(t, err, 500, "")
		require.NoError(t, b.sim.Repair("k1", true))
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
		require.Empty(t, b.effects(EffectCharge)[0].RequestID)

		pi = b.create("o2")
		b.sim.Inject(Fault{Op: "intent.confirm", Kind: EffectStoredError})
		_, err = b.confirm(pi.ID, "k2", "pm_card_visa")
		refused(t, err, 500, "")
		require.NoError(t, b.sim.Repair("k2", false))
		require.Len(t, b.effects(EffectRefund), 1)
		_, err = b.confirm(pi.ID, "k2", "pm_card_visa")
		refused(t, err, 500, "")
		require.Error(t, b.sim.Repair("k2", false))
	})
}

func status200(want stripe.PaymentIntentStatus) func(*testing.T, *stripe.PaymentIntent, error) {
	return func(t *testing.T, pi *stripe.PaymentIntent, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, pi.Status)
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()

	t.Run("StopBetweenEffectAndAnswer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		other := b.create("o2")
		h := b.sim.Hold(Selector{Op: "intent.confirm", OrderID: "o1"}, AfterEffect)
		answered := make(chan error, 1)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		held, err := h.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(
			t, Held{Op: "intent.confirm", Key: "k", RequestID: held.RequestID, ObjectID: pi.ID, Since: held.Since},
			held,
		)
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
		_, err = b.confirm(other.ID, "k2", "pm_card_visa") // another order passes
		require.NoError(t, err)
		replayed, err := b.confirm(pi.ID, "k", "pm_card_visa") // and so does a retry: the answer is there
		require.NoError(t, err)
		require.Equal(t, stripe.PaymentIntentStatusSucceeded, replayed.Status)
		select {
		case <-answered:
			t.Fatal("the held request was answered")
		default:
		}
		h.Release()
		require.NoError(t, <-answered)
		require.Empty(t, h.Waiting())
	})

	t.Run("LockTheObjectBeforeTheEffect", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(o *Options) { o.LockWait = 20 * time.Millisecond })
		pi := b.create("o1")
		h := b.sim.Hold(Selector{Op: "intent.confirm"}, BeforeEffect)
		answered := make(chan error, 1)
		go func() { _, err := b.confirm(pi.ID, "k", "pm_card_visa"); answered <- err }()
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
		_, err = b.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{Params: keyed("c")})
		refused(t, err, 429, stripe.ErrorCodeLockTimeout)
		h.Release()
		require.NoError(t, <-answered)
		_, err = b.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{Params: keyed("c")})
		refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState) // executed now: the key was free
		require.Empty(t, b.sim.locks.held)
	})

	t.Run("GoOnWhenTheClientHangsUp", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		h := b.sim.Hold(Selector{Op: "intent.confirm"}, BeforeEffect)
		ctx, hangUp := context.WithCancel(t.Context())
		p := &stripe.PaymentIntentConfirmParams{Params: keyed("k"), PaymentMethod: stripe.String("pm_card_visa")}
		p.Context = ctx
		answered := make(chan error, 1)
		go func() { _, err := b.api.PaymentIntents.Confirm(pi.ID, p); answered <- err }()
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
		hangUp()
		require.Error(t, <-answered)
		h.Release()
		require.Eventually(t, func() bool { return b.sim.ChargeCount("o1") == 1 }, 30*time.Second, time.Millisecond)
	})
}

// adminDo talks to the admin port.
func (b *bench) adminDo(method, path, body string) (int, []byte) {
	b.t.Helper()
	req, err := http.NewRequest(method, b.admin+path, strings.NewReader(body))
	require.NoError(b.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	require.True(b.t, json.Valid(data), "%s", data)
	return resp.StatusCode, data
}
