//go:build unix

package restore

import (
	"testing"

	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }
