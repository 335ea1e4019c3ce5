package checkout_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// mortal is a seam at which a server's work on checkouts ends as if the process
// had been killed: the commit is there, and nothing comes after it.
type mortal struct {
	mu      sync.Mutex
	passed  []string
	diesAt  string
	diesNow func(point string) bool
}

func (m *mortal) boundary(operation, point string) {
	if operation != checkout.Create {
		return
	}
	m.mu.Lock()
	m.passed = append(m.passed, point)
	die := point == m.diesAt || m.diesNow != nil && m.diesNow(point)
	if die {
		m.diesAt = "" // once
	}
	m.mu.Unlock()
	if die {
		panic(http.ErrAbortHandler)
	}
}

// past is where the work has been, and where it is still to die.
func (m *mortal) past() (passed []string, diesAt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.passed), m.diesAt
}

// way is one course that a checkout can take.
type way struct {
	name    string
	points  []string // the recovery points on it
	status  int
	code    string
	steps   string
	body    string
	prepare func(s shop)
	during  func(s shop) // what happens between the first answer and the last
}

func ways() []way {
	forward := []string{"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded"}
	backward := []string{"payment_refused", "release_due", "cancel_due", "finished"}
	authorized := []string{"checkout_recorded", "order_created", "payment_recorded", "intent_recorded"}
	captured := append(slices.Clone(authorized), "payment_authorized", "stock_reserved", "capture_recorded")
	meddles := func(s shop) {
		// The stock is given away behind the program's back, as soon as the payment is captured.
		s.w.Exec(`CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE reservations
			SET status = 'released'; UPDATE stock SET reserved = 0, available = 10; RETURN NULL; END $$;
			CREATE TRIGGER meddle AFTER UPDATE ON payments FOR EACH ROW WHEN (OLD.status = 'authorized'
			AND NEW.status = 'succeeded') EXECUTE FUNCTION meddle()`)
	}
	return []way{
		{name: "Captured", points: append(slices.Clone(captured), "payment_made", "finished"),
			status: http.StatusCreated, steps: allCaptured, body: teasLater("pm_card_visa")},
		{name: "AuthorizationDeclined", points: append(slices.Clone(authorized), "payment_refused", "cancel_due", "finished"),
			status: http.StatusPaymentRequired, code: "payment-declined", steps: unauthorized,
			body: teasLater("pm_card_visa_chargeDeclined")},
		{name: "AuthenticatedAndCaptured", points: append(append(slices.Clone(authorized), "action_required"),
			"payment_authorized", "stock_reserved", "capture_recorded", "payment_made", "finished"),
			status: http.StatusCreated, steps: allCaptured, body: teasLater("pm_card_authenticationRequired"),
			during: authenticates(true)},
		{name: "OutOfStockOnceAuthorized", points: append(slices.Clone(authorized), "payment_authorized",
			"payment_release_due", "payment_release_begun", "cancel_due", "finished"),
			status: http.StatusConflict, code: "out-of-stock", steps: unreserved,
			body: teasLater("pm_card_visa"), prepare: func(s shop) { s.stock("tea", 1) }},
		{name: "CaptureRefused", points: append(slices.Clone(captured), "capture_refused", "release_due",
			"payment_release_due", "payment_release_begun", "cancel_due", "finished"),
			status: http.StatusPaymentRequired, code: "payment-failed", steps: uncaptured,
			body: teasLater("pm_card_visa"), prepare: func(s shop) {
				s.w.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError,
					Status: http.StatusBadRequest, Code: "parameter_invalid_integer", Times: -1})
			}},
		{name: "CaptureRefunded", points: append(slices.Clone(captured), "payment_made", "refund_due", "refund_begun",
			"release_due", "payment_release_due", "payment_release_begun", "payment_refund_begun", "cancel_due", "finished"),
			status: http.StatusPaymentRequired, code: "payment-failed", steps: captureRefunded,
			body: teasLater("pm_card_visa"), prepare: meddles},
		{name: "Completed", points: append(slices.Clone(forward), "payment_made", "finished"),
			status: http.StatusCreated, steps: allDone, body: twoTeas("pm_card_visa")},
		{name: "Declined", points: append(slices.Clone(forward), backward...),
			status: http.StatusPaymentRequired, code: "payment-declined", steps: allUndone,
			body: twoTeas("pm_card_visa_chargeDeclined")},
		{name: "OutOfStock", points: []string{"checkout_recorded", "order_created", "cancel_due", "finished"},
			status: http.StatusConflict, code: "out-of-stock",
			steps: "create_order:compensated reserve_stock:failed cancel_order:done ",
			body:  twoTeas("pm_card_visa"), prepare: func(s shop) { s.stock("tea", 1) }},
		{name: "Authenticated", points: append(slices.Clone(forward), "action_required", "payment_made", "finished"),
			status: http.StatusCreated, steps: allDone, body: twoTeas("pm_card_authenticationRequired"),
			during: authenticates(true)},
		{name: "NotAuthenticated", points: append(append(slices.Clone(forward), "action_required"), backward[1:]...),
			status: http.StatusPaymentRequired, code: "payment-failed", steps: allUndone,
			body: twoTeas("pm_card_authenticationRequired"), during: authenticates(false)},
		{name: "Refunded", points: append(slices.Clone(forward), "payment_made", "refund_due", "refund_begun",
			"release_due", "cancel_due", "finished"),
			status: http.StatusPaymentRequired, code: "payment-failed",
			steps: "create_order:compensated reserve_stock:compensated pay:compensated notify:failed refund:done " +
				"release_stock:done cancel_order:done ",
			body: twoTeas("pm_card_visa"), prepare: func(s shop) {
				// The order is canceled behind the program's back, as soon as there is a payment.
				s.w.Exec(`CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE orders
					SET status = 'canceled'; RETURN NULL; END $$;
					CREATE TRIGGER meddle AFTER UPDATE ON payments FOR EACH ROW WHEN (OLD.intent_id IS NULL
					AND NEW.intent_id IS NOT NULL) EXECUTE FUNCTION meddle()`)
			}},
	}
}

