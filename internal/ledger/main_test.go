package ledger_test

import (
	"testing"

	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
