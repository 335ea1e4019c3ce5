package checkout_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

func TestStock(t *testing.T) {
	t.Parallel()

	t.Run("IsAbsolute", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.RequireStock("unheard-of", 0, 0)
		for range 2 {
			s.Stock("tea", 7)
			s.RequireStock("tea", 7, 0)
		}
		s.Stock("tea", 0)
		s.RequireStock("tea", 0, 0)
	})

	t.Run("LeavesAloneWhatIsReserved", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		body := shop.TwoTeas("pm_card_authenticationRequired")
		require.Equal(t, http.StatusAccepted, s.Checkout("k", body).Status)
		s.RequireStock("tea", 8, 2)
		s.Stock("tea", 100)
		s.RequireStock("tea", 100, 2)
		order := s.World.Text(`SELECT id FROM orders`)
		require.Equal(t, http.StatusOK, s.Post("/v1/orders/"+order+"/cancel", "cancel", "").Status)
		s.Await("k", body)
		s.RequireStock("tea", 102, 0)
	})

	t.Run("IsTheTenantsOwn", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		other := s.As(s.World.NewTenant())
		require.Contains(t, string(other.Get("/v1/stock/tea").Body), `"available":0`)
		a := other.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "out-of-stock", a.Code(), a)
		s.RequireStock("tea", 10, 0)
		require.Equal(t, http.StatusNotFound, s.Get("/v1/checkouts/"+shop.SagaOf(t, a).ID).Status)
	})

	t.Run("AcceptsAnySKU", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		for _, sku := range []string{"a/b", "100%", "%41", "a b", "tea+milk", "茶", "?q=1#x", "..",
			strings.Repeat("ü", 64)} {
			path := "/v1/stock/" + strings.ReplaceAll(url.PathEscape(sku), "..", "%2E%2E")
			a := s.Do("PUT", path, `{"available":3}`)
			require.Equal(t, sku, a.Get("sku"), a)
			require.Equal(t, 3, s.World.Count(`SELECT available FROM stock WHERE sku = $1`, sku))
			require.Equal(t, string(a.Body), string(s.Get(path).Body))
		}
		for _, sku := range []string{strings.Repeat("x", 65), "a%00b", "%ff"} {
			require.Equal(t, "invalid-request", s.Get("/v1/stock/"+sku).Code(), sku)
		}
	})
}

