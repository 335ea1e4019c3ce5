package main

import (
	"testing"

	"example.com/payonce/testkit/crashes"
)

// TestDuplicatesAreOnePayment: a few of them. proof/night/api sends a hundred at once, ten times.
func TestDuplicatesAreOnePayment(t *testing.T) {
	t.Parallel()
	crashes.DuplicatesAreOnePayment(t, 2, 20)
}
