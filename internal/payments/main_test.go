package payments_test

import (
	"testing"

	"example.com/payonce/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
