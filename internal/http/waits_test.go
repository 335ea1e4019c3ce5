package http_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// waiting sends a GET that waits, and returns where its answer will be.
func (b *bundle) waiting(path string, header ...string) <-chan answer {
	b.t.Helper()
	answers := make(chan answer, 1)
	go func() {
		a, err := b.try(context.Background(), "GET", path, "", header...)
		if err != nil {
			b.t.Error(err)
		}
		answers <- a
	}()
	return answers
}

// TestReadsWaitUntilAPaymentIsFinal: with Prefer: wait the answer comes when the payment is final, also if another
// process has made it so. A row that is changed by hand stands for that process.
func TestReadsWaitUntilAPaymentIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	payment := b.pay("3ds", b.order("order"), "pm_card_authenticationRequired").id()
	path := "/v1/payments/" + payment
	for _, prefer := range []string{"wait=0", "wait=x", "wait=-10", "wait=10.5", "handling=strict", ""} {
		began := time.Now()
		a := b.send("GET", path, "", "Prefer", prefer)
		require.Equal(t, "requires_action", a.object["status"], prefer)
		require.Less(t, time.Since(began), 10*time.Second, prefer) // one that waits takes so long
	}
	began := time.Now()
	a := b.send("GET", path, "", "Prefer", "wait=1")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "requires_action", a.object["status"], "as it is then")
	require.GreaterOrEqual(t, time.Since(began), time.Second)

	many := make([]<-chan answer, 0, 50)
	for range cap(many) {
		many = append(many, b.waiting(path, "Prefer", "wait=30"))
	}
	time.Sleep(300 * time.Millisecond) // the pauses of who looks have grown
	for _, answers := range many {
		require.Empty(t, answers)
	}
	ended := time.Now()
	_, err := b.pool.Raw().Exec(t.Context(), `UPDATE payments SET status = 'canceled', next_action = NULL,
		intent_closed = true, version = version + 1 WHERE id = $1`, payment)
	require.NoError(t, err)
	for _, answers := range many {
		a := <-answers
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "canceled", a.object["status"])
	}
	require.Less(t, time.Since(ended), 25*time.Second, "long before the time is over")

	began = time.Now()
	require.Equal(t, "canceled", b.send("GET", path, "", "Prefer", "wait=10").object["status"])
	require.Equal(t, "not-found", b.send("GET", "/v1/payments/pay_x", "", "Prefer", "wait=10").code())
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	require.Equal(t, "not-found", other.send("GET", path, "", "Prefer", "wait=10").code())
	require.Equal(t, "invalid-request", b.send("GET", path+"?wait=10", "", "Prefer", "wait=10").code())
	require.Less(t, time.Since(began), 10*time.Second, "none of these has anything to wait for")
}

// TestAuthorizedPaymentIsFinal for who waits: its capture is another request's.
func TestAuthorizedPaymentIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.authorize("authorize", b.order("order"))
	require.Equal(t, "authorized", held.object["status"], held.body)
	began := time.Now()
	require.Equal(t, "authorized", b.send("GET", "/v1/payments/"+held.id(), "", "Prefer", "wait=10").object["status"])
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestReadsWaitForAPaymentInProgress: it begins while the payment is at Stripe.
func TestReadsWaitForAPaymentInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *httpapi.Options) { o.Within = time.Hour })
	order := b.order("order")
	hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	t.Cleanup(hold.Release) // a test that fails must not wait for it
	paid := make(chan answer, 1)
	go func() {
		a, err := b.try(context.Background(), "POST", "/v1/payments",
			`{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", "pay")
		if err != nil {
			t.Error(err)
		}
		paid <- a
	}()
	world.WaitHeld(t, hold)
	list := b.get("/v1/payments?status=processing").object["data"].([]any)
	require.Len(t, list, 1)
	began := time.Now()
	waits := b.waiting("/v1/payments/"+list[0].(map[string]any)["id"].(string), "Prefer", "wait=10")
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, waits)
	hold.Release()
	require.Equal(t, http.StatusCreated, (<-paid).status)
	inTime := time.Since(began) < 5*time.Second // On a busy machine the read may have given up before the payment ended.
	if read := (<-waits).object["status"]; inTime {
		require.Equal(t, "succeeded", read)
	}
}

func TestReadsWaitUntilARefundIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	payment := b.pay("pay", b.order("order"), "pm_card_visa").id()
	refund := b.post("/v1/payments/"+payment+"/refunds", "refund", "{}").id()
	set := func(status string) {
		t.Helper()
		_, err := b.pool.Raw().Exec(t.Context(), `ALTER TABLE refunds DISABLE TRIGGER USER`)
		require.NoError(t, err)
		_, err = b.pool.Raw().Exec(t.Context(), `UPDATE refunds SET status = $2::text::refund_status WHERE id = $1`,
			refund, status)
		require.NoError(t, err)
	}
	for _, final := range []string{"succeeded", "failed", "canceled"} {
		set("pending")
		waits := b.waiting("/v1/refunds/"+refund, "Prefer", "wait=10")
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, waits)
		set(final)
		require.Equal(t, final, (<-waits).object["status"])
	}
}
