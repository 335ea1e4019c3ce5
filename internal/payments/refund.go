package payments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// The definite refusals of a refund.
var (
	ErrPaymentNotRefundable = errors.New("there is nothing to refund")
	ErrRefundExceedsPayment = errors.New("more than what is left of the payment")
)

// ErrKeyOfAnotherRefund says that the key made another refund, before this database
// was restored from a copy that knew neither.
var ErrKeyOfAnotherRefund = errors.New("the key has made another refund")

// RefundRequest is what POST /v1/payments/{id}/refunds asks for, decoded and
// validated.
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
		ID: row.ID, Object: "refund", Status: row.Status, PaymentID: row.PaymentID, Amount: row.AmountMinor, Currency: row.Currency,
		Reason: row.Reason, Stripe: RefundAtStripe{Refund: row.StripeRefundID}, CreatedAt: ids.Instant(row.CreatedAt),
	}
}

func refundEvent(kind string, row db.Refund) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: outbox.Data(refundOf(row))}
}

// refundRecorded is the recovery point of a refund that Stripe may have made.
const refundRecorded = "refund_recorded"

// stripeKeyReused is Stripe's code for a key that came before with other parameters.
// Ours always have the same, unless this database was restored in between.
const stripeKeyReused = "idempotency_error"

const (
	// A refund has no object that could be made before the money moves, so one
	// whose response was lost can only be looked for. Past this age Stripe has
	// forgotten the key and completes nothing any more: a refund that is not
	// listed then was never made.
	refundLostAfter = calls.KeyLifetime + 12*time.Hour
	// A pending refund is settled by a webhook; the poll is for webhooks that never
	// come. The older the refund, the rarer the poll: while the balance at Stripe is
	// too low every refund stays pending for days, and polling thousands of them
	// twice a minute would use up the rate limit that payments need.
	refundPoll    = 30 * time.Second
	refundPollMax = 15 * time.Minute

	turnWait  = stripe.LimitWait       // Longest wait for the payment's other refunds; after it the completer takes over.
	turnPause = 200 * time.Millisecond // Longest pause between two checks whether they are done.
)

// errRefundInFlight says that another refund of the payment is being sent to Stripe.
var errRefundInFlight = fmt.Errorf("another refund of the payment is under way: %w", stripe.ErrThrottled)

// refunding is what a run works on.
type refunding struct {
	refund    db.Refund
	intentID  string
	recorded  bool   // the first attempt was recorded in the phase before
	unsent    bool   // certainly never sent, so there is nothing to look for at Stripe
	requestID string // Stripe's, of the response that ends the call and is not recorded yet
}

// recordRefundAttempt is recordAttempt for a refund, once it is its turn. Until then it waits
// for a while, holding neither a connection nor a lock.
func (s *Service) recordRefundAttempt(ctx context.Context, c *idempotency.Claim, w *refunding) (row db.StripeCallRecordAttemptRow, err error) {
	until := time.Now().Add(turnWait)
	for wait := turnPause / 16; ; wait = min(2*wait, turnPause) {
		err = c.Phase(ctx, refundRecorded, func(q *db.Queries) error {
			if _, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: c.TenantID, ID: w.refund.PaymentID}); err != nil {
				return fmt.Errorf("lock payment %s: %w", w.refund.PaymentID, err)
			}
			busy, err := s.otherRefundInFlight(ctx, q, w.refund)
			if err != nil {
				return err
			}
			if busy {
				return errRefundInFlight
			}
			row, err = w.call().Attempt(ctx, q, c)
			return err
		})
		if !errors.Is(err, errRefundInFlight) || time.Now().After(until) || !idempotency.Pause(ctx, idempotency.Jittered(wait)) {
			return row, err
		}
	}
}

func (w *refunding) call() calls.Call {
	reason := ""
	if w.refund.Reason != nil {
		reason = *w.refund.Reason
	}
	return calls.New(stripe.OpRefund, w.refund.ID, w.refund.StripeKey, w.intentID, strconv.FormatInt(w.refund.AmountMinor, 10), reason)
}

