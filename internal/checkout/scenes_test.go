package checkout_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestStepThatHasEndedIsNotMoved: what was read of it before is old by then.
func TestStepThatHasEndedIsNotMoved(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	g := shop.SagaOf(t, s.Checkout("k", shop.TwoTeas("pm_card_visa")))
	move := func(ctx context.Context) error {
		return checkout.MoveStep(ctx, s.World.DB.Queries, s.World.Tenant.ID, g.ID, db.SagaStepPay, db.SagaStepStatusDone)
	}
	require.ErrorContains(t, move(t.Context()), "it has ended already")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, move(canceled), context.Canceled, "and not that it has ended")
}

// notReady is a gateway through which no payment may begin.
type notReady struct{ payments.Gateway }

func (notReady) Ready(context.Context, string) (func(), error) { return nil, stripe.ErrUnavailable }

// TestCheckoutBeginsOnlyIfAPaymentMay: a saga that cannot pay would hold stock for nothing.
func TestCheckoutBeginsOnlyIfAPaymentMay(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { return notReady{g} }})
	a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a)
	require.Zero(t, s.World.Count(`SELECT count(*) FROM checkouts`))
	require.Zero(t, s.World.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'k'`))
}

// TestPaymentWithoutAnIntentFails: Stripe refuses to create it, so that there is none to cancel.
func TestPaymentWithoutAnIntentFails(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	s.World.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "amount_too_small"})
	a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
	require.Equal(t, "payment-failed", a.Code(), a)
	require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
	require.Empty(t, s.World.Posts("cancel"))
	s.RequireStock("tea", 10, 0)
	s.RequireWhole()
}

// TestOrderPaidByAnotherPaymentIsNotNotified: the money of this one goes back.
func TestOrderPaidByAnotherPaymentIsNotNotified(t *testing.T) {
	t.Parallel()
	s, _ := refunded(t, `UPDATE orders SET status = 'paid', payment_id = 'pay_of_another', version = version + 1`)
	a := s.Await("k", shop.TwoTeas("pm_card_visa"))
	require.Equal(t, "payment-failed", a.Code(), a)
	require.Equal(t, "order_canceled", shop.SagaOf(t, a).Failure.Code)
	require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectRefund))
	s.RequireStock("tea", 10, 0)
}

// stopped is a checkout that was interrupted at a recovery point.
func stopped(t *testing.T, point, card string) shop.Shop {
	t.Helper()
	s := shop.New(t, shop.Interrupted(point))
	s.Checkout("k", shop.TwoTeas(card))
	require.Equal(t, point, s.World.RecoveryPoint("k"))
	return s
}

// TestPaymentThatHasEndedElsewhere is taken for what it is.
func TestPaymentThatHasEndedElsewhere(t *testing.T) {
	t.Parallel()

	t.Run("Succeeded", func(t *testing.T) {
		t.Parallel()
		s := stopped(t, "intent_recorded", "pm_card_visa")
		s.World.Exec(`UPDATE payments SET status = 'succeeded', charge_id = 'ch_1', version = version + 1`)
		s.World.Exec(`UPDATE orders SET status = 'paid', payment_id = (SELECT id FROM payments), version = version + 1`)
		a := s.Await("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
		require.Empty(t, s.World.Posts("confirm"))
		require.Zero(t, s.World.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.succeeded'`), "it was said already")
	})

	t.Run("CanceledWhileItIsRead", func(t *testing.T) {
		t.Parallel()
		log := &logs.Buffer{}
		o := world.LocalOptions{Name: "one"}
		o.Log = log.Logger(slog.LevelError)
		s := shop.New(t, o)
		require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TwoTeas("pm_card_threeDSecure2Required")).Status)
		reads := s.World.Sim.Hold(stripesim.Selector{Op: "intent.get"}, stripesim.BeforeEffect)
		resumed := world.Async(func() world.Answer { return s.Checkout("k", shop.TwoTeas("pm_card_threeDSecure2Required")) })
		world.WaitHeld(s.World.T, reads)
		canceled := s.Post("/v1/payments/"+s.World.Text(`SELECT id FROM payments`)+"/cancel", "cancel", `{}`)
		require.Equal(t, http.StatusOK, canceled.Status, canceled)
		reads.Release()
		a := <-resumed
		require.Equal(t, "payment_canceled", shop.SagaOf(t, a).Failure.Code, a)
		require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
		require.Empty(t, log.String(), "it is read again at once")
	})

	// It was refused, and its intent is to be canceled.
	t.Run("CanceledOnceItWasRefused", func(t *testing.T) {
		t.Parallel()
		s := stopped(t, "payment_refused", "pm_card_visa_chargeDeclined")
		s.World.Exec(`UPDATE payments SET status = 'canceled', version = version + 1`)
		a := s.Await("k", shop.TwoTeas("pm_card_visa_chargeDeclined"))
		require.Equal(t, "payment_canceled", shop.SagaOf(t, a).Failure.Code, a)
		require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
		require.Empty(t, s.World.Posts("cancel"))
	})
}