// authenticates is the customer at the 3-D Secure page, as soon as there is one.
func authenticates(ok bool) func(s shop) {
	return func(s shop) {
		if intent := s.w.Text(`SELECT intent_id FROM payments WHERE status = 'requires_action'`); intent != "" {
			_ = s.w.Sim.CompleteAuthentication(intent, ok) // or they have already
		}
	}
}

// outlive brings a checkout to its end whatever dies, by the completer and then
// by a retry of the client.
func (s shop) outlive(w way, key string) (a world.Answer) {
	s.w.T.Helper()
	s.w.Until("the checkout of "+key+" is final", func() bool {
		s.Complete()
		if w.during != nil {
			w.during(s)
		}
		a = s.checkout(key, w.body)
		return a.Err == nil && a.Status != http.StatusAccepted && !a.Problem().Retryable
	})
	return a
}

// Killed right after any recovery point of any way it can take, a checkout ends
// as it would have ended, with every effect made once.
func TestCheckout_SurvivesAKillAtEachRecoveryPoint(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for _, point := range append([]string{"none"}, w.points...) {
				t.Run(point, func(t *testing.T) {
					t.Parallel()
					m := &mortal{diesAt: point}
					s := newShop(t, world.LocalOptions{Boundary: m.boundary})
					if w.prepare != nil {
						w.prepare(s)
					}
					s.checkout("k", w.body)
					a := s.outlive(w, "k")
					require.Equal(t, w.status, a.Status, a)
					require.Equal(t, w.code, a.Code(), a)
					require.Equal(t, w.steps, sagaOf(t, a).steps())
					require.Equal(t, 1, s.w.Count(`SELECT count(*) FROM checkouts`))
					require.Equal(t, 1, s.w.Count(`SELECT count(*) FROM orders`))
					require.Empty(t, sagaViolations(t, s.w.DB.Raw(), s.w.Sim))
					passed, diesAt := m.past()
					require.Equal(t, w.points, unique(passed), "the recovery points of this way")
					if point != "none" {
						require.Empty(t, diesAt, "nobody died")
					}
				})
			}
		})
	}
}

