package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestRefundsOwedSurviveEachCut: the connection breaks at each commit of a refund that is owed, before the server has it or
// after. Another process ends it: the money goes back once.
func TestRefundsOwedSurviveEachCut(t *testing.T) {
	t.Parallel()
	for _, cut := range paycases.OwedCuts() {
		t.Run(cut.Name, func(t *testing.T) {
			t.Parallel()
			paycases.OwedSurvivesACut(t, cut)
		})
	}
}
