package http_test

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
)

// TestWaiterTakesOverAnExpiredLease: a request that waits for another process that crashes
// may have waited for longer than Within; it must still have time to do the work.
func TestWaiterTakesOverAnExpiredLease(t *testing.T) {
	t.Parallel()
	const within = 600 * time.Millisecond
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	with := func(within time.Duration) *bundle {
		other := setup(t, func(o *httpapi.Options) {
			*o = options
			o.Within, o.Metrics = within, prometheus.NewRegistry()
		})
		other.apiKey = b.apiKey
		return other
	}
	lease := func(until string) {
		t.Helper()
		_, err := b.pool.Raw().Exec(t.Context(),
			"UPDATE idempotency_keys SET leased_until = clock_timestamp() + $1::interval WHERE key = 'k'", until)
		require.NoError(t, err)
	}
	attempts := func() (n int) {
		t.Helper()
		require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
			"SELECT attempts FROM idempotency_keys WHERE key = 'k'").Scan(&n))
		return n
	}
	body := `{"order_id":"` + b.order("order") + `","payment_method":"pm_card_visa"}`
	b.sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Refuse, Status: http.StatusServiceUnavailable,
		Times: 1})
	require.Equal(t, http.StatusAccepted, b.post("/v1/payments", "k", body).status)

	lease("-1 second")
	hasty := with(time.Nanosecond)
	require.Equal(t, "idempotency-key-in-flight", hasty.post("/v1/payments", "k", body).code(),
		"a claim that could only be dropped is not taken")
	require.Equal(t, "unavailable", hasty.post("/v1/payments", "fresh", body).code(), "nothing was begun")
	require.Equal(t, 1, attempts())

	lease("1 hour") // another process works on it
	patient, waited := with(within), make(chan answer, 1)
	go func() {
		a, err := patient.try(t.Context(), "POST", "/v1/payments", body, "Idempotency-Key", "k", "Prefer", "wait=10")
		if err != nil {
			t.Error(err)
		}
		waited <- a
	}()
	time.Sleep(3 * within) // longer than Within
	lease("-1 second")     // The other process has crashed.
	a := <-waited
	// as far as it came in its time, which may be over on a busy machine
	require.Contains(t, []int{http.StatusCreated, http.StatusAccepted, http.StatusConflict}, a.status, "%v", a)
	require.Empty(t, a.header.Get("Idempotent-Replayed"))
	require.Equal(t, 2, attempts())
}

// TestNothingWasStartedIsNeverSaidOfABegunPayment: a process was paused for so long that another
// finished its payment, and that its own time for the response is over.
func TestNothingWasStartedIsNeverSaidOfABegunPayment(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second // enough on a busy machine to begin the payment
	b := setup(t, func(o *httpapi.Options) {
		o.Within, o.Operations = within, maps.Clone(o.Operations)
		pay := o.Operations[payments.CreatePayment]
		pay.Run = func(context.Context, *idempotency.Claim) (idempotency.Answer, error) {
			time.Sleep(within + time.Second) // longer than the request may take
			return idempotency.Answer{}, idempotency.ErrLeaseLost
		}
		o.Operations[payments.CreatePayment] = pay
	})
	body := `{"order_id":"` + b.order("order") + `","payment_method":"pm_card_visa"}`
	a := b.send("POST", "/v1/payments", body, "Idempotency-Key", "paused")
	require.Equal(t, "idempotency-key-in-flight", a.code(), a.body)
	require.NotContains(t, a.body, "Nothing was started")
}

// TestWorkFitsItsLease: if a client is willing to wait for longer than a lease lasts, the
// work still ends before the lease does.
func TestWorkFitsItsLease(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second // a claim is good for a little longer; the client, for ten
	var left time.Duration
	b := setup(t, func(o *httpapi.Options) {
		o.Within, o.Operations = within, maps.Clone(o.Operations)
		pay := o.Operations[payments.CreatePayment]
		begin := pay.Begin
		pay.Begin = func(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
			until, _ := ctx.Deadline()
			left = time.Until(until)
			return begin(ctx, r)
		}
		o.Operations[payments.CreatePayment] = pay
	})
	body := `{"order_id":"` + b.order("order") + `","payment_method":"pm_card_visa"}`
	require.Equal(t, http.StatusCreated, b.send("POST", "/v1/payments", body, "Idempotency-Key", "k", "Prefer",
		"wait=10").status)
	require.LessOrEqual(t, left, within)
	require.Positive(t, left)
}

// TestManyWaitersOnOneKey: more clients wait than a tenant may have waiting. Nobody works twice, those that waited get
// the response, and the rest are told at once that the key is in use.
func TestManyWaitersOnOneKey(t *testing.T) {
	t.Parallel()
	const clients, most = 300, 256
	hold := make(chan struct{})
	runs := 0
	b := setup(t, func(o *httpapi.Options) {
		o.Operations = maps.Clone(o.Operations)
		pay := o.Operations[payments.CreatePayment]
		run := pay.Run
		pay.Run = func(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
			runs++
			<-hold
			return run(ctx, c)
		}
		o.Operations[payments.CreatePayment] = pay
	})
	body := `{"order_id":"` + b.order("order") + `","payment_method":"pm_card_visa"}`
	statuses := make(chan answer, clients+1)
	ask := func() {
		a, err := b.try(context.Background(), "POST", "/v1/payments", body, "Idempotency-Key", "k", "Prefer", "wait=10")
		if err != nil {
			t.Error(err)
		}
		statuses <- a
	}
	go ask()
	require.Eventually(t, func() bool {
		var n int
		err := b.pool.Raw().QueryRow(context.Background(), "SELECT count(*) FROM idempotency_keys WHERE key = 'k'").Scan(&n)
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond)
	for range clients {
		go ask()
	}
	for range clients - most {
		require.Equal(t, "idempotency-key-in-flight", (<-statuses).code())
	}
	close(hold)
	replayed := 0
	for range most + 1 {
		a := <-statuses
		require.Equal(t, http.StatusCreated, a.status, a.body)
		if a.header.Get("Idempotent-Replayed") != "" {
			replayed++
		}
	}
	require.Equal(t, most, replayed)
	require.Equal(t, 1, runs)
}
