// Package browser_test looks at every page of the project in Chromium: the demo's
// console, the operator's page, the simulator's and the API's documentation. The pages are served by
// the real programs; only what no program can be brought to show is served here.
package browser_test

import (
	"testing"

	"example.com/payonce/testkit/demo"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m, demo.Remove) }
