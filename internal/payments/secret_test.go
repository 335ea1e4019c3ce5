package payments_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestSecretEndsWithItsPayment: whoever was given a client secret can pay with it for as long as the
// intent can be confirmed. So a payment that waited for its customer ends together with its intent.
func TestSecretEndsWithItsPayment(t *testing.T) {
	t.Parallel()

	t.Run("FailedAuthenticationCancelsTheIntent", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
		intent := b.IntentOfOrder(order)
		require.NoError(t, b.Sim.CompleteAuthentication(intent, false))
		failed := b.API.PayUntilFinal("k", order, careful)
		require.Equal(t, http.StatusPaymentRequired, failed.Status, failed)
		require.Equal(t, "failed", failed.Get("payment", "status"))
		require.Equal(t, "payment_intent_authentication_failure", failed.Get("payment", "failure", "code"))
		require.Error(t, browserPays(b, intent, visa), "the open tab cannot pay any more")

		again := b.API.Pay("another-card", order, visa)
		require.Equal(t, http.StatusCreated, again.Status, again)
		require.NotEqual(t, intent, again.Get("stripe", "payment_intent"), "the next card is a new intent")
		b.RequireChargedOnce(order)
		b.RequireClean()
	})

	t.Run("PaidInTheBrowserAfterTheFailure", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
		intent := b.IntentOfOrder(order)
		require.NoError(t, b.Sim.CompleteAuthentication(intent, false))
		require.NoError(t, browserPays(b, intent, visa))
		require.Equal(t, http.StatusCreated, b.API.PayUntilFinal("k", order, careful).Status)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
		b.RequireClean()
	})

	t.Run("PaidInTheBrowserJustBeforeTheCancel", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
		intent := b.IntentOfOrder(order)
		require.NoError(t, b.Sim.CompleteAuthentication(intent, false))
		late := b.World.Local(world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
			return beforeCancel{g, func() { require.NoError(t, browserPays(b, intent, visa)) }, new(sync.Once)}
		}})
		require.Equal(t, http.StatusCreated, late.PayUntilFinal("k", order, careful).Status)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
		b.RequireClean()
	})

	// Stripe does not respond to the cancel: the payment is not failed yet, because it may still be paid.
	t.Run("IsNotFailedBeforeTheCancel", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
		require.NoError(t, b.Sim.CompleteAuthentication(b.IntentOfOrder(order), false))
		b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, careful).Status)
		require.Equal(t, "requires_action", b.Text(`SELECT status FROM payments`))
		b.Sim.ClearFaults()
		b.ExpireLeases()
		require.Equal(t, http.StatusPaymentRequired, b.API.PayUntilFinal("k", order, careful).Status)
		b.RequireClean()
	})

	t.Run("CanceledInTheDashboard", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		mailbox := b.Mailbox()
		order := b.API.Order()
		require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
		intent := b.IntentOfOrder(order)
		mailbox.Take()
		_, err := b.Stripe.PaymentIntents.Cancel(intent, nil)
		require.NoError(t, err)
		receive(b, mailbox)
		b.API.Complete()
		require.Equal(t, "canceled", b.Text(`SELECT status FROM payments`))
		require.Equal(t, "open", b.API.Get("/v1/orders/"+order).Get("status"))
		again := b.API.Pay("again", order, visa)
		require.Equal(t, http.StatusCreated, again.Status, again)
		require.NotEqual(t, intent, again.Get("stripe", "payment_intent"))
		b.RequireClean()
	})

	t.Run("InTheDatabase", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		require.Equal(t, "requires_action", b.API.Pay("k", b.API.Order(), careful).Get("status"))
		for _, end := range []string{"status = 'failed', failure_code = 'x'", "status = 'canceled'"} {
			_, err := b.DB.Raw().Exec(t.Context(), `UPDATE payments SET next_action = NULL, `+end)
			require.ErrorContains(t, err, "its intent is closed")
		}
		_, err := b.DB.Raw().Exec(t.Context(), `UPDATE payments SET next_action = NULL, status = 'processing'`)
		require.ErrorContains(t, err, "a payment that", "and it does not get there in two steps")
	})
}

// beforeCancel does something once, just before an intent is canceled.
type beforeCancel struct {
	payments.Gateway
	act  func()
	once *sync.Once
}

func (g beforeCancel) CancelIntent(ctx context.Context, c stripe.Call, id string) stripe.Outcome {
	g.once.Do(g.act)
	return g.Gateway.CancelIntent(ctx, c, id)
}

// receive delivers what Stripe has sent, and applies it.
func receive(b *world.Books, mailbox *world.Mailbox) {
	b.T.Helper()
	for _, hook := range mailbox.Take() {
		require.Equal(b.T, http.StatusOK, b.API.Receive(hook).Status)
	}
	b.API.Process()
	require.Zero(b.T, b.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
}

// TestPaidWithoutUs: the intent of a payment that has failed was paid all the same.
func TestPaidWithoutUs(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (b *world.Books, mailbox *world.Mailbox, order string) {
		t.Helper()
		b = world.NewBooks(t)
		mailbox, order = b.Mailbox(), b.API.Order()
		require.Equal(t, "payment-declined", b.API.Pay("declined", order, declining).Code())
		require.NoError(t, browserPays(b, b.IntentOfOrder(order), visa))
		return b, mailbox, order
	}
	requirePaid := func(t *testing.T, b *world.Books, order string) {
		t.Helper()
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, 1, b.Sim.ChargeCount(order))
		require.Equal(t, "failed succeeded", b.Text(`SELECT string_agg(status::text, ' ' ORDER BY status::text)
			FROM payments`))
		b.RequireClean()
	}

	t.Run("AdoptsFromTheWebhook", func(t *testing.T) {
		t.Parallel()
		b, mailbox, order := setup(t)
		receive(b, mailbox)
		requirePaid(t, b, order)
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM outbox_events WHERE type = 'order.paid'`))
		require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`), "nothing is left to be watched")
	})

	for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{
		"Before": (*pgproxy.Proxy).BeforeCommit, "After": (*pgproxy.Proxy).AfterCommit,
	} {
		t.Run("AdoptsOnceWhenTheCommitIsLost/"+when, func(t *testing.T) {
			t.Parallel()
			b, mailbox, order := setup(t)
			proxy, err := pgproxy.Start(b.URL)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			for _, hook := range mailbox.Take() {
				require.Equal(t, http.StatusOK, b.API.Receive(hook).Status)
			}
			cut := arm(proxy, "name: PaymentInsert ")
			cutOff := b.World.Local(world.LocalOptions{Database: proxy.URL()})
			processor := inbox.NewProcessor(cutOff.Pool,
				map[string]inbox.Handler{payments.StripeEvents: cutOff.Payments.WebhookHandler()}, inbox.ProcessorOptions{})
			_, _ = processor.RunOnce(t.Context()) // fails, or not, with its connection
			require.True(t, cut.HasFired())
			b.API.Process()
			requirePaid(t, b, order)
		})
	}

	t.Run("AdoptsOnceFromManyWebhooks", func(t *testing.T) {
		t.Parallel()
		b, mailbox, order := setup(t)
		hooks := mailbox.Take()
		for _, hook := range hooks {
			b.API.Receive(hook)
		}
		world.Together(4, func(int) int { return b.World.Local(world.LocalOptions{}).Process() })
		requirePaid(t, b, order)
	})

	t.Run("CancelOfTheOrder", func(t *testing.T) {
		t.Parallel()
		b, _, order := setup(t)
		a := b.API.Post("/v1/orders/"+order+"/cancel", "cancel", "")
		require.Equal(t, "order-not-cancelable", a.Code(), a)
		requirePaid(t, b, order)
	})

	// Its metadata names another order by now.
	t.Run("CancelOfTheOrderAfterAnEdit", func(t *testing.T) {
		t.Parallel()
		o, intent := unpaid(t, declining)
		second := o.API.Order()
		o.Relabel(o.Tenant.ID, second)
		require.NoError(t, browserPays(o.Books, intent, visa))
		require.Equal(t, "order-not-cancelable", o.API.Post("/v1/orders/"+o.Order+"/cancel", "c", `{}`).Code())
		require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
		require.Equal(t, "open", o.API.Get("/v1/orders/"+second).Get("status"))
	})

	t.Run("AnotherPaymentOfTheOrder", func(t *testing.T) {
		t.Parallel()
		b, _, order := setup(t)
		a := b.API.Pay("another", order, visa)
		require.Equal(t, http.StatusCreated, a.Status, a)
		requirePaid(t, b, order)
	})

	t.Run("LateFailureOfTheFirstAttemptChangesNothing", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		mailbox, order := b.Mailbox(), b.API.Order()
		require.Equal(t, "payment-declined", b.API.Pay("declined", order, declining).Code())
		early := mailbox.Take()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", order, visa).Status)
		before := b.Text(`SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments`)
		late := 0
		for _, hook := range early {
			if hook.Type == "payment_intent.payment_failed" || hook.Type == "charge.failed" {
				late++
			}
			require.Equal(t, http.StatusOK, b.API.Receive(hook).Status)
		}
		require.Equal(t, 2, late)
		b.API.Process()
		require.Equal(t, before, b.Text(`SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments`))
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		b.RequireClean()
	})

	// The dashboard canceled the intent of a declined payment: the next card does not meet it.
	t.Run("CanceledInTheDashboardAfterADecline", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		mailbox, order := b.Mailbox(), b.API.Order()
		require.Equal(t, "payment-declined", b.API.Pay("declined", order, declining).Code())
		_, err := b.Stripe.PaymentIntents.Cancel(b.IntentOfOrder(order), nil)
		require.NoError(t, err)
		receive(b, mailbox)
		require.Equal(t, http.StatusCreated, b.API.Pay("again", order, visa).Status)
		b.RequireClean()
	})
}
