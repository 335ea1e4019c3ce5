package payments_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

const (
	aDay      = 25 * time.Hour // longer than Stripe remembers a key
	longAfter = 26 * time.Hour // longer than anything of that time can come to light
)

// noSearch is an account without Stripe's search.
var noSearch = stripesim.Fault{Op: "intent.search", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Times: -1}

// TestCreationPastKeyLifetime: a backup knows that a payment was about to make its
// PaymentIntent, and Stripe has forgotten under which key. The intent may be there,
// and paid. Whoever makes another one charges the card twice.
func TestCreationPastKeyLifetime(t *testing.T) {
	t.Parallel()
	pay := func(order *string, card string) func(*world.Books) {
		return func(b *world.Books) {
			*order = b.API.Order()
			require.NoError(b.T, b.API.Pay("k", *order, card).Err)
		}
	}

	t.Run("ThatWasPaidIsPaid", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, pay(&order, visa))
		r := k.Restored(world.LocalOptions{})
		require.Equal(t, 1, r.API.Complete())
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		a := r.API.Pay("k", order, visa)
		require.Equal(t, http.StatusCreated, a.Status, a)
		r.RequireChargedOnce(order)
		r.Reconcile()
		r.RequireClean()
	})

	t.Run("ThatWasDeclinedIsDeclined", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, pay(&order, declining))
		r := k.Restored(world.LocalOptions{})
		r.API.Complete()
		a := r.API.Pay("k", order, declining)
		require.Equal(t, "payment-declined", a.Code(), a)
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		require.Equal(t, 1, r.Count("SELECT attempts FROM stripe_calls WHERE operation = 'confirm'"),
			"who was told of a decline is not charged behind their back")
		require.Equal(t, http.StatusCreated, r.API.Pay("k2", order, visa).Status, "and may try another card")
		r.RequireChargedOnce(order)
	})

	t.Run("ThatWaitsForItsCustomerWaits", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, pay(&order, careful))
		r := k.Restored(world.LocalOptions{ActionTimeout: 100 * time.Hour})
		r.API.Complete()
		waits := r.API.Pay("k", order, careful)
		require.Equal(t, "requires_action", waits.Get("status"), waits)
		require.NoError(t, r.Sim.CompleteAuthentication(waits.Get("stripe", "payment_intent").(string), true))
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, careful).Status)
		r.RequireChargedOnce(order)
	})

	t.Run("ThatWasNeverConfirmedIsConfirmed", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, func(b *world.Books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, Times: -1})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
		})
		r := k.Restored(world.LocalOptions{})
		r.API.Complete()
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		require.Equal(t, 1, intentsOf(r, order), "the one that was there was used")
		r.RequireChargedOnce(order)
	})

	// The life that was lost could not reach Stripe at first, and made the intent hours
	// later: far from the moment that this database knows of. Not every account has
	// Stripe's search, and a search that has it may not show it; the list always does.
	madeLater := func(card string, search stripesim.Fault, lag time.Duration) (*world.Books, string) {
		var order string
		k := world.NewBackup(t, aDay, func(b *world.Books) {
			b.Sim.SetSearchLag(lag)
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, card)(b)
			b.Sim.ClearFaults()
			b.Sim.Advance(5 * time.Hour)
			require.Equal(b.T, http.StatusCreated, b.API.PayUntilFinal("k", order, card).Status)
		})
		r := k.Restored(world.LocalOptions{})
		if search.Op != "" {
			r.Sim.Inject(search)
		}
		return r, order
	}
	for name, with := range map[string]struct {
		search stripesim.Fault
		lag    time.Duration
	}{
		"IsFoundBySearch":                 {lag: time.Second},
		"IsFoundWhenSearchDoesNotShowIt":  {lag: -1},
		"IsFoundInAnAccountWithoutSearch": {search: noSearch},
	} {
		t.Run("ThatWasMadeHoursLater"+name, func(t *testing.T) {
			t.Parallel()
			r, order := madeLater(visa, with.search, with.lag)
			r.API.Complete()
			require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
			r.RequireChargedOnce(order)
		})
	}

	// The life that was lost gave the first intent up and paid with a second. A payment that
	// takes the first that is found, and confirms it, charges the card again.
	t.Run("IsTheOneThatWasPaid", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, func(b *world.Books) {
			order = b.API.Order()
			b.OrphanIntent(order, world.Unconfirmed)
			require.Equal(b.T, http.StatusCreated, b.API.Pay("k", order, visa).Status)
		})
		r := k.Restored(world.LocalOptions{})
		require.Equal(t, 2, intentsOf(r, order))
		r.Sim.Inject(noSearch)
		r.API.Complete()
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		require.Equal(t, "paid", r.API.Get("/v1/orders/"+order).Get("status"))
	})

	// The list of a busy account is long. It is read in pieces, each of them once, and
	// by whoever comes next where a process dies over it.
	t.Run("IsSearchedInPages", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, func(b *world.Books) {
			pay(&order, visa)(b)
			b.Sim.Advance(time.Hour)
			others(b, payments.Rules.FindPagesMax*100+50)
		})
		// A request's time is for as many pages, also on a machine that is busy.
		r := k.Restored(world.LocalOptions{StripeTimeout: 20 * time.Second, Lease: 2 * time.Minute})
		// so that the others are in the first stretch, before it
		r.Exec("UPDATE stripe_calls SET last_sent_at = last_sent_at + interval '2 hours'")
		r.Sim.Inject(noSearch)
		a := r.API.Pay("k", order, visa)
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, payments.Rules.FindPagesMax, r.Count("SELECT pages FROM intent_searches"),
			"one run takes no more of the list than that")
		require.Equal(t, 1, r.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND last_error LIKE '%and "+
			"there are more%'"))
		after := r.Text("SELECT after_id FROM intent_searches")

		dies := r.Sim.Inject(stripesim.Fault{Op: "intent.list", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, r.API.Pay("k", order, visa).Status)
		require.Positive(t, r.Sim.FaultsFired()[dies])
		require.Equal(t, after, r.Text("SELECT after_id FROM intent_searches"), "what was not read is not passed over")
		r.Sim.ClearFaults()
		r.Sim.Inject(noSearch)
		r.ExpireLeases()
		r.API.Complete()
		require.Equal(t, "succeeded", r.Text("SELECT status FROM payments WHERE order_id = $1", order))
		require.Equal(t, payments.Rules.FindPagesMax, r.Count("SELECT pages FROM intent_searches"),
			"the page that shows it is the last that was read")
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
	})

	// A holder that has lost its lease knows less than its successor.
	t.Run("IsSearchedUnderTheFence", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, pay(&order, visa))
		r := k.Restored(world.LocalOptions{})
		r.Exec("INSERT INTO intent_searches (tenant_id, stripe_key, from_at, until_at) SELECT tenant_id, stripe_key, " +
			"first_sent_at, last_sent_at FROM stripe_calls")
		token := int64(r.Count("SELECT lease_token FROM idempotency_keys WHERE key = 'k'"))
		read := func(token int64) error {
			_, err := r.DB.IntentSearchRead(t.Context(), db.IntentSearchReadParams{
				TenantID: r.Tenant.ID, Key: "k", LeaseToken: token,
				StripeKey: r.Text("SELECT stripe_key FROM intent_searches"), Found: []string{}, SecondPass: true,
				Ended: true,
			})
			return err
		}
		require.ErrorIs(t, read(token-1), postgres.ErrNoRows)
		require.Equal(t, 1, r.Count("SELECT count(*) FROM intent_searches WHERE ended_at IS NULL"))
		require.NoError(t, read(token))
	})

	// Stripe's search has an outage. The list of what was made at that moment has not.
	t.Run("ThatSearchDoesNotShowIsFoundInTheList", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, func(b *world.Books) {
			b.Sim.SetSearchLag(-1)
			pay(&order, visa)(b)
		})
		r := k.Restored(world.LocalOptions{})
		r.API.Complete()
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		r.RequireChargedOnce(order)
	})

	t.Run("ThatCannotBeSearchedForIsNotMadeAgain", func(t *testing.T) {
		t.Parallel()
		for _, op := range []string{"intent.list", "intent.get"} {
			t.Run(op, func(t *testing.T) {
				t.Parallel()
				var order string
				k := world.NewBackup(t, aDay, pay(&order, visa))
				r := k.Restored(world.LocalOptions{})
				r.Sim.Inject(noSearch) // it would show that it was paid
				blind := r.Sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.Refuse,
					Status: http.StatusInternalServerError, Times: -1})
				a := r.API.Pay("k", order, visa)
				require.Equal(t, http.StatusAccepted, a.Status, a)
				require.Positive(t, r.Sim.FaultsFired()[blind])
				require.Equal(t, 1, intentsOf(r, order))
				r.Sim.ClearFaults()
				require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
				r.RequireChargedOnce(order)
			})
		}
	})

	// The life that was lost died before it sent anything. That there is nothing is
	// known when whatever could have been made must have come to light, in an account
	// with Stripe's search and in one without.
	t.Run("CreatesIntentOnceAbsenceIsProven", func(t *testing.T) {
		t.Parallel()
		for age, certain := range map[time.Duration]bool{12*time.Hour + 30*time.Minute: false,
			24*time.Hour + 30*time.Minute: false, longAfter: true} {
			t.Run(age.String(), func(t *testing.T) {
				t.Parallel()
				var order string
				k := world.NewBackup(t, age, func(b *world.Books) {
					b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
					pay(&order, visa)(b)
					b.Sim.ClearFaults()
				})
				r := k.Restored(world.LocalOptions{})
				if age != longAfter {
					r.Sim.Inject(noSearch)
				}
				a := r.API.Pay("k", order, visa)
				if !certain {
					require.Equal(t, http.StatusAccepted, a.Status, a)
					require.Zero(t, intentsOf(r, order))
					require.Equal(t, 1,
						r.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND last_error LIKE '%may still appear%'"))

					r.AgeWork(longAfter - age)
					a = r.API.Pay("k", order, visa)
				}
				require.Equal(t, http.StatusCreated, a.Status, a)
				require.Equal(t, "2", r.Text("SELECT intent_number FROM payments WHERE order_id = $1", order))
				r.RequireChargedOnce(order)
			})
		}
	})

	// Stripe's clock is behind the database's by more than it takes to make an intent.
	t.Run("IsFoundByAClockThatIsLate", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, aDay, pay(&order, visa))
		r := k.Restored(world.LocalOptions{})
		r.AgeWork(-90 * time.Second)
		r.Sim.Inject(noSearch)
		r.API.Complete()
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
	})

	// An intent that was canceled is not what is looked for, and does not end the wait
	// for what may still come to light.
	t.Run("IsNotMistakenForWhatWasCanceled", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, 12*time.Hour+30*time.Minute, func(b *world.Books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
			_, err := b.Stripe.PaymentIntents.Cancel(b.OrphanIntent(order, world.Unconfirmed).ID, nil)
			require.NoError(t, err)
		})
		r := k.Restored(world.LocalOptions{})
		r.Sim.Inject(noSearch)
		require.Equal(t, http.StatusAccepted, r.API.Pay("k", order, visa).Status)
		require.Equal(t, 1, r.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND last_error LIKE '%may "+
			"still appear%'"))
		require.Equal(t, 1, intentsOf(r, order))
	})

	t.Run("IsNotMistakenForAnotherAmount", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, longAfter, func(b *world.Books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
			b.OrphanIntent(order, world.Unconfirmed,
				func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) })
		})
		r := k.Restored(world.LocalOptions{})
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		r.RequireChargedOnce(order)
		r.Reconcile()
		require.Empty(t, r.Discrepancies())
	})

	t.Run("IsNotMistakenForAnothers", func(t *testing.T) {
		t.Parallel()
		var order string
		k := world.NewBackup(t, longAfter, func(b *world.Books) {
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
			pay(&order, visa)(b)
			b.Sim.ClearFaults()
			require.Equal(b.T, http.StatusCreated, b.API.Pay("other", b.API.Order(), visa).Status)
		})
		r := k.Restored(world.LocalOptions{})
		require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order))
		require.Equal(t, 2, r.Sim.ChargeCount(""))
	})
}

