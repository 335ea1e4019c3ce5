package checkout

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
)

// TestBasket: quantities of one SKU add up, and a shortage names three SKUs at most.
func TestBasket(t *testing.T) {
	t.Parallel()
	b := basketOf([]payments.Item{{SKU: "b", Quantity: 1}, {SKU: "a", Quantity: 2}, {SKU: "b", Quantity: 3}})
	require.Equal(t, basket{skus: []string{"a", "b"}, quantities: []int64{2, 4}}, b)
	require.Empty(t, b.missing([]db.Stock{{Sku: "a", Available: 2}, {Sku: "b", Available: 4}}))
	require.Equal(t, []string{"b"}, b.missing([]db.Stock{{Sku: "a", Available: 2}, {Sku: "b", Available: 3}}))
	require.Equal(t, []string{"a", "b"}, b.missing(nil))
	for text, skus := range map[string][]string{
		"There is not enough of a.":                  {"a"},
		"There is not enough of a, b, c.":            {"a", "b", "c"},
		"There is not enough of a, b, c and 1 more.": {"a", "b", "c", "d"},
	} {
		require.Equal(t, text, (&shortage{skus}).Error())
	}
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
			o := shown(row, []db.CheckoutStep{{Step: step, Status: status}})
			require.Equal(t, shows, o.Failure != nil, "%s %s", step, status)
		}
		other := shown(row, []db.CheckoutStep{{Step: db.SagaStepPay, Status: status},
			{Step: db.SagaStepNotify, Status: db.SagaStepStatusPending}})
		require.Equal(t, shows, other.Failure != nil, "the last step decides nothing: %s", status)
	}
	refunding := shown(row, []db.CheckoutStep{{Step: db.SagaStepRefund, Status: db.SagaStepStatusRunning}})
	require.Equal(t, &payments.PaymentFailure{Code: code, DeclineCode: &decline, Message: message}, refunding.Failure)
	require.Nil(t, shown(db.Checkout{}, nil).Failure)
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
		require.Equal(t, c.ofIt, ofTheCheckout(t.Context(), c.err), c.err)
		require.False(t, ofTheCheckout(canceled, c.err), "the process stops: %v", c.err)
	}
}

// TestFailedLately leaves a checkout out for a minute.
func TestFailedLately(t *testing.T) {
	t.Parallel()
	var f failedLately
	require.Equal(t, []string{}, f.recent(), "an empty list, and not NULL")
	f.add("a")
	f.add("b")
	require.ElementsMatch(t, []string{"a", "b"}, f.recent())
	require.WithinDuration(t, time.Now().Add(time.Minute), f.until["a"], 10*time.Second)
	f.until["a"] = time.Now().Add(-time.Second)
	require.Equal(t, []string{"b"}, f.recent())
	require.NotContains(t, f.until, "a")
}
