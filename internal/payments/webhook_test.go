package payments_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestWebhooks: an event of Stripe's is a hint that there is something to see.
// It may be lost, come twice, and come in any order.
func TestWebhooks(t *testing.T) {
	t.Parallel()

	t.Run("AreAnsweredOnceTheyAreStored", func(t *testing.T) {
		t.Parallel()
		for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).Before,
			"After": (*pgproxy.Proxy).After} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				w, api, proxy := world.Proxied(t, world.LocalOptions{})
				mailbox := w.Mailbox()
				paid(w.Local(world.LocalOptions{}))
				hook := mailbox.Take()[0]
				stored := func() int { return w.Count(`SELECT count(*) FROM inbox_events WHERE consumer = 'stripe'`) }

				cut := arm(proxy, "name: InboxReceive ")
				answer := api.Receive(hook)
				require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
				if answer.Status == http.StatusOK {
					require.Equal(t, 1, stored(), "a webhook that was answered 200 is stored")
				} else {
					require.Equal(t, http.StatusServiceUnavailable, answer.Status,
						"%v: what is in doubt is to be sent again", answer)
				}
				require.Equal(t, http.StatusOK, api.Receive(hook).Status, "Stripe sends it again")
				require.Equal(t, http.StatusOK, api.Receive(hook).Status)
				require.Equal(t, 1, stored())

				proxy.Away(true)
				require.Equal(t, http.StatusServiceUnavailable, api.Receive(hook).Status,
					"also what was stored long ago, when nobody can look")
			})
		}
	})

	// A refund that succeeds and then fails at the bank, days after its key was
	// answered: only events tell. Whichever comes first, and however often, both
	// sides must agree in the end.
	t.Run("InAnyOrderEndInTheSameState", func(t *testing.T) {
		t.Parallel()
		for name, shuffle := range map[string]func([]world.Webhook) []world.Webhook{
			"InOrder":   func(h []world.Webhook) []world.Webhook { return h },
			"Backwards": func(h []world.Webhook) []world.Webhook { h = slices.Clone(h); slices.Reverse(h); return h },
			"EachTwice": func(h []world.Webhook) []world.Webhook { return slices.Concat(h, h) },
			"ThereAndBack": func(h []world.Webhook) []world.Webhook {
				r := slices.Clone(h)
				slices.Reverse(r)
				return slices.Concat(h, r)
			},
			"TheLastOnly":    func(h []world.Webhook) []world.Webhook { return h[len(h)-1:] },
			"AllButTheFirst": func(h []world.Webhook) []world.Webhook { return h[1:] },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := world.New(t)
				mailbox, api := w.Mailbox(), w.Local(world.LocalOptions{})
				order, payment := paid(api)
				given := refund(api, "r", payment)
				require.Equal(t, http.StatusCreated, given.Status, given)
				id := w.Text(`SELECT stripe_refund_id FROM refunds`)
				require.NoError(t, w.Sim.FailRefund(id, "lost_or_stolen_card"))

				hooks := mailbox.Take()
				for _, hook := range shuffle(hooks) {
					require.Equal(t, http.StatusOK, api.Receive(hook).Status)
					api.Process() // one at a time, so that their order is this one
				}
				require.Zero(t, w.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
				require.Equal(t, "failed", w.Text(`SELECT string_agg(status::text, ' ') FROM refunds`),
					"the refund is as Stripe has it, in whatever order its events came")
				require.Equal(t, "paid", w.Text(`SELECT status FROM orders WHERE id = $1`, order))
				require.Equal(t, "0 0",
					w.Text(`SELECT amount_refunding_minor || ' ' || amount_refunded_minor FROM payments`))
				require.Equal(t, "refund.created refund.succeeded refund.failed",
					w.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`,
						given.ID()))
				require.Equal(t, given.Identity(), refund(api, "r", payment).Identity(),
					"what was answered stays answered")
				w.RequireSound()
			})
		}
	})
}

// staleLook is a look at Stripe whose answer takes its time: it says how things
// were when it was asked.
type staleLook struct {
	payments.Gateway
	read   chan struct{} // closed when Stripe has answered the first
	goOn   chan struct{}
	once   *sync.Once
	answer *stripe.Intent
}

func (g staleLook) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	var err error
	g.once.Do(func() {
		*g.answer, err = g.Gateway.GetIntent(ctx, tenantID, id)
		close(g.read)
	})
	<-g.goOn
	return *g.answer, err
}

// TestWebhookOfAPaymentWithEditedMetadata: somebody has set the metadata of an operation of one's own
// on a payment's intent, at Stripe's dashboard. Our row decides whose intent it is.
func TestWebhookOfAPaymentWithEditedMetadata(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	mailbox := b.Mailbox()
	require.Equal(t, "requires_action", b.API.Pay("k", b.API.Order(), careful).Get("status"))
	intent := b.Text(`SELECT intent_id FROM payments`)
	edit := &stripego.PaymentIntentParams{}
	edit.AddMetadata("payonce_operation", "import")
	_, err := b.Stripe.PaymentIntents.Update(intent, edit)
	require.NoError(t, err)
	mailbox.Take()
	require.NoError(t, b.Sim.CompleteAuthentication(intent, true))
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.API.Receive(hook).Status)
	}
	b.API.Process()
	n, err := b.API.Completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "the webhook expedites the payment's key")
	require.Equal(t, "succeeded", b.Text(`SELECT status FROM payments`))
	b.RequireClean()
}

// TestWebhookDuringARead: the customer passes 3-D Secure while a poll is on
// its way back from Stripe with the state before that. The webhook finds the key
// held. It must not wait for the next poll.
func TestWebhookDuringARead(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	mailbox := w.Mailbox()
	look := staleLook{read: make(chan struct{}), goOn: make(chan struct{}), once: new(sync.Once),
		answer: new(stripe.Intent)}
	first, second := w.Local(world.LocalOptions{Name: "first"}), world.LocalOptions{Name: "second"}
	second.Gateway = func(g payments.Gateway) payments.Gateway { look.Gateway = g; return look }
	poller := w.Local(second)
	order := first.Order()
	require.Equal(t, "requires_action", first.Pay("k", order, careful).Get("status"))

	polled := world.Async(func() world.Answer { return poller.Pay("k", order, careful) })
	<-look.read
	mailbox.Take()
	require.NoError(t, w.Sim.CompleteAuthentication(w.Text(`SELECT intent_id FROM payments`), true))
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, first.Receive(hook).Status)
	}
	first.Process()
	require.Zero(t, w.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
	close(look.goOn)
	require.Equal(t, "requires_action", (<-polled).Get("status"), "it knows no better")

	n, err := first.Completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "the webhook was applied, and nobody looks before the next poll: %s", w.StoryOf("k"))
	final := first.Pay("k", order, careful)
	require.Equal(t, http.StatusCreated, final.Status, final)
	require.True(t, final.Replayed())
	w.RequireChargedOnce(order)
}

// TestStripesTextsAreStored: JSON has a way to write U+0000, and no column of
// PostgreSQL's can hold it. Wherever Stripe says it, what happened is recorded.
func TestStripesTextsAreStored(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		b.Sim.Handler().ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(answer.Code)
		body := answer.Body.String()
		for _, text := range []string{`"message":"`, `"code":"`, `"decline_code":"`, `"url":"`, `"payment_method":"`,
			`"cancellation_reason":"`, `"failure_reason":"`} {
			body = strings.ReplaceAll(body, text, text+`a\u0000b\\u0000`)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	b.StripeURL = server.URL
	b = world.BooksOn(b.World)

	order := b.API.Order()
	declined := b.API.Pay("declined", order, declining)
	require.Equal(t, "payment-declined", declined.Code(), declined)
	require.Contains(t, declined.Problem().Detail, "a\ufffdb\\u0000")
	require.Equal(t, declined.Identity(), b.API.Pay("declined", order, declining).Identity())
	waits := b.API.Pay("careful", order, careful)
	require.Equal(t, "requires_action", waits.Get("status"), waits)
	require.Equal(t, http.StatusOK, b.API.Post("/v1/payments/"+waits.ID()+"/cancel", "cancel", "").Status)
	_, payment := paid(b.API)
	require.Equal(t, http.StatusCreated, refund(b.API, "r", payment).Status)
	require.Equal(t, http.StatusConflict,
		b.API.Post("/v1/payments/"+payment+"/refunds", "more", `{"amount":900}`).Status)

	// somebody else's, on the same account
	b.OrphanIntent(order, func(p *stripego.PaymentIntentParams) { p.Metadata["tenant_id"] += "\x00" })
	b.Reconcile()
	completeOnce(b.World, b.API) // the payment that was canceled: on a slow machine it would be stuck by now
	b.RequireClean()
}
