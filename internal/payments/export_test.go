package payments

import "context"

// FindPagesMax is how much of Stripe's list one run reads.
const FindPagesMax = findPagesMax

// RefundsMax is how many refunds of one payment may be in progress in a process.
const RefundsMax = refundsMax

// TurnWait is how long a refund waits for its turn.
const TurnWait = turnWait

// RefundTurns are the lines of refunds.
type RefundTurns struct{ *refundTurns }

// NewRefundTurns returns lines without refunds.
func NewRefundTurns() RefundTurns { return RefundTurns{newRefundTurns()} }

// TurnsOf returns the lines of a service's refunds.
func TurnsOf(s *Service) RefundTurns { return RefundTurns{s.turns} }

// Enter is a refund that joins the line of a payment. Not ok: it is full.
func (t RefundTurns) Enter(payment string) (wait func(context.Context, func() error) error, leave func(), ok bool) {
	key := paymentKey{"ten_a", payment}
	l := t.enter(key)
	if l == nil {
		return nil, nil, false
	}
	return l.wait, func() { t.leave(key, l) }, true
}

// Lines is how many payments have a line.
func (t RefundTurns) Lines() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.payments)
}

// ErrRefundInFlight is what one that has to wait longer returns.
var ErrRefundInFlight = errRefundInFlight
