package payments

import (
	"context"
	"fmt"
	"maps"

	"example.com/payonce/internal/idempotency"
)

// Operations is every operation of this package. The API and the completer are
// given the same map: whatever the API can start, the completer can finish.
func (s *Service) Operations() map[string]idempotency.Operation {
	cancel, repair := cancels{s}, s.Repairs()
	all := map[string]idempotency.Operation{
		CreateOrder:    {Begin: s.beginOrder, Run: neverRuns},
		CancelOrder:    {Begin: cancel.beginOrder, Run: cancel.runOrder},
		CreatePayment:  {Begin: s.beginPayment, Run: s.runPayment},
		CancelPayment:  {Begin: cancel.beginPayment, Run: cancel.runPayment},
		CapturePayment: {Begin: captures{s}.begin, Run: captures{s}.run},
		CreateRefund:   {Begin: s.beginRefund, Run: s.runRefund},

		// No caller asked for these.
		RefundOrder:           {Run: s.runRefund},
		CancelAbandonedIntent: {Run: repair.runCancelAbandoned},
	}
	maps.Copy(all, repair.byOperator()) // part: operator
	return all
}

// neverRuns is the Run of an operation that finishes in its first phase.
func neverRuns(_ context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	panic(fmt.Sprintf("bug: %s has no second phase, but is at %q", c.Operation, c.RecoveryPoint()))
}
