package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

const aDay = 25 * time.Hour // longer than Stripe remembers a key

// backup is a world with a database that was copied while a payment, or a
// checkout, was between its first two phases, and whose Stripe has gone on since.
type backup struct {
	*books
	dsn   string
	age   time.Duration
	today func()
}

// halfway plays the life that will be lost: first is called, and the database is
// copied in the middle of it.
func halfway(t *testing.T, age time.Duration, first func(b *books)) *backup {
	t.Helper()
	k := &backup{age: age}
	k.books, k.today = longAgo(t, age, testbed.LocalOptions{Boundary: func(operation, point string) {
		if point == "payment_recorded" && k.dsn == "" {
			k.dsn = k.copyDatabase("half")
		}
	}})
	first(k.books)
	require.NotEmpty(t, k.dsn, "nothing was copied")
	return k
}

// restored is the copy at work, when so much time has passed for both sides.
func (k *backup) restored(o testbed.LocalOptions) *books {
	k.T.Helper()
	w := k.on(k.dsn)
	w.Exec("ALTER TABLE stripe_calls DISABLE TRIGGER USER")
	w.Exec("UPDATE stripe_calls SET first_sent_at = first_sent_at - $1::interval, last_sent_at = last_sent_at - $1::interval", k.age)
	w.Exec("ALTER TABLE stripe_calls ENABLE TRIGGER USER")
	w.Exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval WHERE finished_at IS NULL", k.age)
	w.ExpireLeases()
	k.today()
	return booksWith(w, o)
}

