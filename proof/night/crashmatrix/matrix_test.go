package crashmatrix_test

import (
	"testing"

	"example.com/payonce/testkit/crashmatrix"
)

func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	crashmatrix.Run(t)
}
