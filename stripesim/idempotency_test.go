package stripesim

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// raw posts a form without stripe-go's opinions.
func (b *bench) raw(path, key, form string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.url+path, strings.NewReader(form))
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+DefaultKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := (&http.Client{Transport: b.shapes}).Do(req)
	require.NoError(b.t, err)
	require.NoError(b.t, resp.Body.Close())
	return resp
}

const card1000 = "amount=1000&currency=usd&payment_method_types[0]=card"

func TestIdempotency(t *testing.T) {
	t.Parallel()

	t.Run("ReplaysTheSameBytes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		first, err := b.confirm(pi.ID, "k", "pm_card_visa")
		require.NoError(t, err)
		body, request := string(b.shapes.body), b.header("Request-Id")
		require.Equal(t, request, b.header("Original-Request"))
		require.Empty(t, b.header("Idempotent-Replayed"))
		require.Equal(t, "k", b.header("Idempotency-Key"))
		require.Equal(t, apiVersion, b.header("Stripe-Version"))

		again, err := b.confirm(pi.ID, "k", "pm_card_visa")
		require.NoError(t, err)
		require.Equal(t, first.LatestCharge.ID, again.LatestCharge.ID)
		require.Equal(t, body, string(b.shapes.body))
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		require.Equal(t, request, b.header("Original-Request"))
		require.NotEqual(t, request, b.header("Request-Id"))
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	t.Run("ReplaysADecline", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		_, err := b.confirm(pi.ID, "k", "pm_card_chargeDeclined")
		charge := refused(t, err, 402, stripe.ErrorCodeCardDeclined).ChargeID
		_, err = b.confirm(pi.ID, "k", "pm_card_chargeDeclined")
		require.Equal(t, charge, refused(t, err, 402, stripe.ErrorCodeCardDeclined).ChargeID)
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		require.Len(t, b.effects(EffectChargeFailed), 1)
	})

	t.Run("ReplaysARefusalByState", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		for range 2 {
			_, err := b.confirm(pi.ID, "late", "pm_card_visa")
			refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
		}
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
	})

	t.Run("DoesNotStoreARejectedParameter", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Equal(t, 400, b.raw("/v1/payment_intents", "k", card1000+"&colour=red").StatusCode)
		require.Equal(t, 400, b.raw("/v1/payment_intents", "k", "amount=10&currency=usd").StatusCode)
		resp := b.raw("/v1/payment_intents", "k", card1000)
		require.Equal(t, 200, resp.StatusCode)
		require.Empty(t, resp.Header.Get("Idempotent-Replayed"))
	})

	t.Run("RefusesOtherParameters", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.create("o1")
		_, err := b.api.PaymentIntents.New(
			&stripe.PaymentIntentParams{
				Params: keyed("create-o1"), Amount: stripe.Int64(2000), Currency: stripe.String("usd"),
			},
		)
		e := refused(t, err, 400, "")
		require.Equal(t, stripe.ErrorTypeIdempotency, e.Type)
		require.Equal(
			t,
			"Keys for idempotent requests can only be used with the same parameters they were first used with. Try "+
				"using a key other than 'create-o1' if you meant to execute a different request.",
			e.Msg,
		)
		require.Empty(t, e.DocURL)
	})

	t.Run("RefusesAnotherEndpoint", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		_, err := b.confirm(pi.ID, "create-o1", "pm_card_visa")
		e := refused(t, err, 400, "")
		require.Equal(t, stripe.ErrorTypeIdempotency, e.Type)
		require.Contains(t, e.Msg, fmt.Sprintf("('/v1/payment_intents/%s/confirm' vs '/v1/payment_intents')", pi.ID))
		require.Zero(t, b.sim.ChargeCount(""))
	})

	t.Run("ComparesMeaningNotBytes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Equal(
			t, 200,
			b.raw(
				"/v1/payment_intents", "k",
				"amount=1000&currency=usd&payment_method_types[]=card&metadata[a]=1&metadata[b]=2",
			).StatusCode,
		)
		same := "metadata%5Bb%5D=2&metadata[a]=1&payment_method_types[0]=card&currency=%75sd&amount=1000"
		require.Equal(t, "true", b.raw("/v1/payment_intents", "k", same).Header.Get("Idempotent-Replayed"))
		require.Equal(t, 400, b.raw("/v1/payment_intents", "k", strings.Replace(same, "[a]=1", "[a]=3", 1)).StatusCode)
	})

	t.Run("TrimsAndLimitsKeys", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Equal(t, 200, b.raw("/v1/payment_intents", strings.Repeat("k", 255), card1000).StatusCode)
		require.Equal(t, 400, b.raw("/v1/payment_intents", strings.Repeat("k", 256), card1000).StatusCode)
		require.Equal(t, 200, b.raw("/v1/payment_intents", "  k ", card1000).StatusCode)
		require.Equal(t, "true", b.raw("/v1/payment_intents", "k", card1000).Header.Get("Idempotent-Replayed"))
	})

	t.Run("KeepsAccountsApart", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		mine := b.create("o1")
		theirs := newClient("sk_test_other", b.url, b.shapes, time.Second)
		pi, err := theirs.PaymentIntents.New(
			&stripe.PaymentIntentParams{
				Params: keyed("create-o1"), Amount: stripe.Int64(700), Currency: stripe.String("usd"),
			},
		)
		require.NoError(t, err)
		require.NotEqual(t, mine.ID, pi.ID)
		_, err = theirs.PaymentIntents.Get(mine.ID, nil)
		refused(t, err, 404, stripe.ErrorCodeResourceMissing)
		// Two keys of one account are one account.
		rolled := newClient(DefaultKey+"_rolled", b.url, b.shapes, time.Second)
		_, err = rolled.PaymentIntents.Get(mine.ID, nil)
		require.NoError(t, err)
	})

	t.Run("IsInUseWhileExecuting", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		h := b.sim.Hold(Selector{Op: "intent.confirm"}, BeforeEffect)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.confirm(pi.ID, "k", "pm_card_visa")
			require.NoError(t, err)
		})
		_, err := h.Wait(t.Context())
		require.NoError(t, err)

		_, err = b.confirm(pi.ID, "k", "pm_card_visa")
		e := refused(t, err, 409, stripe.ErrorCodeIdempotencyKeyInUse)
		require.Equal(t, stripe.ErrorTypeInvalidRequest, e.Type)
		require.NotEmpty(t, b.header("Request-Id"))
		require.Equal(t, stripe.PaymentIntentStatusRequiresPaymentMethod, b.get(pi.ID).Status)
		h.Release()
		wg.Wait()

		_, err = b.confirm(pi.ID, "k", "pm_card_visa")
		require.NoError(t, err)
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	t.Run("ChargesOnceUnderConcurrency", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				form := url.Values{"payment_method": {"pm_card_visa"}}.Encode()
				// Half of them with one key, half with keys of their own.
				key := "same"
				if i%2 == 1 {
					key = fmt.Sprint("own-", i)
				}
				b.raw("/v1/payment_intents/"+pi.ID+"/confirm", key, form)
			})
		}
		wg.Wait()
		require.Equal(t, 1, b.sim.ChargeCount("o1"))
	})

	// The floor of a day is Stripe's promise, and all of it: the same request
	// with the same key, a day later, is a new request.
	t.Run("DropsKeysAfterADay", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.paid("o1")
		refund := func() *stripe.Refund {
			re, err := b.api.Refunds.New(
				&stripe.RefundParams{
					Params: keyed("r"), PaymentIntent: stripe.String(pi.ID), Amount: stripe.Int64(100),
				},
			)
			require.NoError(t, err)
			return re
		}
		first := refund()
		b.sim.Advance(keyLifetime - time.Minute)
		require.Equal(t, first.ID, refund().ID)
		b.sim.Advance(2 * time.Minute)
		require.NotEqual(t, first.ID, refund().ID)
		require.Len(t, b.effects(EffectRefund), 2)
	})

	t.Run("DropsKeysWithoutARequest", func(t *testing.T) {
		t.Parallel()
		var shift atomic.Int64
		b := setup(
			t,
			func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) } },
		)
		first := b.create("o1")
		shift.Store(int64(keyLifetime))
		require.NotEqual(t, first.ID, b.create("o1").ID)
	})

	t.Run("CanBeKeptLongerAndRepeatedWithoutAMark", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		status, body := b.adminDo(http.MethodPost, "/settings", `{"key_lifetime":"720h","unmarked_replays":true}`)
		require.Equal(t, http.StatusOK, status, string(body))
		first := b.create("o1")
		b.sim.Advance(29 * 24 * time.Hour)
		require.Equal(t, first.ID, b.create("o1").ID)
		require.Empty(t, b.header("Idempotent-Replayed"))
		b.sim.SetUnmarkedReplays(false)
		require.Equal(t, first.ID, b.create("o1").ID)
		require.Equal(t, "true", b.header("Idempotent-Replayed"))
		b.sim.Advance(48 * time.Hour)
		require.NotEqual(t, first.ID, b.create("o1").ID)
	})

	t.Run("CanBePrunedEarly", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.create("o1")
		require.Equal(t, first.ID, b.create("o1").ID)
		require.Equal(t, 1, b.sim.PruneKeys("create-o1"))
		require.NotEqual(t, first.ID, b.create("o1").ID)
	})

	t.Run("DoesNothingOnGet", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.create("o1")
		req, err := http.NewRequest(http.MethodGet, b.url+"/v1/payment_intents/"+pi.ID, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+DefaultKey)
		req.Header.Set("Idempotency-Key", "create-o1") // used, for something else
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
		require.Empty(t, resp.Header.Get("Idempotency-Key"))
	})
}