// TestCreationErrorOfALostPayment: Stripe has stored an error for the creation of an intent that it had made. The
// payment was paid with that intent hours later, and the database goes back to before it. To the order's next payment,
// under another key, Stripe gives the same error for the same creation.
func TestCreationErrorOfALostPayment(t *testing.T) {
	t.Parallel()
	for name, search := range map[string]stripesim.Fault{"": {}, "InAnAccountWithoutSearch": noSearch} {
		t.Run("ChargesNothing"+name, func(t *testing.T) {
			t.Parallel()
			const hours = calls.ResendWithin + time.Hour
			b, today := world.LongAgo(t, hours, world.LocalOptions{})
			order := b.API.Order()
			dsn := b.CopyDatabase()
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.EffectStoredError})
			require.Equal(t, http.StatusAccepted, b.API.Pay("lost", order, visa).Status)
			today()
			b.AgeWork(hours)
			require.Equal(t, 1, b.API.Complete())
			require.Equal(t, http.StatusCreated, b.API.Pay("lost", order, visa).Status)

			r := world.BooksOn(b.OnDatabase(dsn))
			r.Exec("UPDATE orders SET created_at = created_at - $1::interval", hours)
			if search.Op != "" {
				r.Sim.Inject(search)
			}
			paid := r.API.PayUntilFinal("next", order, visa)
			require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
			require.Equal(t, http.StatusCreated, paid.Status, paid)
			require.Equal(t, 1, intentsOf(r, order))
			r.Reconcile()
			r.RequireClean()
		})
	}
}

