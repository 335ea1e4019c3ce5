package payments_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// authorized reserves the money of a new order.
func (b bench) authorized(key string) (order, payment string) {
	b.Helper()
	order = b.api.Order()
	a := b.api.Authorize(key, order, visa)
	require.Equal(b.T, http.StatusCreated, a.Status, a)
	require.Equal(b.T, "authorized", a.Get("status"), a)
	return order, a.ID()
}

func (b bench) status(order, payment string) string {
	b.Helper()
	return b.api.Get("/v1/orders/"+order).Get("status").(string) + ", " +
		b.api.Get("/v1/payments/"+payment).Get("status").(string)
}

// events are the types of the events of an object, in their order.
func (b bench) events(id string) string {
	b.Helper()
	return b.w.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, id)
}

// TestCapture is the life of a payment whose money is reserved first, as a client sees it.
func TestCapture(t *testing.T) {
	t.Parallel()

	t.Run("AuthorizesAndCapturesOnce", func(t *testing.T) {
		b := setup(t)
		order, payment := b.authorized("k")
		p := b.api.Get("/v1/payments/" + payment)
		require.Equal(t, "manual", p.Get("capture"))
		require.InDelta(t, 1000, p.Get("amount_capturable"), 0)
		require.InDelta(t, 0, p.Get("amount_captured"), 0)
		require.NotNil(t, p.Get("capture_before"))
		require.Equal(t, "authorized, authorized", b.status(order, payment))
		require.Zero(t, b.w.Sim.ChargeCount(order), "an authorization takes nothing")
		again := b.api.Authorize("k", order, visa)
		require.True(t, again.Replayed())
		require.Equal(t, payment, again.ID())

		sum := sha256.Sum256([]byte("1000\x00usd\x00manual"))
		require.Equal(t, hex.EncodeToString(sum[:]), b.w.Text(`SELECT encode(params_sha256, 'hex') FROM stripe_calls
			WHERE operation = 'create_intent' AND resource_id = $1`, order), "another attempt has the same parameters")

		first := b.api.Capture("c", payment, 0)
		require.Equal(t, http.StatusOK, first.Status, first)
		require.Equal(t, "succeeded", first.Get("status"))
		require.InDelta(t, 1000, first.Get("amount_captured"), 0)
		require.Nil(t, first.Get("capture_before"))
		require.Equal(t, first.Identity(), b.api.Capture("c", payment, 0).Identity())
		require.Equal(t, b.w.Tenant.ID+":c:capture", b.w.Posts("capture")[0].Key)
		require.Equal(t, "paid, succeeded", b.status(order, payment))
		require.Equal(t, "payment.created payment.authorized payment.succeeded", b.events(payment))
		require.Equal(t, "order.created order.authorized order.paid", b.events(order))
		refused := b.api.Capture("d", payment, 0)
		require.Equal(t, "payment-not-capturable", refused.Code())
		require.False(t, refused.Replayed())
		require.True(t, b.api.Capture("d", payment, 0).Replayed(), "a definite refusal is stored")
		require.Len(t, b.w.Posts("capture"), 1)
		b.w.RequireSound()
	})

	t.Run("CapturesAPart", func(t *testing.T) {
		b := setup(t)
		order, payment := b.authorized("k")
		require.Equal(t, "capture-exceeds-authorization", b.api.Capture("more", payment, 1001).Code())
		require.True(t, b.api.Capture("more", payment, 1001).Replayed(), "a definite refusal is stored")
		a := b.api.Capture("c", payment, 400)
		require.Equal(t, http.StatusOK, a.Status, a)
		require.InDelta(t, 400, a.Get("amount_captured"), 0)
		o := b.api.Get("/v1/orders/" + order)
		require.InDelta(t, 400, o.Get("amount_paid"), 0)
		require.InDelta(t, 0, o.Get("amount_refunded"), 0)
		require.Equal(t, "refund-exceeds-payment", b.api.Post("/v1/payments/"+payment+"/refunds", "r1", `{"amount":401}`).Code())
		r := b.api.Post("/v1/payments/"+payment+"/refunds", "r2", "")
		require.Equal(t, http.StatusCreated, r.Status, r)
		require.InDelta(t, 400, r.Get("amount"), 0)
		require.Equal(t, "refunded, succeeded", b.status(order, payment))
		b.w.RequireSound()
	})

	t.Run("ReleasesByCancel", func(t *testing.T) {
		b := setup(t)
		order, payment := b.authorized("k")
		other := b.pay("other", order, visa)
		require.Equal(t, "payment-in-progress", other.Code())
		require.Contains(t, other.Get("detail"), "A payment of this order is authorized.")
		require.Equal(t, "60", other.Header.Get("Retry-After"), "it may stay so for days")
		a := b.api.CancelPayment("x", payment)
		require.Equal(t, http.StatusOK, a.Status, a)
		require.Equal(t, "canceled", a.Get("status"))
		require.Nil(t, a.Get("failure"))
		require.Equal(t, "open, canceled", b.status(order, payment))
		require.Equal(t, "order.created order.authorized order.reopened", b.events(order))
		require.Equal(t, "payment-not-capturable", b.api.Capture("c", payment, 0).Code())
		b.succeeded("again", order)
		b.w.RequireSound()
	})

	t.Run("CancelOfTheOrderReleasesFirst", func(t *testing.T) {
		b := setup(t)
		order, payment := b.authorized("k")
		a := b.api.Post("/v1/orders/"+order+"/cancel", "x", "")
		require.Equal(t, http.StatusOK, a.Status, a)
		require.Equal(t, "canceled, canceled", b.status(order, payment))
		require.Equal(t, "order.created order.authorized order.canceled", b.events(order))
		require.Len(t, b.w.Posts("cancel"), 1)
	})

	t.Run("AuthorizesAfter3DSecure", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		a := b.api.Authorize("k", order, careful)
		require.Equal(t, "requires_action", a.Get("status"), a)
		require.NoError(t, b.w.Sim.CompleteAuthentication(b.w.Text(`SELECT intent_id FROM payments WHERE id = $1`, a.ID()), true))
		again := b.api.Authorize("k", order, careful)
		require.Equal(t, http.StatusCreated, again.Status, again)
		require.Equal(t, "authorized, authorized", b.status(order, a.ID()))
		require.Equal(t, http.StatusOK, b.api.Capture("c", a.ID(), 0).Status)
	})

	t.Run("IsFoundAfterALostAnswer", func(t *testing.T) {
		b := setup(t)
		for n, kind := range []string{stripesim.Drop, stripesim.EffectError, stripesim.EffectStoredError} {
			key := fmt.Sprintf("c%d", n)
			order, payment := b.authorized("k" + key)
			b.inject(stripesim.Fault{Op: "intent.capture", Kind: kind})
			a := b.api.Capture(key, payment, 700)
			if a.Status == http.StatusAccepted {
				require.Equal(t, "authorized", a.Get("status"))
				a = b.api.Capture(key, payment, 700)
			}
			require.Equal(t, http.StatusOK, a.Status, a)
			require.InDelta(t, 700, a.Get("amount_captured"), 0)
			require.Len(t, b.w.Posts("capture"), n+1)
			require.Equal(t, "paid, succeeded", b.status(order, payment))
			b.w.RequireSound()
		}
	})

	t.Run("IsAuthorizedAfterALostAnswer", func(t *testing.T) {
		b := setup(t)
		for n, op := range []string{"intent.create", "intent.confirm"} {
			key := fmt.Sprintf("k%d", n)
			order := b.api.Order()
			b.inject(stripesim.Fault{Op: op, Kind: stripesim.Drop})
			first := b.api.Authorize(key, order, visa)
			require.Equal(t, http.StatusAccepted, first.Status, first)
			again := b.api.Authorize(key, order, visa)
			require.Equal(t, http.StatusCreated, again.Status, again)
			require.Equal(t, "authorized, authorized", b.status(order, first.ID()))
			require.Equal(t, http.StatusOK, b.api.Capture("c"+key, first.ID(), 0).Status)
			b.w.RequireSound()
		}
	})

	t.Run("AnotherWayToCaptureIsAnotherIntent", func(t *testing.T) {
		b := setup(t)
		order := b.api.Order()
		b.failed("payment-declined", "declined", order, declining)
		a := b.api.Authorize("k", order, visa)
		require.Equal(t, "authorized", a.Get("status"), a)
		require.Equal(t, http.StatusOK, b.api.CancelPayment("x", a.ID()).Status)
		b.succeeded("again", order)
		require.Len(t, b.w.Posts("payment_intents"), 3)
		b.w.RequireSound()
	})

	t.Run("StoredErrorLeavesItAuthorized", func(t *testing.T) {
		b := setup(t)
		order, payment := b.authorized("k")
		b.inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError})
		var a world.Answer
		world.Eventually(t, world.Patience, "the capture is final", func() bool {
			a = b.api.Capture("c", payment, 0)
			return a.Status != http.StatusAccepted
		})
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "authorized, authorized", b.status(order, payment))
		require.Equal(t, http.StatusOK, b.api.Capture("another", payment, 0).Status)
		b.w.RequireSound()
	})
}
