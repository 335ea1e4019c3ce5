package api_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/crashes"
)

func TestKilledProcessIsSucceeded(t *testing.T) {
	t.Parallel()
	crashes.AreFinishedByAnotherProcess(t, crashes.Places...)
}

func TestKilledProcessIsResumedByARetry(t *testing.T) {
	t.Parallel()
	crashes.AreResumedByARetry(t, crashes.Places...)
}

func TestWebhookResumesTheWorkOfAKilledProcess(t *testing.T) {
	t.Parallel()
	told := slices.DeleteFunc(slices.Clone(crashes.Places), func(c crashes.Place) bool { return !c.Told })
	require.Len(t, told, 4)
	crashes.AreResumedByAWebhook(t, told...)
}

func TestFrozenProcessHasLost(t *testing.T) {
	t.Parallel()
	crashes.FrozenProcessHasLost(t, "create_payment/payment_recorded", "create_payment/intent_recorded")
}

func TestPausedProcessReturnsTheOutcome(t *testing.T) {
	t.Parallel()
	crashes.PausedProcessReturnsTheOutcome(t, stripesim.BeforeEffect, stripesim.AfterEffect)
}

func TestDuplicatesAreOnePayment(t *testing.T) {
	t.Parallel()
	for _, s := range crashes.DuplicatesAreOnePayment(t, 10, 100) {
		require.Positive(t, s.Metric("payonce_claims_total"),
			"one of the two has never won, so nothing was shown about two")
	}
}
