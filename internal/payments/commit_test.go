package payments_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestCommitInDoubt cuts the connection at each commit of a payment, once before
// the server has seen it and once after the server has carried it out. The
// program cannot tell the two apart, and must do right by both: find out, and go
// on, without waiting for its own lease and without asking Stripe again.
func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
		for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).Before,
			"After": (*pgproxy.Proxy).After} {
			t.Run(phase+"/"+when, func(t *testing.T) {
				t.Parallel()
				// A request does not last as long as this lease, so one that waited for it would not be answered with 201.
				w, api, proxy := world.Proxied(t, world.LocalOptions{Name: "one"})
				order := api.Order()
				cut := arm(proxy, "name: "+phase+" ")
				answer := api.Pay("k", order, "pm_card_visa")
				require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
				require.Equal(t, http.StatusCreated, answer.Status, answer)
				require.Equal(t, 1.0, api.Metric("payonce_commits_in_doubt_total"))
				require.Len(t, w.Posts("payment_intents"), 1)
				require.Len(t, w.Posts("confirm"), 1)
				require.Equal(t, 1, w.Count(`SELECT attempts FROM idempotency_keys WHERE key = 'k'`),
					"its own claim was not recognised")

				replay := api.Pay("k", order, "pm_card_visa")
				require.Equal(t, answer.Identity(), replay.Identity())
				w.RequireChargedOnce(order)
			})
		}
	}

	for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).BeforeCommit,
		"After": (*pgproxy.Proxy).AfterCommit} {
		t.Run("Order/"+when, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := world.Proxied(t, world.LocalOptions{})
			cut := arm(proxy, "name: OrderInsert ")
			body := `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`
			answer := api.Post("/v1/orders", "o", body)
			require.True(t, cut.HasFired())
			require.Equal(t, http.StatusCreated, answer.Status, answer)
			require.Equal(t, answer.Identity(), api.Post("/v1/orders", "o", body).Identity())
			require.Equal(t, 1, w.Count(`SELECT count(*) FROM orders`))
			require.Equal(t, answer.ID(), w.Text(`SELECT id FROM orders`))
		})
	}
}

// TestCommitInDoubtWithoutClaim loses the answer of a T1 that claimed nothing, because
// its order was paid while it was on its way. There is no claim to read back,
// and there never will be one.
func TestCommitInDoubtWithoutClaim(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	direct := w.Local(world.LocalOptions{Name: "direct"})
	order := api.Order()
	require.Equal(t, http.StatusCreated, direct.Pay("k", order, "pm_card_visa").Status)
	cut := proxy.After("name: PaymentBegin ")
	answer := api.Pay("late", order, "pm_card_visa")
	require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
	require.Equal(t, "order-already-paid", answer.Code(), answer)
	require.Less(t, api.Metric("payonce_commits_in_doubt_total"), 3.0, "it asked again and again")
	w.RequireChargedOnce(order)
}