// TestBackupDuringASearch: a backup is made while the list is read. The life that was lost found nothing, made the next
// intent and was paid. What was read in it ends at the backup.
func TestBackupDuringASearch(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"WithAPageThatIsNotRead": false, "ThatHasEnded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, today := world.LongAgo(t, aDay, world.LocalOptions{})
			order := w.API.Order()
			w.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError})
			w.Sim.Inject(noSearch)
			require.Equal(t, http.StatusAccepted, w.API.Pay("k", order, visa).Status)
			w.Exec("UPDATE stripe_calls SET request_ids = '{}'") // as if the first response had been lost
			w.Sim.Inject(stripesim.Fault{Op: "intent.list", Kind: stripesim.Refuse, Status: http.StatusInternalServerError,
				Skip: 1, Times: -1})
			require.Equal(t, http.StatusAccepted, w.API.Pay("k", order, visa).Status)
			require.Equal(t, 1, w.Count("SELECT count(*) FROM intent_searches WHERE second_pass AND ended_at IS NULL"))
			dsn := w.CopyDatabase()
			w.Sim.ClearFaults()
			w.Sim.Advance(10 * time.Minute)
			require.Equal(t, http.StatusCreated, w.API.PayUntilFinal("k", order, visa).Status)
			require.Equal(t, 1, w.Sim.ChargeCount(order))

			r := world.BooksOn(w.OnDatabase(dsn))
			if ended {
				r.Exec("UPDATE intent_searches SET ended_at = until_at")
			}
			r.AgeWork(aDay)
			today()
			r.Sim.Inject(noSearch)
			require.Equal(t, http.StatusCreated, r.API.PayUntilFinal("k", order, visa).Status)
			require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		})
	}
}

// TestStoredErrorInABusyAccount: the creation of an intent has a stored error, and many others were made since the
// order, for which Stripe says that the error is of the first request under the key; or before it. No list is read in
// which it cannot be.
func TestStoredErrorInABusyAccount(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"BeforeTheOrder": true, "SinceTheOrder": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, today := world.LongAgo(t, time.Hour, world.LocalOptions{})
			if before {
				others(b, payments.Rules.FindPagesMax*100+50)
			}
			today()
			order := b.API.Order()
			if !before {
				others(b, payments.Rules.FindPagesMax*100+50)
			}
			b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError})
			require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, visa).Status)
			if before {
				b.Exec("UPDATE stripe_calls SET request_ids = '{}'") // as if the first response had been lost
			}
			require.Equal(t, http.StatusCreated, b.API.Pay("k", order, visa).Status)
		})
	}
}

func intentsOf(b *world.Books, order string) (n int) {
	for _, e := range b.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated && e.Metadata["order_id"] == order {
			n++
		}
	}
	return n
}

// others makes intents of somebody else's on the same account.
func others(b *world.Books, n int) {
	b.T.Helper()
	made := world.Together(4, func(i int) (err error) {
		client := &http.Client{}
		for range n/4 + 1 {
			req, _ := http.NewRequest(http.MethodPost, b.StripeURL+"/v1/payment_intents",
				strings.NewReader("amount=100&currency=usd&payment_method_types[]=card"))
			req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d: %w", res.StatusCode, err)
			}
		}
		return nil
	})
	require.NoError(b.T, errors.Join(made...))
}
