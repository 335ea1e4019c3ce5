package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestDuplicatesAreOnePayment sends each request a hundred times at once to two
// processes that know nothing of each other but the database.
func TestDuplicatesAreOnePayment(t *testing.T) {
	t.Parallel()
	const rounds, duplicates = 10, 100
	w := world.New(t)
	servers := []*world.Process{w.Process(), w.Process()}
	for round := range rounds {
		key, order := fmt.Sprintf("round-%d", round), servers[0].Order()
		answers := world.Together(duplicates, func(i int) world.Answer {
			return servers[i%2].Pay(key, order, "pm_card_visa")
		})
		for _, a := range answers {
			require.NoError(t, a.Err)
			if a.Status == http.StatusCreated {
				require.Equal(t, "succeeded", a.Get("status"))
			}
		}
		// A server that is too busy to look the key up says so with 503, and does nothing.
		answers = slices.DeleteFunc(answers, func(a world.Answer) bool {
			return a.Status == http.StatusServiceUnavailable && a.Problem().Retryable && a.Header.Get("Retry-After") != ""
		})
		late := servers[1-round%2].PayUntilFinal(key, order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, late.Status)
		require.Empty(t, world.Disagreements(append(answers, late)))
		w.RequireChargedOnce(order)
	}
	require.Len(t, w.Posts("confirm"), rounds, "Stripe was asked once for each")
	for _, s := range servers {
		require.Positive(
			t,
			s.Metric("payonce_claims_total"),
			"one of the two has never won, so nothing was shown about two",
		)
		require.Zero(t, s.Metric("payonce_fenced_writes_total"))
	}
}
