package payments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/stripe"
)

// The definite refusals of a refund.
var (
	ErrPaymentNotRefundable = errors.New("there is nothing to refund")
	ErrRefundExceedsPayment = errors.New("more than what is left of the payment")
	ErrPaymentDisputed      = errors.New("a dispute of the payment is open or lost")
)

// Disputes is what refunds need to know of disputes. Package disputes implements it.
type Disputes interface {
	// AllowsRefund returns ErrPaymentDisputed while a dispute stands in the way of a refund. The caller holds the
	// payment's row lock.
	AllowsRefund(ctx context.Context, q *db.Queries, p db.Payment) error
	// ReadOf reads the disputes of an order's intent at Stripe and records them.
	ReadOf(ctx context.Context, order compare.OrderRef, intentID string) error
	// LostOf is how much, in minor units of the charge's currency, the lost disputes of an intent have taken at Stripe.
	LostOf(ctx context.Context, intentID string) (int64, error)
}

// ErrKeyOfAnotherRefund says that the key made another refund, before this database
// was restored from a copy that knew neither.
var ErrKeyOfAnotherRefund = errors.New("the key has made another refund")

// RefundRequest is what POST /v1/payments/{id}/refunds asks for, decoded and validated.
type RefundRequest struct {
	PaymentID string  `json:"payment_id"`
	Amount    *int64  `json:"amount"` // nil: what is left
	Reason    *string `json:"reason"`
}

// Refund is a refund as the API shows it.
type Refund struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Status    db.RefundStatus `json:"status"`
	Origin    db.RefundOrigin `json:"origin"`
	PaymentID string          `json:"payment_id"`
	Amount    int64           `json:"amount"`
	Currency  string          `json:"currency"`
	Reason    *string         `json:"reason"`
	Stripe    RefundAtStripe  `json:"stripe"`
	CreatedAt ids.Instant     `json:"created_at"`
}

// RefundAtStripe is the id of Stripe's object.
type RefundAtStripe struct {
	Refund *string `json:"refund"`
}

func refundOf(row db.Refund) Refund {
	return Refund{
		ID: row.ID, Object: "refund", Status: row.Status, Origin: row.Origin, PaymentID: row.PaymentID,
		Amount: row.AmountMinor, Currency: row.Currency, Reason: row.Reason,
		Stripe: RefundAtStripe{Refund: row.StripeRefundID}, CreatedAt: ids.Instant(row.CreatedAt),
	}
}

func refundEvent(kind string, row db.Refund) outbox.Event {
	return outbox.Event{
		TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind,
		Data: outbox.Data(refundOf(row)),
	}
}

// refundRecorded is the recovery point of a refund that Stripe may have made.
const refundRecorded = "refund_recorded"

// stripeKeyReused is Stripe's code for a key that came before with other parameters.
// Ours always have the same, unless this database was restored in between.
const stripeKeyReused = "idempotency_error"

const (
	// A refund has no object that could be made before the money moves, so one whose response was
	// lost can only be looked for. Past this age Stripe has forgotten the key and completes nothing
	// any more: a refund that is not listed then was never made.
	refundLostAfter = calls.KeyLifetime + 12*time.Hour
	// A pending refund is settled by a webhook; the poll is for webhooks that never come. The older the
	// refund, the rarer the poll: while the balance at Stripe is too low every refund stays pending for
	// days, and polling thousands of them twice a minute would use up the rate limit that payments need.
	refundPoll    = 30 * time.Second
	refundPollMax = 15 * time.Minute
	// RefundPendingMax is how long a bank may take for a refund. Then its key is parked: somebody must ask Stripe.
	RefundPendingMax = 45 * 24 * time.Hour

	// Longest wait for the payment's other refunds; after it the completer takes over.
	turnWait  = stripe.LimitWait
	turnPause = 200 * time.Millisecond // Longest pause between two checks whether they are done.
)

