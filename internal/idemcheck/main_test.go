package idemcheck_test

import (
	"os"
	"testing"

	"example.com/payonce/testkit/parallel"
)

// TestMain has the tests wait at once: each asks an API whose intents take a while, and computes next to nothing.
func TestMain(m *testing.M) {
	parallel.AtLeast(32)
	os.Exit(m.Run())
}