// TestIntentThatCannotBeCanceledNow: the checkout waits for Stripe, and says so.
func TestIntentThatCannotBeCanceledNow(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	s.World.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
	require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TwoTeas("pm_card_visa_chargeDeclined")).Status)
	why := s.World.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`)
	require.NotContains(t, why, "status", "Stripe has shown none")
	s.World.Sim.ClearFaults()
	require.Equal(t, "payment-declined", s.Await("k", shop.TwoTeas("pm_card_visa_chargeDeclined")).Code())
}

// TestPaymentOfACheckoutIsReadOnlyWhenItIsResumed: a checkout in which nothing goes wrong knows it.
func TestPaymentOfACheckoutIsReadOnlyWhenItIsResumed(t *testing.T) {
	t.Parallel()
	_, api, proxy := world.Proxied(t, world.LocalOptions{})
	require.Equal(t, http.StatusOK, api.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
	proxy.Seen()
	require.Equal(t, http.StatusCreated, api.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa")).Status)
	for _, statement := range proxy.Seen() {
		require.NotContains(t, statement, "name: PaymentWithOrder ")
	}
}

// TestCheckoutIsLogged: each turn of a checkout is in the log once it is committed.
func TestCheckoutIsLogged(t *testing.T) {
	t.Parallel()
	log := &logs.Buffer{}
	var begins atomic.Pointer[func()]
	s := shop.New(t, world.LocalOptions{Log: log.Logger(slog.LevelInfo),
		Boundary: at("order_created", &begins)})
	contains := func(text ...string) {
		t.Helper()
		said := log.Take()
		for _, line := range text {
			require.Contains(t, said, line)
		}
	}
	s.Checkout("paid", shop.TwoTeas("pm_card_visa"))
	contains(`msg="payment finished"`, "status=succeeded", `msg="checkout completed"`)
	s.Checkout("declined", shop.TwoTeas("pm_card_visa_chargeDeclined"))
	contains(`msg="payment finished"`, "status=failed", `msg="checkout compensated"`)
	s.Stock("tea", 1)
	s.Checkout("short", shop.TwoTeas("pm_card_visa"))
	contains(`msg="checkout turns round"`, "step=reserve_stock", `msg="checkout compensated"`)
	require.EqualValues(t, 3, s.Metric("payonce_checkouts_ended_total"))
	require.EqualValues(t, 2, s.Series("payonce_checkouts_ended_total", "compensated"))

	// Another process has taken the claim over: then this one has nothing to say.
	steal := func() { s.World.Exec(`UPDATE idempotency_keys SET lease_token = lease_token + 1 WHERE key = 'stolen'`) }
	begins.Store(&steal)
	s.Checkout("stolen", shop.TwoTeas("pm_card_visa"))
	require.Nil(t, begins.Load())
	require.NotContains(t, log.Take(), "checkout interrupted")
}

// TestExpireReservations: what is not about one checkout ends the run, and a bug in one does not.
func TestExpireReservations(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, shop.Interrupted("stock_reserved"))
	s := shop.Shop{Local: api, World: w}
	s.Stock("tea", 10)
	for _, key := range []string{"broken", "well"} {
		s.Checkout(key, shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "stock_reserved", w.RecoveryPoint(key))
	}
	w.ExpireLeases()
	w.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE finished_at IS NULL`)
	w.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 hour'`)
	w.Unguarded(`UPDATE idempotency_keys SET request = '[' WHERE key = 'broken'`) // which panics

	// It neither logs nor measures.
	quiet := checkout.New(api.Pool, api.Keys, api.Gateway, api.Payments, nil, checkout.Options{})
	proxy.Fail("name: ReservationOverdue ", 1)
	_, err := quiet.ExpireReservations(t.Context())
	require.ErrorContains(t, err, pgproxy.FailureText("name: ReservationOverdue"))
	proxy.Before("name: CheckoutStepsSkip ")
	_, err = checkout.New(api.Pool, api.Keys, api.Gateway, api.Payments, nil, checkout.Options{}).
		ExpireReservations(t.Context())
	require.Error(t, err, "the database is away")
	s.RequireStock("tea", 6, 4)
	w.Until("the server has noticed, and holds no row of what was cut", func() bool {
		return w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL`) == 0
	})
	n, err := quiet.ExpireReservations(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "a bug stops no other checkout")
	s.RequireStock("tea", 8, 2)
}

// TestIDThatNoCheckoutHasIsNotFound, whatever it is: PostgreSQL could not even be asked for some.
func TestIDThatNoCheckoutHasIsNotFound(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	for _, id := range []string{"chk_none", "ord_1", "a\x00b"} {
		_, err := s.Checkouts.Get(t.Context(), s.World.Tenant.ID, id)
		require.ErrorIs(t, err, payments.ErrNotFound, "%q", id)
	}
}

// TestCheckoutIsAnsweredBeforeItHasAnOrder: the first step has failed, and the checkout is recorded all the same.
func TestCheckoutIsAnsweredBeforeItHasAnOrder(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	s := shop.Shop{Local: api, World: w}
	s.Stock("tea", 10)
	proxy.Fail("name: OrderInsert ", 1)
	a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
	require.Equal(t, http.StatusAccepted, a.Status, a)
	require.Equal(t, w.Text(`SELECT id FROM checkouts`), shop.SagaOf(t, a).ID)
	require.Empty(t, shop.SagaOf(t, a).OrderID)

	// What was begun in this process is not read back from the database.
	proxy.Seen()
	require.Equal(t, http.StatusCreated, s.Checkout("fresh", shop.TwoTeas("pm_card_visa")).Status)
	for _, statement := range proxy.Seen() {
		require.NotContains(t, statement, "name: CheckoutStepsResume ")
	}
	require.Equal(t, http.StatusCreated, s.Await("k", shop.TwoTeas("pm_card_visa")).Status)
}

// TestRefundOfUnknownOutcomeIsShown as such: Stripe may have returned the money.
func TestRefundOfUnknownOutcomeIsShown(t *testing.T) {
	t.Parallel()
	s := stopped(t, "payment_made", "pm_card_visa")
	s.World.Exec(`WITH gone AS (UPDATE reservations SET status = 'released') UPDATE stock SET reserved = 0, available = 10`)
	s.World.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop, Times: -1})
	s.World.Sim.Inject(stripesim.Fault{Op: "refund.list", Kind: stripesim.Reset, Skip: 1, Times: -1})
	s.Complete()
	require.Contains(t, shop.SagaOf(t, s.Checkout("k", shop.TwoTeas("pm_card_visa"))).Course(), " refund:unknown ")
	require.Equal(t, "the refund is under way", s.World.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`))
	s.World.Sim.ClearFaults()
	require.Equal(t, "reservation_lost", shop.SagaOf(t, s.Await("k", shop.TwoTeas("pm_card_visa"))).Failure.Code)
	s.RequireWhole()
}
