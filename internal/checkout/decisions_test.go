package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestBasket: quantities of one SKU add up, and a shortage names three SKUs at most.
func TestBasket(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	s.Stock("a", 2)
	s.Stock("b", 3)
	for i, c := range []struct{ basket, short string }{
		{basketBody("b", 1, "a", 2, "b", 3), "b"},
		{basketBody("b", 4, "a", 3), "a, b"},
		{basketBody("e", 1, "d", 1, "c", 1), "c, d, e"},
		{basketBody("f", 1, "e", 1, "d", 1, "c", 1), "c, d, e and 1 more"},
	} {
		a := s.Checkout(fmt.Sprint("k", i), c.basket)
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Contains(t, a.Problem().Detail, "There is not enough of "+c.short+".")
	}
	require.Equal(t, http.StatusCreated, s.Checkout("enough", basketBody("b", 1, "a", 2, "b", 2)).Status)
	s.RequireStock("a", 0, 0)
	s.RequireStock("b", 0, 0)
}

// TestFailureIsShownOnceItIsDecided: until the intent is canceled the payment may still succeed.
func TestFailureIsShownOnceItIsDecided(t *testing.T) {
	t.Parallel()
	code, message, decline := "card_declined", "Declined.", "fraudulent"
	row := db.Checkout{FailureCode: &code, FailureMessage: &message, FailureDeclineCode: &decline}
	for status, shows := range map[db.SagaStepStatus]bool{
		db.SagaStepStatusPending: true, db.SagaStepStatusFailed: true, db.SagaStepStatusDone: true,
		db.SagaStepStatusRunning: false, db.SagaStepStatusUnknown: false,
	} {
		for _, step := range []db.SagaStep{db.SagaStepPay, db.SagaStepAuthorize, db.SagaStepCapture} {
			o := checkout.Shown(row, []db.CheckoutStep{{Step: step, Status: status}})
			require.Equal(t, shows, o.Failure != nil, "%s %s", step, status)
		}
		other := checkout.Shown(row, []db.CheckoutStep{{Step: db.SagaStepPay, Status: status},
			{Step: db.SagaStepNotify, Status: db.SagaStepStatusPending}})
		require.Equal(t, shows, other.Failure != nil, "the last step decides nothing: %s", status)
	}
	refunding := checkout.Shown(row, []db.CheckoutStep{{Step: db.SagaStepRefund, Status: db.SagaStepStatusRunning}})
	require.Equal(t, &payments.PaymentFailure{Code: code, DeclineCode: &decline, Message: message}, refunding.Failure)
	require.Nil(t, checkout.Shown(db.Checkout{}, nil).Failure)
}

// TestErrorOfOneCheckout: only what is about the checkout lets a run go on to the next.
func TestErrorOfOneCheckout(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		err  error
		ofIt bool
	}{
		{errors.New("bug: a checkout without the step pay"), true},
		{&pgconn.PgError{Code: "23514"}, true},
		{&pgconn.PgError{Code: "57P01"}, false},
		{fmt.Errorf("%w: %w", postgres.ErrInDoubt, &pgconn.PgError{Code: "23514"}), false},
	} {
		require.Equal(t, c.ofIt, checkout.OfTheCheckout(t.Context(), c.err), c.err)
		require.False(t, checkout.OfTheCheckout(canceled, c.err), "the process stops: %v", c.err)
	}
}

// TestFailedLately leaves a checkout out for a minute.
func TestFailedLately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f checkout.FailedLately
		require.Equal(t, []string{}, f.Recent(), "an empty list, and not NULL")
		f.Add("a")
		time.Sleep(time.Second)
		f.Add("b")
		require.ElementsMatch(t, []string{"a", "b"}, f.Recent())
		time.Sleep(time.Minute - time.Millisecond)
		require.Equal(t, []string{"b"}, f.Recent())
		time.Sleep(time.Second)
		require.Empty(t, f.Recent())
	})
}
