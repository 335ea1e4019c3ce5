package lives_test

import (
	"testing"

	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }
