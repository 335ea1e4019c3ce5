package lives_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/lives"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/world"
)

const (
	visa    = "pm_card_visa"
	careful = "pm_card_authenticationRequired"
	aDay    = 28 * time.Hour // longer than Stripe remembers a key
)

// restored is a service on a backup, whose life has begun.
func restored(b *world.Books, backup string) *world.Books {
	r := world.BooksOn(b.OnDatabase(backup))
	_, err := lives.Begin(b.T.Context(), r.DB, time.Time{}, false)
	require.NoError(b.T, err)
	return r
}

// TestCustomerOfALostLife: the lost life has left a customer with a page on which he can pay, and Stripe has forgotten the
// key of the intent. Whoever makes another intent while he can still use his is paid twice.
func TestCustomerOfALostLife(t *testing.T) {
	t.Parallel()
	for _, capture := range []string{"automatic", "manual"} {
		t.Run(capture, func(t *testing.T) {
			t.Parallel()
			b, today := world.LongAgo(t, aDay, world.LocalOptions{})
			order := b.API.Order()
			backup := b.CopyDatabase()
			page := b.API.Pay("lost", order, careful).Get("stripe", "payment_intent").(string)

			r := world.BooksOn(b.OnDatabase(backup))
			r.Exec("UPDATE orders SET created_at = created_at - $1::interval", aDay)
			today()
			_, err := lives.Begin(t.Context(), r.DB, time.Now().Add(-aDay), false)
			require.NoError(t, err)
			pay := r.API.Pay
			if capture == "manual" {
				pay = r.API.Authorize
			}
			waits := pay("k", order, visa)
			require.Equal(t, http.StatusAccepted, waits.Status, "Stripe was not read yet: %v", waits)
			r.Reconcile()
			var paid world.Answer
			r.Until("the payment is final", func() bool {
				if waits = pay("k", order, visa); waits.Get("status") == "requires_action" {
					require.Equal(t, page, waits.Get("stripe", "payment_intent"))
					require.NoError(t, r.Sim.CompleteAuthentication(page, true))
				}
				paid = waits
				return paid.Final()
			})
			require.Equal(t, http.StatusCreated, paid.Status, paid)
			if capture == "manual" {
				require.Error(t, r.Sim.CompleteAuthentication(page, true), "the customer could pay a second time")
				require.Equal(t, http.StatusOK, r.API.Capture("c", paid.ID(), 0).Status)
			}
			require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
			r.Reconcile()
			r.RequireClean()
		})
	}
}

// TestEventsOfALostLife: an order is canceled in the life that is lost, and paid in the next. The id of order.paid was
// never given to another event, and no cursor of the lost life is known.
func TestEventsOfALostLife(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	kept := b.API.Get("/v1/events")
	cursor := kept.Get("data").([]any)[0].(map[string]any)["id"].(string)
	backup := b.CopyDatabase()
	require.Equal(t, http.StatusOK, b.API.Post("/v1/orders/"+order+"/cancel", "cancel", "").Status)
	given := map[string]bool{}
	for _, e := range b.API.Get("/v1/events").Get("data").([]any) {
		given[e.(map[string]any)["id"].(string)] = true
	}

	r := restored(b, backup)
	r.Reconcile()
	require.Equal(t, http.StatusCreated, r.API.Pay("k", order, visa).Status)
	for old := range given {
		a := r.API.Get("/v1/events?after=" + old)
		require.Equal(t, http.StatusBadRequest, a.Status, a)
		require.Contains(t, string(a.Body), `"parameter":"after"`)
	}
	require.True(t, given[cursor])
	after, types := "", []string{}
	for {
		page := r.API.Get("/v1/events?limit=1" + after).Get("data").([]any)
		if len(page) == 0 {
			break
		}
		e := page[0].(map[string]any)
		require.False(t, given[e["id"].(string)], e)
		require.Equal(t, e["id"], e["subject"].(string)+"-"+e["sequence"].(string))
		after, types = "&after="+e["id"].(string), append(types, e["type"].(string))
	}
	require.Equal(t, "payment.created payment.succeeded order.paid", strings.Join(types, " "))
}

// TestBeginTwice: a restore is recorded once, unless the operator says that there was another.
func TestBeginTwice(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	first, err := lives.Begin(t.Context(), w.DB, time.Time{}, false)
	require.NoError(t, err)
	_, err = lives.Begin(t.Context(), w.DB, time.Time{}, false)
	var twice *lives.AlreadyBegunError
	require.ErrorAs(t, err, &twice)
	require.Equal(t, first.Number, twice.Number)
	second, err := lives.Begin(t.Context(), w.DB, time.Time{}, true)
	require.NoError(t, err)
	require.Greater(t, second.Number, first.Number)
	w.Exec("UPDATE lives SET wal_position = 'FFFFFFFF/0'") // as if an older copy had been restored
	third, err := lives.Begin(t.Context(), w.DB, time.Time{}, false)
	require.NoError(t, err)
	require.Greater(t, outbox.LifeOf(third.Number), outbox.LifeOf(second.Number))
}