func TestReservations(t *testing.T) {
	t.Parallel()

	t.Run("AreAllOrNothing", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.Stock("cup", 1)
		a := s.Checkout("k", basketBody("tea", 2, "cup", 1, "cup", 1)) // two lines of one thing
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Contains(t, a.Problem().Detail, "not enough of cup.")
		s.RequireStock("tea", 10, 0)
		s.RequireStock("cup", 1, 0)

		s.Stock("cup", 2)
		require.Equal(t, a.Identity(), s.Checkout("k", basketBody("tea", 2, "cup", 1, "cup", 1)).Identity(),
			"what was refused stays refused")
		require.Equal(t, http.StatusCreated, s.Checkout("k2", basketBody("tea", 2, "cup", 1, "cup", 1)).Status)
		s.RequireStock("cup", 0, 0)
		s.RequireWhole()
	})

	// Forty customers want a pair of things each, named in either order, of which
	// there are enough for ten. Two servers, one database, no deadlock: every
	// answer is a sale or a definite no.
	t.Run("NeverOversell", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{Name: "one"})
		servers := []*world.Local{s.Local, s.World.Local(world.LocalOptions{Name: "two"})}
		s.Stock("tea", 20)
		s.Stock("cup", 1000)
		answers := world.Together(40, func(i int) world.Answer {
			body := basketBody("tea", 2, "cup", 1)
			if i%3 == 0 {
				body = basketBody("cup", 1, "tea", 2)
			}
			return servers[i%2].Post("/v1/checkouts", fmt.Sprint("k", i), body)
		})
		sold := 0
		for _, a := range answers {
			if a.Status == http.StatusCreated {
				sold++
				continue
			}
			require.Equal(t, "out-of-stock", a.Code(), a)
		}
		require.Equal(t, 10, sold)
		s.RequireStock("tea", 0, 0)
		s.RequireStock("cup", 990, 0)
		require.Equal(t, 10, s.World.Sim.ChargeCount(""))
		s.RequireWhole()
	})

	// Without the guard in the UPDATE the row's own constraint still stands, and
	// a sale too many is an error instead of a promise.
	t.Run("NeverOversellByConstraint", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		_, err := s.World.DB.Raw().Exec(t.Context(),
			`UPDATE stock SET available = available - 11, reserved = reserved + 11`)
		require.True(t, postgres.Violates(err, "stock_is_never_oversold"), "%v", err)
	})

	t.Run("RunOutBeforeThePaymentBegins", func(t *testing.T) {
		t.Parallel()
		var dies atomic.Pointer[func()]
		s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies)})
		die := func() { panic(http.ErrAbortHandler) }
		dies.Store(&die)
		s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "stock_reserved", s.World.RecoveryPoint("k"))
		s.RequireStock("tea", 8, 2)
		s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second'`)

		s.Complete() // it comes back after a long night, and does not charge anybody
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Contains(t, a.Problem().Detail, "ran out")
		require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
		require.Empty(t, s.World.Sim.Effects())
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})

	t.Run("AreReleasedWhenACheckoutIsAbandoned", func(t *testing.T) {
		t.Parallel()
		var dies atomic.Pointer[func()]
		s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies)})
		die := func() { panic(http.ErrAbortHandler) }
		dies.Store(&die)
		s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "stock_reserved", s.World.RecoveryPoint("k"))
		expire := func() int {
			n, err := s.Checkouts.ExpireReservations(t.Context())
			require.NoError(t, err)
			return n
		}
		s.World.ExpireLeases()
		require.Zero(t, expire(), "its time is not up")
		s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second'`)
		s.World.Exec(`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute'
			WHERE finished_at IS NULL`)
		require.Zero(t, expire(), "somebody holds the claim, and will see for himself")
		s.World.ExpireLeases()
		s.World.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE finished_at IS NULL`)
		require.Equal(t, 1, expire())
		require.Zero(t, expire())
		s.RequireStock("tea", 10, 0)
		require.Equal(t, "create_order:done reserve_stock:compensated pay:failed release_stock:done cancel_order:pending ",
			shop.SagaOf(t, s.Get("/v1/checkouts/"+s.World.Text(`SELECT id FROM checkouts`))).Course())

		s.Complete() // it was taken off the parking place, to undo the rest
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.True(t, a.Replayed())
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
		require.Empty(t, s.World.Sim.Effects())
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})
}

// TestReservationsOfOneCheckoutStopNoOther: the oldest one cannot be released, whatever is done.
func TestReservationsOfOneCheckoutStopNoOther(t *testing.T) {
	t.Parallel()
	var dies atomic.Pointer[func()]
	s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies)})
	die := func() { panic(http.ErrAbortHandler) }
	for _, key := range []string{"broken", "well", "too"} {
		dies.Store(&die)
		s.Checkout(key, shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "stock_reserved", s.World.RecoveryPoint(key))
	}
	s.RequireStock("tea", 4, 6)
	s.World.ExpireLeases()
	s.World.Exec(`UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE finished_at IS NULL`)
	s.World.Exec(`UPDATE reservations r SET expires_at = clock_timestamp() - CASE c.idempotency_key
		WHEN 'broken' THEN interval '2 hours' ELSE interval '1 hour' END FROM checkouts c WHERE c.id = r.checkout_id`)
	s.World.Exec(`CREATE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'this one breaks' USING ERRCODE = 'integrity_constraint_violation'; END $$`)
	s.World.Exec(`DO $$ BEGIN EXECUTE format('CREATE TRIGGER breaks BEFORE UPDATE ON checkout_steps FOR EACH ROW
		WHEN (OLD.checkout_id = %L) EXECUTE FUNCTION breaks()',
		(SELECT id FROM checkouts WHERE idempotency_key = 'broken')); END $$`)

	n, err := s.Checkouts.ExpireReservations(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n, "both behind it")
	s.RequireStock("tea", 8, 2)
	_, err = s.Checkouts.Measure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1.0, s.Metric("payonce_reservations_stuck"))

	s.World.Exec(`DROP TRIGGER breaks ON checkout_steps`)
	n, err = s.Checkouts.ExpireReservations(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it has just failed, and leaves room for the others")
	again := s.World.Local(world.LocalOptions{Name: "another process"})
	n, err = again.Checkouts.ExpireReservations(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s.RequireStock("tea", 10, 0)
	_, err = s.Checkouts.Measure(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Metric("payonce_reservations_stuck"))
}

// TestReservationWhoseRequestCannotBeOpened is kept: without the request it is unknown how the checkout fails.
func TestReservationWhoseRequestCannotBeOpened(t *testing.T) {
	t.Parallel()
	var dies atomic.Pointer[func()]
	die := func() { panic(http.ErrAbortHandler) }
	dies.Store(&die)
	log := &logs.Buffer{}
	s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies), Log: log.Logger(slog.LevelError)})
	s.Checkout("k", shop.TwoTeas("pm_card_visa"))
	s.World.ExpireLeases()
	s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 hour'`)
	box, err := sealed.New(base64.StdEncoding.EncodeToString([]byte("a key which this process has not")))
	require.NoError(t, err)
	s.World.Unguarded(`UPDATE idempotency_keys SET request = $1 WHERE key = 'k'`,
		box.Seal(sealed.Place{}, []byte("{}")))
	n, err := s.Checkouts.ExpireReservations(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Contains(t, log.Take(), "open idempotency_keys.request")
	s.RequireStock("tea", 8, 2)
}

// TestReservationsThatRunOutMeanwhile: who looks for reservations that ran out has
// begun to look before the payment began, and locks the key after its holder has
// begun it and given the key back, because nobody knows what came of it. What is
// seen of the payment then is older than what is locked, and the money may be gone.
func TestReservationsThatRunOutMeanwhile(t *testing.T) {
	t.Parallel()
	var dies atomic.Pointer[func()]
	s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies)})
	die := func() { panic(http.ErrAbortHandler) }
	dies.Store(&die)
	body := shop.TwoTeas("pm_card_visa")
	s.Checkout("k", body)
	require.Equal(t, "stock_reserved", s.World.RecoveryPoint("k"))
	s.World.ExpireLeases()

	// The look stands still over its first row, which is where a slow disk would have it.
	const lock = 4711
	s.World.Exec(fmt.Sprintf(`CREATE FUNCTION slowly() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN 'infinity'; END $$`, lock))
	proxy, err := pgproxy.Start(s.World.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	slowed := proxy.Rewrite("-- name: ReservationOverdue", `r\.expires_at < clock_timestamp\(\)`,
		"r.expires_at < slowly()")
	patiently, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	q := patiently.Query()
	q.Set("lock_timeout", "60000")
	q.Set("statement_timeout", "60000")
	patiently.RawQuery = q.Encode()
	slow := s.World.Local(world.LocalOptions{Database: patiently.String(), Name: "slow"})
	type found struct {
		n   int
		err error
	}
	confirming := s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop,
		Times: -1}) // it is charged, and nobody hears of it
	held, err := s.World.DB.Raw().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = held.Rollback(t.Context()) }()
	_, err = held.Exec(t.Context(),
		`SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock(4711)`)
	require.NoError(t, err)
	looked := world.Async(func() found {
		n, err := slow.Checkouts.ExpireReservations(t.Context())
		return found{n, err}
	})
	s.World.Until("the look has begun", func() bool { return s.World.WaitingForLocks() == 1 })
	require.Equal(t, http.StatusAccepted, s.Checkout("k", body).Status)
	require.Positive(t, s.World.Sim.FaultsFired()[confirming])
	require.Equal(t, 1, s.World.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'k'
		AND leased_until = '-infinity'`), "it was given back")
	require.NoError(t, held.Rollback(t.Context()))
	got := <-looked
	require.NoError(t, got.err)
	require.Positive(t, slowed.Happened())
	require.Zero(t, got.n, "the payment has begun: nothing of it is called off")
	s.RequireStock("tea", 8, 2)

	s.World.Sim.ClearFaults()
	a := s.Await("k", body)
	require.Equal(t, http.StatusCreated, a.Status, a)
	require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
	require.Equal(t, 1, s.World.Sim.ChargeCount(""))
	s.RequireStock("tea", 8, 0)
	s.RequireWhole()
}

// basketBody is a checkout of pairs of a SKU and a quantity, at a dollar each.
func basketBody(pairs ...any) string {
	var items []string
	for i := 0; i < len(pairs); i += 2 {
		items = append(items, fmt.Sprintf(`{"sku":%q,"quantity":%d,"unit_amount":100}`, pairs[i], pairs[i+1]))
	}
	return `{"currency":"usd","items":[` + strings.Join(items, ",") + `],"payment_method":"pm_card_visa"}`
}
