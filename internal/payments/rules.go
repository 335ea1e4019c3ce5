package payments

import (
	"context"
	"log/slog"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
)

// Rules are the decisions of this package that need neither a database nor Stripe, and the limits in them. They are for the
// tests of the package, which are outside of it; the service does not use them, so they are not in its program.
var Rules = struct {
	// Payments.

	IsFor       func(db.Payment, stripe.Intent) bool
	Pays        func(db.Payment, stripe.Intent) bool
	Progress    func(stripe.Intent) int
	ClosedOrder func(db.OrderStatus) error
	FirstPoint  func(*Run) string
	Failed      func(*Run, db.StripeCallGetRow) Settlement
	OrderOf     func(db.Order) Order
	PaymentAsOf func(eventType string, p db.Payment) db.Payment
	OrderAsOf   func(eventType string, o db.Order) db.Order
	EndsIntent  func(eventType string) bool
	LogOf       func(*Service) *slog.Logger
	CancelCall  func(p db.Payment, try int) calls.Call
	CancelsOf   func(recorded []db.CancelCallsOfOrderRow, intentID string) []compare.Cancel

	// Refunds.

	CheckRefundStep     func(p db.Payment, asked *int64) error
	SameRefund          func(db.Refund, RefundRequest) error
	RefundFits          func(paidMinor, minor int64, listed []stripe.Refund) bool
	RefundCall          func(db.Refund) calls.Call
	NextPoll            func(*idempotency.Claim) time.Duration
	AutomaticKey        func(orderID string, n int) string
	AutomaticRefundID   func(tenantID, orderID string, n int) string
	OriginOf            func(stripe.Refund) db.RefundOrigin
	KnownFirst          func([]stripe.Refund, *compare.Order) []stripe.Refund
	AutomaticRefundsMax int
	RefundPoll          time.Duration
	RefundPollMax       time.Duration

	// Turns of refunds. LinesOf is how many payments have a line.

	NewTurns         func() Turns
	LinesOf          func(*Service) int
	RefundsMax       int           // of one payment in progress in a process
	TurnWait         time.Duration // how long a refund waits for its turn
	RefundInProgress func() error  // what a refund gets that has to wait longer

	// The search for an intent, and its adoption.

	PaysOrder    func(r *Run, known []string, i stripe.Intent) bool
	SearchFrom   func(r *Run, last db.StripeCallGetRow) time.Time
	SearchProves func(last db.StripeCallGetRow) time.Time
	AdoptedID    func(stripe.Intent, []stripe.Refund) (id string, refunds []stripe.Refund)
	FindPagesMax int // of Stripe's list that one run reads
	ClocksApart  time.Duration
}{
	IsFor: isFor, Pays: pays, Progress: progress, ClosedOrder: closedOrder,
	FirstPoint: (*Run).firstPoint, Failed: (*Run).failed,
	OrderOf: orderOf, PaymentAsOf: paymentAsOf, OrderAsOf: orderAsOf,
	LogOf:      func(s *Service) *slog.Logger { return s.o.Log },
	EndsIntent: endsIntent, CancelCall: cancelCall, CancelsOf: cancelsOf,

	CheckRefundStep: checkRefundStep, SameRefund: sameRefund,
	RefundFits: func(paidMinor, minor int64, listed []stripe.Refund) bool {
		return (&refunding{paidMinor: paidMinor, refund: db.Refund{AmountMinor: minor}, listed: listed}).fits()
	},
	RefundCall: func(r db.Refund) calls.Call { return (&refunding{refund: r}).call() },
	NextPoll:   nextPoll, AutomaticKey: automaticKey, AutomaticRefundID: automaticRefundID,
	OriginOf: originOf, KnownFirst: knownFirst,
	AutomaticRefundsMax: automaticRefundsMax, RefundPoll: refundPoll, RefundPollMax: refundPollMax,

	NewTurns:   func() Turns { return Turns{newRefundTurns()} },
	LinesOf:    func(s *Service) int { return Turns{s.turns}.Lines() },
	RefundsMax: refundsMax, TurnWait: turnWait, RefundInProgress: func() error { return errRefundInFlight },

	PaysOrder: func(r *Run, known []string, i stripe.Intent) bool {
		return intentSearch{Run: r, known: known}.pays(i)
	},
	SearchFrom: func(r *Run, last db.StripeCallGetRow) time.Time {
		return intentSearch{Run: r, last: last}.from()
	},
	SearchProves: func(last db.StripeCallGetRow) time.Time { return intentSearch{last: last}.proves() },
	AdoptedID: func(i stripe.Intent, refunds []stripe.Refund) (string, []stripe.Refund) {
		a := adoptionWith(i, refunds)
		return a.id, a.refunds
	},
	FindPagesMax: findPagesMax, ClocksApart: clocksApart,
}

// Turns are the lines of the refunds of a process, for tests.
type Turns struct{ turns *refundTurns }

// Enter is a refund that joins the line of a payment. Not ok: the line is full.
func (t Turns) Enter(payment string) (wait func(context.Context, func() error) error, leave func(), ok bool) {
	key := paymentKey{"ten_a", payment}
	l := t.turns.enter(key)
	if l == nil {
		return nil, nil, false
	}
	return l.wait, func() { t.turns.leave(key, l) }, true
}

// Lines is how many payments have a line.
func (t Turns) Lines() int {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	return len(t.turns.payments)
}