// TestCommitInDoubtThatIsNotOver loses the connection while the server still commits T1, and does so for longer than it
// takes to ask again. What is asked again waits for the order, which the first one has locked, and knows its own claim.
func TestCommitInDoubtThatIsNotOver(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	order := api.Order()
	w.Exec(`CREATE FUNCTION commits_slowly() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_xact_lock(15);
			BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0.3); END;
			RETURN NULL;
		END $$`)
	w.Exec(`CREATE CONSTRAINT TRIGGER commits_slowly AFTER INSERT ON idempotency_keys DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.key = 'k') EXECUTE FUNCTION commits_slowly()`)
	answer := world.Async(func() world.Answer { return api.Pay("k", order, visa) })
	w.Until("it commits", func() bool {
		return w.Count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 15`) == 1
	})
	proxy.Away(true) // which cancels what the server executes
	proxy.Away(false)
	a := <-answer
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Equal(t, 1, w.Count(`SELECT attempts FROM idempotency_keys WHERE key = 'k'`), "it is not taken over")
	w.RequireChargedOnce(order)
}

// TestOneFirstPaymentIsTriedAtATime: while one request begins the first payment of an order, another reads the order, and
// queues for nothing.
func TestOneFirstPaymentIsTriedAtATime(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	order := api.Order()
	release := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	t.Cleanup(goOn)
	begun := proxy.Hold("name: PaymentBegin ", release)
	first := world.Async(func() world.Answer { return api.Pay("first", order, visa) })
	begun.Await(t)
	proxy.Seen()
	require.Equal(t, "payment-in-progress", api.Pay("second", order, visa).Code())
	for _, statement := range proxy.Seen() {
		require.NotContains(t, statement, "name: PaymentBegin ")
	}
	goOn()
	require.Equal(t, http.StatusCreated, (<-first).Status)
	w.RequireChargedOnce(order)
}

// TestDatabaseAwayAfterTheFirstCommit loses the response to the COMMIT that claims a key, and with it
// the database, for longer than the request may take. The request may have been started, so it is
// not answered 503: a client that believed it would use another key. Where the COMMIT was not sent
// the 503 is true, and nothing exists.
func TestDatabaseAwayAfterTheFirstCommit(t *testing.T) {
	t.Parallel()
	type post struct{ path, body string }
	order := func(*world.Local) post {
		return post{"/v1/orders", `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`}
	}
	pay := func(api *world.Local) post { return post{"/v1/payments", world.PayBody(api.Order(), visa)} }
	giveBack := func(api *world.Local) post {
		return post{"/v1/payments/" + api.Pay("paid", api.Order(), visa).ID() + "/refunds", `{"amount":400}`}
	}
	cancel := func(api *world.Local) post { return post{"/v1/orders/" + api.Order() + "/cancel", `{}`} }
	commit, statement := (*pgproxy.Proxy).HoldCommit, (*pgproxy.Proxy).Hold
	for name, c := range map[string]struct {
		request func(*world.Local) post
		hold    func(*pgproxy.Proxy, string, chan struct{}) *pgproxy.Cut
		text    string
		status  int
	}{
		"Order": {order, commit, "OrderInsert", 409}, "OrderNotCommitted": {order, statement, "OrderInsert", 503},
		"Payment": {pay, statement, "PaymentBegin", 409},
		"Refund":  {giveBack, commit, "RefundInsert", 409}, "RefundNotCommitted": {giveBack, statement, "RefundInsert", 503},
		"Cancel": {cancel, commit, "OrderCancelBegin", 409},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := world.Proxied(t, world.ShortTimeouts("one"))
			direct := w.Local(world.LocalOptions{Name: "direct"})
			request := c.request(direct)
			release := make(chan struct{})
			held := c.hold(proxy, "name: "+c.text+" ", release)
			answer := w.Reached(held, func() world.Answer { return api.Post(request.path, "k", request.body) })
			proxy.Away(true)
			close(release)
			a := <-answer
			require.Equal(t, c.status, a.Status, a)
			require.True(t, a.Problem().Retryable)
			require.NotEmpty(t, a.Header.Get("Retry-After"))
			require.NotRegexp(t, "(?i)nothing", string(a.Body))
			if c.status == http.StatusConflict {
				require.Equal(t, "idempotency-key-in-flight", a.Code())
			}
			require.Equal(t, c.status == http.StatusConflict, w.RecoveryPoint("k") != "", "whether it exists")
			// A retry does not know what exists, and says nothing about it.
			retry := api.Post(request.path, "k", request.body)
			require.Equal(t, http.StatusServiceUnavailable, retry.Status, retry)
			require.NotRegexp(t, "(?i)nothing", string(retry.Body))

			direct.Complete()
			final := direct.Post(request.path, "k", request.body)
			require.Contains(t, []int{http.StatusOK, http.StatusCreated}, final.Status, final)
			w.RequireSound()
		})
	}
}

// TestStalledLinkReturnsTheOutcome: the link to the database stalls in the middle of a payment, a refund or a
// cancel, for longer than the lease and than the request may take. Another process finishes it. The first
// client gets that outcome, or that it is not known yet.
func TestStalledLinkReturnsTheOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string
		method    string // of the payment that is there before; empty: none
		path      func(order, payment string) (path, body string)
	}{
		"PaymentBeforeItsConfirm": {"PaymentIntentRecord", "", func(order, _ string) (string, string) {
			return "/v1/payments", world.PayBody(order, visa)
		}},
		"PaymentAfterItsConfirm": {"PaymentFinish", "", func(order, _ string) (string, string) {
			return "/v1/payments", world.PayBody(order, visa)
		}},
		"Refund": {"KeyFinish", visa, func(_, payment string) (string, string) {
			return "/v1/payments/" + payment + "/refunds", `{"amount":300}`
		}},
		"Cancel": {"KeyFinish", careful, func(order, _ string) (string, string) {
			return "/v1/orders/" + order + "/cancel", `{}`
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, stalled, proxy := world.Proxied(t, world.ShortTimeouts("stalled"))
			other := w.Local(world.LocalOptions{Name: "other"})
			order, payment := other.Order(), ""
			if c.method != "" {
				payment = other.Pay("before", order, c.method).ID()
			}
			path, body := c.path(order, payment)
			release := make(chan struct{})
			held := proxy.Hold("name: "+c.statement+" ", release)
			answer := w.Reached(held, func() world.Answer { return stalled.Post(path, "k", body) })
			w.ExpireLeases()
			final := world.Async(func() world.Answer {
				var a world.Answer
				w.Until("another process has finished it", func() bool {
					w.ExpireLeases()
					a = other.Post(path, "k", body)
					return a.Status == http.StatusOK || a.Status == http.StatusCreated
				})
				return a
			})
			a := <-answer
			close(release)
			require.NoError(t, a.Err)
			require.Contains(t, []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusConflict}, a.Status, a)
			if a.Status == http.StatusConflict {
				require.Equal(t, "idempotency-key-in-flight", a.Code(), a)
			}
			require.NotRegexp(t, "(?i)nothing", string(a.Body))
			done := <-final
			if a.Status < http.StatusAccepted {
				require.Equal(t, done.Identity(), a.Identity())
			}
			w.RequireSound()
		})
	}
}

// TestDatabaseAway takes the database away at each place of a payment. Before
// anything was recorded the client hears 503, and nothing was begun. After
// that it hears 202, because the service will finish what is recorded.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()

	t.Run("BeforeAnythingIsAsked", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := world.Proxied(t, world.LocalOptions{})
		order := api.Order()
		paid := api.Pay("paid", order, "pm_card_visa")
		other := api.Order()
		proxy.Away(true)
		for _, refused := range []world.Answer{
			api.Pay("k", other, "pm_card_visa"), api.Pay("paid", order, "pm_card_visa"), api.Get("/v1/orders/" + order),
			api.Get("/readyz"),
		} {
			require.Equal(t, http.StatusServiceUnavailable, refused.Status, refused)
			require.Equal(t, "unavailable", refused.Code())
			require.NotEmpty(t, refused.Header.Get("Retry-After"))
		}
		require.Equal(t, http.StatusOK, api.Get("/healthz").Status, "the process itself is well")
		require.Len(t, w.Posts("payment_intents"), 1, "a payment was begun without a record")
		proxy.Away(false)
		require.Equal(t, http.StatusCreated, api.PayUntilFinal("k", other, "pm_card_visa").Status)
		require.Equal(t, paid.Identity(), api.PayUntilFinal("paid", order, "pm_card_visa").Identity())
		w.RequireChargedOnce(order)
		w.RequireChargedOnce(other)
	})

	for _, point := range []string{"payment_recorded", "intent_recorded"} {
		t.Run("After/"+point, func(t *testing.T) {
			t.Parallel()
			var away func()
			options := world.ShortTimeouts("one")
			options.Boundary = func(operation, at string) {
				if operation == "create_payment" && at == point {
					away()
				}
			}
			w, api, proxy := world.Proxied(t, options)
			order := api.Order()
			away = func() { proxy.Away(true) }
			answer := api.Pay("k", order, "pm_card_visa")
			require.Equal(t, http.StatusAccepted, answer.Status, answer)
			require.Equal(t, "processing", answer.Get("status"))

			away = func() {}
			proxy.Away(false)
			require.Equal(t, 1, api.Complete())
			final := api.Pay("k", order, "pm_card_visa")
			require.Equal(t, http.StatusCreated, final.Status, final)
			require.True(t, final.Replayed(), "the completer has finished it without the client")
			require.Equal(t, answer.ID(), final.ID())
			w.RequireChargedOnce(order)
		})
	}
}
