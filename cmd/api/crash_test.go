package main

import (
	"testing"

	"example.com/payonce/testkit/crashes"
)

// A process is killed where the money has moved and nothing says so, and one is stopped until it has lost. The crash matrix
// (testkit/crashmatrix) has the other places.
// The tests of the same names in proof/night/api kill real processes at all of them. // part: proof
// Others in proof/night/api resume the work by a retry and a webhook, and stop a process during its calls. // part: proof

func TestKilledProcessIsSucceeded(t *testing.T) {
	t.Parallel()
	crashes.AreFinishedByAnotherProcess(t, crashes.At("money moved and not recorded"))
}

func TestFrozenProcessHasLost(t *testing.T) {
	t.Parallel()
	crashes.FrozenProcessHasLost(t, "create_payment/intent_recorded")
}
