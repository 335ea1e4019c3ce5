package starter_test

import (
	"os"
	"testing"

	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.Main(m, func() {
		if none != "" {
			_ = os.RemoveAll(none)
		}
	})
}
