package payments_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db/pgproxy"
	"example.com/payonce/internal/testbed"
)

// holdCommits has every COMMIT wait that leaves a payment in the status, as one
// waits for a synchronous standby: what it wrote is locked and nobody sees it yet.
func holdCommits(w *testbed.World, status string) (release func()) {
	w.T.Helper()
	w.Exec(`CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$`)
	w.Exec(`CREATE CONSTRAINT TRIGGER late_commit AFTER INSERT OR UPDATE ON payments DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.status = '` + status + `') EXECUTE FUNCTION wait_at_commit()`)
	conn, err := w.DB.Raw().Acquire(w.T.Context())
	require.NoError(w.T, err)
	_, err = conn.Exec(w.T.Context(), `SELECT pg_advisory_lock(1)`)
	require.NoError(w.T, err)
	release = sync.OnceFunc(func() {
		_, err := conn.Exec(context.Background(), `SELECT pg_advisory_unlock(1)`)
		conn.Release()
		require.NoError(w.T, err)
	})
	w.T.Cleanup(release)
	return release
}

// unhurried is proxied, for a server that has all the time that its neighbours on
// the machine take.
func unhurried(t *testing.T) (*testbed.World, *testbed.Local, *pgproxy.Proxy) {
	t.Helper()
	w := testbed.New(t)
	dsn, err := url.Parse(w.URL)
	require.NoError(t, err)
	query := dsn.Query()
	query.Set("lock_timeout", "0")
	query.Set("statement_timeout", "0")
	dsn.RawQuery = query.Encode()
	proxy, err := pgproxy.Start(dsn.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	o := patient("one")
	o.Database = proxy.URL()
	return w, w.Local(o), proxy
}

// landLate cuts a service off while its COMMIT waits, and lets the COMMIT go on
// when the service has read back that there was none and is at the same phase again.
func landLate(w *testbed.World, proxy *pgproxy.Proxy, release func()) {
	w.T.Helper()
	w.Until("a COMMIT waits", func() bool { return w.WaitingForLocks() == 1 })
	proxy.Seen()
	proxy.Away(true)
	proxy.Away(false)
	read := ""
	w.Until("it is read back, and tried again", func() bool {
		read += strings.Join(proxy.Seen(), "\n")
		return strings.Contains(read, "name: KeyRead ") && w.WaitingForLocks() == 2
	})
	release()
}

// TestCommitLandsLate: a COMMIT whose client is gone may still succeed, after
// everybody has looked. The phase that is run once more in its place must not be
// run on top of it.
func TestCommitLandsLate(t *testing.T) {
	t.Parallel()

	// tooEarly loses the answer of the COMMIT of a transaction that holds the
	// statement, and shows whoever reads back what was there before it.
	tooEarly := func(t *testing.T, proxy *pgproxy.Proxy, statement, before string) (happened func()) {
		cut := proxy.AfterCommit("name: " + statement + " ")
		read := proxy.Rewrite("name: KeyRead ", `recovery_point`, `'`+before+`'::text AS recovery_point`)
		return func() {
			require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
			require.Positive(t, read.Happened())
		}
	}

	t.Run("OfAPayStep", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := proxied(t, patient("one"))
		require.Equal(t, http.StatusOK, api.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		happened := tooEarly(t, proxy, "ReservationsPin", "stock_reserved")
		a := api.Post("/v1/checkouts", "k", twoTeas(visa))
		happened()
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, "completed", a.Get("status"))
		w.RequireChargedOnce(a.Get("order_id").(string))
	})

	t.Run("OfAPaymentThatWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := proxied(t, patient("one"))
		happened := tooEarly(t, proxy, "PaymentSettle", "intent_recorded")
		a := api.Pay("k", api.Order(), careful)
		happened()
		require.Equal(t, "requires_action", a.Get("status"), a)
		require.Equal(t, 1, w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.requires_action'`), "it is told once")
		w.RequireSound()
	})

	t.Run("OfTheAnswer", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := unhurried(t)
		order := api.Order()
		release := holdCommits(w, "succeeded")
		answer := async(func() testbed.Answer { return api.Pay("k", order, visa) })
		landLate(w, proxy, release)
		a := <-answer
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.False(t, a.Replayed(), "it is the first answer")
		require.Zero(t, api.Metric("payonce_fenced_writes_total"), "nobody has taken anything over")
		w.RequireChargedOnce(order)
	})
}

// A phase that did not happen leaves nothing behind in the process that tried it.
func TestCommitOfRequiredActionIsLost(t *testing.T) {
	t.Parallel()
	for when, arm := range map[string]func(*pgproxy.Proxy, string) *pgproxy.Cut{"Before": (*pgproxy.Proxy).BeforeCommit, "After": (*pgproxy.Proxy).AfterCommit} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := proxied(t, patient("one"))
			order := api.Order()
			cut := arm(proxy, "name: PaymentSettle ")
			a := api.Pay("k", order, careful)
			require.True(t, cut.HasFired(), "nothing was cut, so nothing was shown")
			require.Equal(t, "requires_action", a.Get("status"), a)
			require.Equal(t, "requires_action", w.Text(`SELECT status FROM payments`), "what the client was told is so")
			require.Equal(t, "action_required", w.RecoveryPoint("k"))
			w.RequireSound()
		})
	}
}