// runRefund takes a refund from its record to its answer.
func (s *Service) runRefund(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w, err := s.refunding(ctx, c)
	if err != nil {
		return idempotency.Answer{}, err
	}
	answer, err := s.advanceRefund(ctx, c, w)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		// The refund is recorded, may have been made and will be finished, so the
		// answer is 202, even if the claim cannot be given back.
		c.Log().Error("refund interrupted", "error", err.Error())
		return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
	}
	return answer, err
}

// giveBack is the refund's life: look for it at Stripe, make it, record how it ends.
func (s *Service) advanceRefund(ctx context.Context, c *idempotency.Claim, w *refunding) (idempotency.Answer, error) {
	if w.refund.Status != db.RefundStatusPending { // A webhook was faster.
		return s.finishRefund(ctx, c, w, stripe.Refund{}, nil)
	}
	if !w.recorded && !w.unsent {
		seen, found, err := s.findRefund(ctx, w)
		if err != nil {
			return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
		}
		last, err := s.calls.Last(ctx, c.TenantID, w.refund.StripeKey)
		if err != nil && !errors.Is(err, postgres.ErrNoRows) {
			return idempotency.Answer{}, fmt.Errorf("read the call of refund %s: %w", w.refund.ID, err)
		}
		called := err == nil
		switch {
		case found:
			if !called { // Sent before this database was restored.
				if err := w.call().Insert(ctx, s.pool.Queries, c.TenantID); err != nil {
					return idempotency.Answer{}, err
				}
			}
			return s.settleRefund(ctx, c, w, seen)
		case last.AgeSeconds > refundLostAfter.Seconds():
			return s.finishRefund(ctx, c, w, stripe.Refund{Status: db.RefundStatusFailed, FailureCode: "provider_error"}, ErrPaymentNotRefundable)
		case called && calls.Exhausted(last):
			return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("Stripe repeats a stored error; only its list of refunds can tell"))
		}
	}
	record := func(ctx context.Context) (db.StripeCallRecordAttemptRow, error) {
		return s.recordRefundAttempt(ctx, c, w)
	}
	out, _, err := s.calls.MakeRecorded(ctx, c, w.call(), &w.recorded, record, func(ctx context.Context, call stripe.Call) stripe.Outcome {
		return s.gateway.CreateRefund(ctx, call, stripe.NewRefund{
			IntentID: w.intentID, AmountMinor: w.refund.AmountMinor, Reason: w.refund.Reason,
			TenantID: c.TenantID, OrderID: w.refund.OrderID, PaymentID: w.refund.PaymentID, RefundID: w.refund.ID,
		})
	})
	if errors.Is(err, errRefundInFlight) {
		return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
	}
	if err != nil {
		return idempotency.Answer{}, err
	}
	if out.Effect == stripe.Done || out.Effect == stripe.Refused {
		w.requestID = out.RequestID
	}
	switch out.Effect {
	case stripe.Done:
		return s.settleRefund(ctx, c, w, out.Refund)
	case stripe.Refused, stripe.Conflict: // Perhaps for our own earlier success, even one that this database has forgotten. Only the list can tell.
		seen, found, err := s.findRefund(ctx, w)
		switch {
		case err != nil:
			return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
		case found:
			return s.settleRefund(ctx, c, w, seen)
		case out.ErrorCode == stripeKeyReused:
			return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("Stripe has used the key already, but its list does not show the refund yet"))
		}
		return s.refundRefused(ctx, c, w, out)
	case stripe.Unknown, stripe.NotExecuted:
		return s.refundWaits(ctx, c, w, idempotency.NextTry(c), out.Why())
	}
	panic("bug: " + out.Effect.String())
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
	return &refunding{refund: row, intentID: *p.IntentID}, nil
}

// findRefund looks for the refund in Stripe's list of the intent's refunds.
func (s *Service) findRefund(ctx context.Context, w *refunding) (stripe.Refund, bool, error) {
	list, err := s.gateway.RefundsOf(ctx, w.intentID)
	if err != nil {
		return stripe.Refund{}, false, err
	}
	for _, r := range list {
		if r.Is(w.refund) {
			return r, true, nil
		}
	}
	return stripe.Refund{}, false, nil
}