// unique leaves out repetitions.
func unique(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// The same with the real program and a real SIGKILL. The one that finishes it is
// another process, which nobody asks.
func TestCheckout_SurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	for point, c := range map[string]struct{ body, steps string }{
		"stock_reserved":        {twoTeas("pm_card_visa"), allDone},
		"intent_recorded":       {twoTeas("pm_card_visa"), allDone},
		"payment_made":          {twoTeas("pm_card_visa"), allDone},
		"release_due":           {twoTeas("pm_card_visa_chargeDeclined"), allUndone},
		"payment_authorized":    {teasLater("pm_card_visa"), allCaptured},
		"capture_recorded":      {teasLater("pm_card_visa"), allCaptured},
		"payment_release_begun": {strings.Replace(teasLater("pm_card_visa"), `:2,`, `:11,`, 1), unreserved},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			s := shop{Local: w.Local(world.LocalOptions{}), w: w}
			s.stock("tea", 10)
			victim := w.Process(fmt.Sprintf("FAULT_AT=create_checkout/%s=kill", point))
			victim.Post("/v1/checkouts", "k", c.body)
			require.Equal(t, -1, victim.Wait(10*time.Second))
			require.Equal(t, point, w.RecoveryPoint("k"))

			heir := w.Process()
			w.Until("another process has finished it", func() bool { return w.RecoveryPoint("k") == "finished" })
			a := heir.Post("/v1/checkouts", "k", c.body)
			require.True(t, a.Replayed(), a)
			require.Equal(t, c.steps, sagaOf(t, a).steps(), a)
			s.requireWhole()
		})
	}
}

// A hundred requests with one key, and servers that die under them.
func TestCheckout_OneSagaPerKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, world.LongTimeouts("one"))
	servers := []*world.Local{s.Local, s.w.Local(world.LongTimeouts("two"))}
	answers := world.Together(60, func(i int) world.Answer {
		return servers[i%2].Post("/v1/checkouts", "k", twoTeas("pm_card_visa"))
	})
	require.Empty(t, world.Disagreements(answers))
	require.Equal(t, http.StatusCreated, s.checkout("k", twoTeas("pm_card_visa")).Status)
	require.Equal(t, 1, s.w.Count(`SELECT count(*) FROM checkouts`))
	require.Equal(t, "idempotency-key-mismatch", s.checkout("k", twoTeas("pm_card_mastercard")).Code())
	s.requireStock("tea", 8, 0)
	s.requireWhole()
}

// A holder that stood still while another finished writes nothing any more, and
// gets the other's answer.
func TestCheckout_StaleHolderIsFenced(t *testing.T) {
	t.Parallel()
	s := newShop(t, world.LongTimeouts("first"))
	s.w.WatchHolders()
	second := s.w.Local(world.LongTimeouts("second"))
	hold := s.w.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.AfterEffect)
	first := world.Async(func() world.Answer { return s.checkout("k", twoTeas("pm_card_visa")) })
	world.WaitHeld(s.w, hold)
	s.w.ExpireLeases()
	winner := second.Post("/v1/checkouts", "k", twoTeas("pm_card_visa"))
	require.Equal(t, http.StatusCreated, winner.Status, winner)
	hold.Release()
	require.Equal(t, winner.Identity(), (<-first).Identity())
	require.NotZero(t, s.Metric("payonce_fenced_writes_total"))
	s.requireStock("tea", 8, 0)
	s.requireWhole()
}

// Each answer of Stripe's to an undoing can be lost, too.
func TestCheckout_LostAnswersToCompensations(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{stripesim.Drop, stripesim.Reset, stripesim.EffectError, stripesim.StoredError,
		stripesim.EffectStoredError, stripesim.LockTimeout} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, world.LocalOptions{})
			fault := s.w.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: kind})
			body := twoTeas("pm_card_visa_chargeDeclined")
			s.checkout("k", body)
			a := s.await("k", body)
			require.Equal(t, 1, s.w.Sim.FaultsFired()[fault])
			require.Equal(t, "payment-declined", a.Code(), a)
			require.Equal(t, allUndone, sagaOf(t, a).steps())
			require.Equal(t, 1, s.w.EffectsOf(stripesim.EffectCancel))
			s.requireStock("tea", 10, 0)
			s.requireWhole()
		})
	}
}
