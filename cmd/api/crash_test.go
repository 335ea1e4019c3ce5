package main

import (
	"testing"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/crashes"
)

// Each test kills or stops one process, where the money has moved and nothing says so. The crash matrix of package
// payments has the other places.
// The tests of the same names in proof/night/api kill real processes at all of them. // part: proof

func TestKilledProcessIsSucceeded(t *testing.T) {
	t.Parallel()
	crashes.AreFinishedByAnotherProcess(t, crashes.At("money moved and not recorded"))
}

func TestKilledProcessIsResumedByARetry(t *testing.T) {
	t.Parallel()
	crashes.AreResumedByARetry(t, crashes.At("refunded and not recorded"))
}

func TestWebhookResumesTheWorkOfAKilledProcess(t *testing.T) {
	t.Parallel()
	crashes.AreResumedByAWebhook(t, crashes.At("money moved and not recorded"))
}

func TestFrozenProcessHasLost(t *testing.T) {
	t.Parallel()
	crashes.FrozenProcessHasLost(t, "create_payment/intent_recorded")
}

func TestPausedProcessReturnsTheOutcome(t *testing.T) {
	t.Parallel()
	crashes.PausedProcessReturnsTheOutcome(t, stripesim.AfterEffect)
}
