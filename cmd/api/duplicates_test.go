package main

import (
	"testing"

	"example.com/payonce/testkit/crashes"
)

// TestDuplicatesAreOnePayment: a few of them, at two processes.
// The test of the same name in proof/night/api sends a hundred at once, ten times. // part: proof
func TestDuplicatesAreOnePayment(t *testing.T) {
	t.Parallel()
	crashes.DuplicatesAreOnePayment(t, 2, 20)
}