// TestForgottenCreation: a backup knows that a payment was about to make its
// PaymentIntent, and Stripe has forgotten under which key. The intent may be there,
// and paid. Whoever makes another one charges the card twice.
func TestForgottenCreation(t *testing.T) {
	t.Parallel()
	pay := func(order *string, card string) func(*books) {
		return func(b *books) {
			*order = b.api.Order()
			require.NoError(b.T, b.api.Pay("k", *order, card).Err)
		}
	}

	t.Run("ThatWasPaidIsPaid", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, pay(&order, visa))
		r := k.restored(testbed.LocalOptions{})
		require.Equal(t, 1, r.api.Complete())
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		a := r.api.Pay("k", order, visa)
		require.Equal(t, http.StatusCreated, a.Status, a)
		r.RequireChargedOnce(order)
		r.reconcile()
		r.requireClean()
	})

	t.Run("ThatWasPaidIsPaidForACheckoutToo", func(t *testing.T) {
		t.Parallel()
		k := halfway(t, aDay, func(b *books) {
			require.Equal(b.T, http.StatusOK, b.api.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
			require.Equal(b.T, http.StatusCreated, b.api.Post("/v1/checkouts", "k", twoTeas(visa)).Status)
		})
		r := k.restored(testbed.LocalOptions{})
		r.api.Complete()
		a := r.api.Post("/v1/checkouts", "k", twoTeas(visa))
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, allDone, sagaOf(t, a).steps())
		require.Equal(t, 1, r.Sim.ChargeCount(""))
		s := shop{Local: r.api, w: r.World}
		s.requireStock("tea", 8, 0)
		s.requireWhole()
	})

	t.Run("ThatWasDeclinedIsDeclined", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, pay(&order, declining))
		r := k.restored(testbed.LocalOptions{})
		r.api.Complete()
		a := r.api.Pay("k", order, declining)
		require.Equal(t, "payment-declined", a.Code(), a)
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		require.Equal(t, 1, r.Count("SELECT attempts FROM stripe_calls WHERE operation = 'confirm'"), "who was told of a decline is not charged behind their back")
		require.Equal(t, http.StatusCreated, r.api.Pay("k2", order, visa).Status, "and may try another card")
		r.RequireChargedOnce(order)
	})

	t.Run("ThatWaitsForItsCustomerWaits", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, pay(&order, careful))
		r := k.restored(testbed.LocalOptions{ActionTimeout: 100 * time.Hour})
		r.api.Complete()
		waits := r.api.Pay("k", order, careful)
		require.Equal(t, "requires_action", waits.Get("status"), waits)
		require.NoError(t, r.Sim.CompleteAuthentication(waits.Get("stripe", "payment_intent").(string), true))
		require.Equal(t, http.StatusCreated, r.api.Pay("k", order, careful).Status)
		r.RequireChargedOnce(order)
	})

	t.Run("ThatWasNeverConfirmedIsConfirmed", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, func(b *books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, Times: -1})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
		})
		r := k.restored(testbed.LocalOptions{})
		r.api.Complete()
		require.Equal(t, http.StatusCreated, r.api.Pay("k", order, visa).Status)
		require.Equal(t, 1, intentsOf(r, order), "the one that was there was used")
		r.RequireChargedOnce(order)
	})

	// The life that was lost could not reach Stripe at first, and made the intent hours
	// later: far from the moment that this database knows of.
	t.Run("ThatWasMadeHoursLaterIsFoundBySearch", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, func(b *books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
			b.Sim.Advance(5 * time.Hour)
			require.Equal(b.T, http.StatusCreated, b.api.PayUntilFinal("k", order, visa).Status)
		})
		r := k.restored(testbed.LocalOptions{})
		r.api.Complete()
		require.Equal(t, http.StatusCreated, r.api.Pay("k", order, visa).Status)
		r.RequireChargedOnce(order)
	})

	// Stripe's search has an outage. The list of what was made at that moment has not.
	t.Run("ThatSearchDoesNotShowIsFoundInTheList", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, func(b *books) {
			b.Sim.SetSearchLag(-1)
			pay(&order, visa)(b)
		})
		r := k.restored(testbed.LocalOptions{})
		r.api.Complete()
		require.Equal(t, http.StatusCreated, r.api.Pay("k", order, visa).Status)
		r.RequireChargedOnce(order)
	})

	t.Run("ThatCannotBeLookedForIsNotMadeAgain", func(t *testing.T) {
		t.Parallel()
		for _, op := range []string{"intent.list", "intent.search", "intent.get"} {
			t.Run(op, func(t *testing.T) {
				t.Parallel()
				var order string
				k := halfway(t, aDay, pay(&order, visa))
				r := k.restored(testbed.LocalOptions{})
				blind := r.Sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.Refuse, Status: http.StatusInternalServerError, Times: -1})
				a := r.api.Pay("k", order, visa)
				require.Equal(t, http.StatusAccepted, a.Status, a)
				require.Positive(t, r.Sim.FaultsFired()[blind])
				require.Equal(t, 1, intentsOf(r, order))
				r.Sim.ClearFaults()
				require.Equal(t, http.StatusCreated, r.api.Pay("k", order, visa).Status)
				r.RequireChargedOnce(order)
			})
		}
	})

	// The life that was lost died before it sent anything. That there is nothing is
	// known when the search must have seen whatever could have been made.
	t.Run("ThatMadeNothingIsMadeWhenThatIsCertain", func(t *testing.T) {
		t.Parallel()
		for age, certain := range map[time.Duration]bool{12*time.Hour + 30*time.Minute: false, 14 * time.Hour: true, aDay: true} {
			t.Run(age.String(), func(t *testing.T) {
				t.Parallel()
				var order string
				k := halfway(t, age, func(b *books) {
					b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
					pay(&order, visa)(b)
					b.Sim.ClearFaults()
				})
				r := k.restored(testbed.LocalOptions{})
				a := r.api.Pay("k", order, visa)
				if !certain {
					require.Equal(t, http.StatusAccepted, a.Status, a)
					require.Zero(t, intentsOf(r, order))
					require.Equal(t, 1, r.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND last_error LIKE '%may not have seen yet%'"))
					return
				}
				require.Equal(t, http.StatusCreated, a.Status, a)
				require.Equal(t, "2", r.Text("SELECT intent_number FROM payments WHERE order_id = $1", order))
				r.RequireChargedOnce(order)
			})
		}
	})

	t.Run("IsNotMistakenForAnothers", func(t *testing.T) {
		t.Parallel()
		var order string
		k := halfway(t, aDay, func(b *books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
			require.Equal(b.T, http.StatusCreated, b.api.Pay("other", b.api.Order(), visa).Status)
		})
		r := k.restored(testbed.LocalOptions{})
		require.Equal(t, http.StatusCreated, r.api.Pay("k", order, visa).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order))
		require.Equal(t, 2, r.Sim.ChargeCount(""))
	})
}

func intentsOf(b *books, order string) (n int) {
	for _, e := range b.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated && e.Metadata["order_id"] == order {
			n++
		}
	}
	return n
}
