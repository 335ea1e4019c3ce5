package http_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

const (
	visa     = "pm_card_visa"
	newOrder = `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`
)

// held is a payment that stops before Stripe confirms it, until the test continues it.
func held(t *testing.T, w *world.World, api *world.Local, key, order string) (goOn func() world.Answer) {
	t.Helper()
	hold := w.Sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: order}, stripesim.BeforeEffect)
	told := make(chan world.Answer, 1)
	go func() { told <- api.Pay(key, order, visa) }()
	world.WaitHeld(t, hold)
	return func() world.Answer {
		hold.Release()
		return <-told
	}
}

// patient servers let a test hold Stripe for a while.
var patient = world.LocalOptions{StripeTimeout: 10 * time.Second, Lease: time.Minute}

// TestKey is the table "What a key promises", row by row.
func TestKey(t *testing.T) {
	t.Parallel()

	t.Run("InFlightIs409AtOnce", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(patient)
		order := api.Order()
		goOn := held(t, w, api, "k", order)
		for _, prefer := range []string{"respond-async", "wait=", "wait=x", "wait=-10", "wait=0", "wait=10.5"} {
			began := time.Now()
			busy := api.Pay("k", order, visa, "Prefer: "+prefer)
			require.Equal(t, "idempotency-key-in-flight", busy.Code(), busy)
			require.True(t, busy.Problem().Retryable)
			require.Contains(t, []string{"1", "2", "3"}, busy.Header.Get("Retry-After"))
			require.Less(t, time.Since(began), 10*time.Second, "Prefer: %s", prefer) // one that waits takes so long
		}
		mismatch := api.Pay("k", order, "pm_card_mastercard")
		require.Equal(t, "idempotency-key-mismatch", mismatch.Code(), "also while the first is running")
		require.Equal(t, http.StatusCreated, goOn().Status)
		w.RequireChargedOnce(order)
	})

	t.Run("PreferWaitReturnsTheResponse", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(patient)
		order := api.Order()
		goOn := held(t, w, api, "k", order)
		began := time.Now()
		require.Equal(t, "idempotency-key-in-flight",
			api.Pay("k", order, visa, "Prefer: handling=strict, wait=1").Code(), "and not for ever")
		require.GreaterOrEqual(t, time.Since(began), time.Second)

		waits := make(chan world.Answer, 1)
		go func() { waits <- api.Pay("k", order, visa, `Prefer: wait="10"; foo=bar`) }()
		first := goOn()
		waited := <-waits
		require.Equal(t, http.StatusCreated, first.Status, first)
		require.Equal(t, first.Identity(), waited.Identity())
		require.True(t, waited.Replayed())
		require.False(t, first.Replayed())
	})

	// Many requests that wait for one response must not exhaust the connections to the
	// database: there are two here, and other requests must still be served.
	t.Run("WaitingHoldsNoConnection", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		o := patient
		o.MaxConn = 2
		api := w.Local(o)
		order := api.Order()
		goOn := held(t, w, api, "k", order)
		crowd := make(chan []world.Answer, 1)
		go func() {
			crowd <- world.Together(20, func(int) world.Answer { return api.Pay("k", order, visa, "Prefer: wait=10") })
		}()
		for range 20 {
			require.Equal(t, http.StatusOK, api.Get("/v1/orders/"+order).Status)
		}
		first := goOn()
		answers := append(<-crowd, first)
		require.Empty(t, world.Disagreements(answers))
		for _, a := range answers {
			require.Equal(t, http.StatusCreated, a.Status, a)
		}
		w.RequireChargedOnce(order)
	})

	t.Run("MismatchRevealsNothing", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		order, other := api.Order(), api.Order()
		paid := api.Pay("k", order, visa)
		before := w.Text(`SELECT k::text FROM idempotency_keys k WHERE key = 'k'`)
		for what, a := range map[string]world.Answer{
			"another body":  api.Pay("k", order, "pm_card_mastercard"),
			"another order": api.Pay("k", other, visa),
			"another path":  api.Post("/v1/orders/"+order+"/cancel", "k", ""),
			"a query":       api.Post("/v1/payments?dry_run=true", "k", world.PayBody(order, visa)),
			"another thing": api.Post("/v1/orders", "k", newOrder),
		} {
			require.Equal(t, http.StatusUnprocessableEntity, a.Status,
				"a key serves one request, and this is not %s: %v", what, a)
			require.Equal(t, "idempotency-key-mismatch", a.Code())
			require.False(t, a.Problem().Retryable)
			for _, secret := range []string{paid.ID(), order, visa, paid.Get("stripe", "charge").(string)} {
				require.NotContains(t, string(a.Body), secret, what)
			}
		}
		require.Equal(t, before, w.Text(`SELECT k::text FROM idempotency_keys k WHERE key = 'k'`))
		require.Equal(t, "open", api.Get("/v1/orders/"+other).Get("status"))
		require.Equal(t, paid.Identity(), api.Post("/v1/payments", "k",
			`{ "payment_method": "pm_card_visa", "order_id": "`+order+`" }`).Identity(),
			"the same meaning is the same request")
		w.RequireChargedOnce(order)
	})

	t.Run("QuotedAndBareAreOneKey", func(t *testing.T) {
		t.Parallel()
		api := world.New(t).Local(world.LocalOptions{})
		first := api.Post("/v1/orders", `a\b`, newOrder)
		require.Equal(t, http.StatusCreated, first.Status, first)
		quoted := api.Post("/v1/orders", `"a\\b"`, newOrder)
		require.True(t, quoted.Replayed())
		require.Equal(t, first.Identity(), quoted.Identity())
		require.NotEqual(t, first.ID(), api.Post("/v1/orders", `A\b`, newOrder).ID(), "but not in another case")
	})

	t.Run("RefusedRequestLeavesTheKeyUnused", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		busy, order := api.Order(), api.Order()
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, api.Pay("busy", busy, visa).Status)
		for _, refused := range []world.Answer{
			api.Post("/v1/payments", "k", `{}`),
			api.Post("/v1/payments", "k", world.PayBody(order, visa), "Authorization: Bearer payonce_0_wrong"),
			api.Pay("k", "ord_00000000000000000000000000", visa),
			api.Pay("k", "nonsense", visa),
			api.Post("/v1/nothing", "k", newOrder),
			api.Do("DELETE", "/v1/payments", "", "Idempotency-Key: k"),
			api.Post("/v1/payments", "k", `{"x":"`+strings.Repeat("x", 64<<10)+`"}`),
			api.Post("/v1/payments", "k", world.PayBody(order, visa), "Content-Type: text/plain"),
			api.Pay("k", busy, visa), // payment-in-progress
		} {
			require.GreaterOrEqual(t, refused.Status, 400, refused)
			require.Empty(t, w.RecoveryPoint("k"), refused)
		}
		first := api.Pay("k", order, visa)
		require.Equal(t, http.StatusCreated, first.Status, first)
		require.False(t, first.Replayed())
		w.RequireChargedOnce(order)
	})

	t.Run("ExpiredIsNeverExecutedAgain", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		order := api.Order()
		paid := api.Pay("k", order, visa)
		declined := api.Order()
		require.Equal(t, http.StatusPaymentRequired, api.Pay("no", declined, "pm_card_chargeDeclined").Status)
		w.Exec(`UPDATE idempotency_keys
			SET answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL,
				answer_dropped_at = clock_timestamp()`)
		for range 2 {
			gone := api.Pay("k", order, visa)
			require.Equal(t, http.StatusGone, gone.Status, gone)
			require.Equal(t, "idempotency-key-expired", gone.Code())
			require.False(t, gone.Problem().Retryable)
			require.Equal(t, paid.ID(), gone.Problem().Resource.ID)
			require.Equal(t, "/v1/payments/"+paid.ID(), gone.Problem().Resource.Href)
			require.Equal(t, paid.ID(), api.Get(gone.Problem().Resource.Href).ID())
		}
		require.Equal(t, "idempotency-key-expired", api.Pay("no", declined, "pm_card_chargeDeclined").Code(),
			"a decline is not asked for again either")
		require.Equal(t, "idempotency-key-mismatch", api.Pay("k", declined, visa).Code(), "it still names one intent")
		require.Len(t, w.Posts("confirm"), 2)
		w.RequireChargedOnce(order)
	})

	t.Run("ReplayRequiresAValidAPIKey", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		order := api.Order()
		paid := api.Pay("k", order, visa)
		require.Equal(t, http.StatusCreated, paid.Status)
		w.Exec(`UPDATE api_keys SET revoked_at = clock_timestamp() WHERE tenant_id = $1`, w.Tenant.ID)
		world.Eventually(t, 20*time.Second, "the key is known to be revoked",
			func() bool { return api.Pay("k", order, visa).Status == http.StatusUnauthorized })
		require.NotContains(t, string(api.Pay("k", order, visa).Body), paid.ID())
	})

	t.Run("ReplaysAndResumedWorkAreNotRateLimited", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		api := w.Local(world.LocalOptions{})
		order, second := api.Order(), api.Order()
		limited := w.Local(world.LocalOptions{RateLimit: 0.01}) // and a burst of one
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, limited.Pay("k", order, visa).Status)
		refused := limited.Pay("k2", second, visa)
		require.Equal(t, http.StatusTooManyRequests, refused.Status, refused)
		require.Equal(t, "rate-limited", refused.Code())
		require.True(t, refused.Problem().Retryable)
		require.NotEmpty(t, refused.Header.Get("Retry-After"))
		require.Empty(t, w.RecoveryPoint("k2"))
		require.Equal(t, http.StatusCreated, limited.Pay("k", order, visa).Status, "what was begun may be finished")
		for range 20 {
			require.True(t, limited.Pay("k", order, visa).Replayed())
		}
		w.RequireChargedOnce(order)
	})
}
