package payments_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/paycases"
)

const seeds = 8

// TestAuthorizationsInAnyOrderEndAsStripeHasThem: authorizations, captures, cancels, refunds and disputes, ours and of
// others, expiries and restarts in random orders, while webhooks are lost, doubled, late and reversed, and answers are
// lost. SEED runs another order than the usual ones.
func TestAuthorizationsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	first, rounds := uint64(0), seeds
	if s := os.Getenv("SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		first, rounds = seed, 1
	}
	for n := range rounds {
		seed := first + uint64(n)
		t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			paycases.AuthorizationsInAnyOrder(t, seed)
		})
	}
}

// TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt: refunds of ours and of others, disputes, and what banks send back, in
// random orders, while webhooks are lost, doubled, late and reversed.
func TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			paycases.MoneyOfOthersInAnyOrder(t, uint64(seed))
		})
	}
}

// TestRefundsInAnyOrderEndAsStripeHasThem: two in the dashboard and one of ours, of which Stripe has money for two.
func TestRefundsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"ours first second", "first ours second", "first second ours"} {
		for _, lost := range []bool{false, true} { // the response to ours
			for _, heard := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/%v", order, lost, heard), func(t *testing.T) {
					t.Parallel()
					paycases.RefundsInAnyOrder(t, order, lost, heard)
				})
			}
		}
	}
}