// errRefundInFlight says that another refund of the payment is being sent to Stripe.
var errRefundInFlight = fmt.Errorf("another refund of the payment is under way: %w", stripe.ErrThrottled)

// disputedCodes are Stripe's refusals of a refund because the bank has the money.
var disputedCodes = map[string]bool{"charge_disputed": true, "refund_disputed_payment": true}

// refunding is what a run works on.
type refunding struct {
	refund    db.Refund
	intentID  string
	paidMinor int64           // by the payment
	recorded  bool            // the first attempt was recorded in the phase before
	unsent    bool            // certainly never sent, so there is nothing to look for at Stripe
	listed    []stripe.Refund // all refunds of the intent, if Stripe's list was read
	requestID string          // Stripe's, of the response that ends the call and is not recorded yet
	line      *refundLine     // of its payment; nil: it is not in one
}

func (w *refunding) order() compare.OrderRef {
	return compare.OrderRef{TenantID: w.refund.TenantID, OrderID: w.refund.OrderID}
}

func (w *refunding) payment() paymentKey { return paymentKey{w.refund.TenantID, w.refund.PaymentID} }

func (w *refunding) call() calls.Call {
	reason := ""
	if w.refund.Reason != nil {
		reason = *w.refund.Reason
	}
	return calls.New(stripe.OpRefund, w.refund.ID, w.refund.StripeKey, w.intentID,
		strconv.FormatInt(w.refund.AmountMinor, 10), reason)
}

func (s *Service) refunding(ctx context.Context, c *idempotency.Claim) (*refunding, error) {
	if w, ok := c.Carry.(*refunding); ok {
		return w, nil
	}
	row, err := s.pool.RefundGet(ctx, db.RefundGetParams{TenantID: c.TenantID, ID: c.ResourceID})
	if err != nil {
		return nil, fmt.Errorf("read refund %s: %w", c.ResourceID, err)
	}
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: row.PaymentID})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", row.PaymentID, err)
	}
	return &refunding{refund: row, intentID: *p.IntentID, paidMinor: compare.PaidMinor(p)}, nil
}

// fits reports whether Stripe would still make the refund, which it does not list: not if others have refunded so much
// since that less is left. It is for a call that is not sent again, so nothing of it is on its way any more.
func (w *refunding) fits() bool {
	left := w.paidMinor
	for _, r := range w.listed {
		if r.Status == db.RefundStatusSucceeded || r.Status == db.RefundStatusPending {
			left -= r.AmountMinor
		}
	}
	return w.refund.AmountMinor <= left
}

// findRefund looks for the refund in Stripe's list of the intent's refunds.
func (s *Service) findRefund(ctx context.Context, w *refunding) (stripe.Refund, bool, error) {
	list, err := s.gateway.RefundsOf(ctx, w.refund.TenantID, w.intentID)
	if err != nil {
		return stripe.Refund{}, false, err
	}
	var found stripe.Refund
	w.listed = list
	for _, r := range list {
		if r.Is(w.refund) && (found.ID == "" || r.Returns(w.refund)) { // A copy of its metadata may be on another amount.
			found = r
		}
	}
	return found, found.ID != "", nil
}

// otherRefundInFlight reports whether another refund of the payment is being sent to
// Stripe. Stripe rejects a change of an object while another is in progress, so we
// queue them ourselves, across all processes. A refund whose process exited holds up
// the others for as long as one attempt can take, and no longer.
func (s *Service) otherRefundInFlight(ctx context.Context, q *db.Queries, row db.Refund) (bool, error) {
	busy, err := q.RefundOtherInFlight(ctx, db.RefundOtherInFlightParams{
		TenantID: row.TenantID, PaymentID: row.PaymentID, ID: row.ID,
		AttemptFor: stripe.LimitWait + s.o.StripeTimeout,
	})
	if err != nil {
		return false, fmt.Errorf("read the other refunds of payment %s: %w", row.PaymentID, err)
	}
	return busy, nil
}
