package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// recordRefundAttempt is recordAttempt for a refund, once it is its turn. It looks without the payment's row lock first,
// which the refund under way needs to end. errRefundInFlight: its turn did not come in time (refundLine.wait).
func (s *Service) recordRefundAttempt(
	ctx context.Context, c *idempotency.Claim, w *refunding,
) (row db.StripeCallRecordAttemptRow, err error) {
	if w.line == nil { // It was begun by another process, or is run by the completer.
		if w.line = s.turns.enter(w.payment()); w.line == nil {
			return row, errRefundInFlight
		}
	}
	err = w.line.wait(ctx, func() error {
		if err := s.noOtherRefund(ctx, s.pool.Queries, w.refund); err != nil {
			return err
		}
		return c.Phase(ctx, refundRecorded, func(q *db.Queries) error {
			if _, err := q.PaymentLock(ctx, db.PaymentLockParams{
				TenantID: c.TenantID, ID: w.refund.PaymentID,
			}); err != nil {
				return fmt.Errorf("lock payment %s: %w", w.refund.PaymentID, err)
			}
			if err := s.noOtherRefund(ctx, q, w.refund); err != nil {
				return err
			}
			var err error
			row, err = w.call().Attempt(ctx, q, c)
			return err
		})
	})
	return row, err
}

// noOtherRefund is errRefundInFlight while another refund of the payment is being sent to Stripe.
func (s *Service) noOtherRefund(ctx context.Context, q *db.Queries, row db.Refund) error {
	busy, err := s.otherRefundInFlight(ctx, q, row)
	if busy {
		return errRefundInFlight
	}
	return err
}

func (s *Service) leaveLine(w *refunding) {
	if w.line != nil {
		s.turns.leave(w.payment(), w.line)
	}
}

// runRefund takes a refund from its record to its answer.
func (s *Service) runRefund(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w, err := s.refunding(ctx, c)
	if err != nil {
		return idempotency.Answer{}, err
	}
	defer s.leaveLine(w)
	answer, err := s.advanceRefund(ctx, c, w)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		// The refund is recorded, may have been made and will be finished, so the
		// answer is 202, even if the claim cannot be given back.
		c.Log().Error("refund interrupted", "error", err.Error())
		return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
	}
	return answer, err
}

// advanceRefund is the refund's life: look for it at Stripe, make it, record how it ends.
func (s *Service) advanceRefund(ctx context.Context, c *idempotency.Claim, w *refunding) (idempotency.Answer, error) {
	if w.refund.Status != db.RefundStatusPending { // A webhook was faster.
		return s.finishRefund(ctx, c, w, stripe.Refund{}, nil)
	}
	if !w.unsent {
		seen, found, err := s.findRefund(ctx, w)
		if err != nil {
			return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
		}
		last, err := s.calls.Last(ctx, c.TenantID, w.call())
		if err != nil && !errors.Is(err, postgres.ErrNoRows) {
			return idempotency.Answer{}, fmt.Errorf("read the call of refund %s: %w", w.refund.ID, err)
		}
		called := err == nil
		switch {
		// Our call, if there was one, asked for our amount: a refund of another one is a copy of its metadata.
		case found && (!called || seen.Returns(w.refund)):
			if !called && w.refund.Origin != db.RefundOriginProvider { // Sent before this database was restored.
				if err := w.call().Insert(ctx, s.pool.Queries, c.TenantID); err != nil {
					return idempotency.Answer{}, err
				}
			}
			return s.settleRefund(ctx, c, w, seen)
		case w.refund.StripeRefundID != nil: // It was made. Another call would make a second one.
			return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("the refund is not in Stripe's list now"))
		case last.AgeSeconds > refundLostAfter.Seconds():
			return s.finishRefund(ctx, c, w, stripe.Refund{
				Status: db.RefundStatusFailed, FailureCode: "provider_error",
			}, ErrPaymentNotRefundable)
		case calls.Exhausted(last) && !w.fits():
			return s.refundRefused(ctx, c, w, stripe.Outcome{ErrorCode: "amount_too_large", Param: "amount"})
		case calls.Exhausted(last):
			return s.refundWaits(ctx, c, w, nextPoll(c),
				errors.New("a stored error is repeated; only Stripe's list of refunds shows the outcome"))
		}
	}
	record := func(ctx context.Context) (db.StripeCallRecordAttemptRow, error) {
		return s.recordRefundAttempt(ctx, c, w)
	}
	out, _, err := s.calls.MakeRecorded(ctx, c, w.call(), &w.recorded, record,
		func(ctx context.Context, call stripe.Call) stripe.Outcome {
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
	case stripe.Refused, stripe.Conflict:
		// Perhaps for our own earlier success, even one that this database has forgotten. Only the
		// list shows it.
		seen, found, err := s.findRefund(ctx, w)
		switch {
		case err != nil:
			return s.refundWaits(ctx, c, w, idempotency.NextTry(c), err)
		case found && (seen.Returns(w.refund) || out.ErrorCode == stripeKeyReused):
			return s.settleRefund(ctx, c, w, seen)
		case out.ErrorCode == stripeKeyReused:
			return s.refundWaits(ctx, c, w, nextPoll(c),
				errors.New("the key was used at Stripe already, but its list does not show the refund yet"))
		}
		return s.refundRefused(ctx, c, w, out)
	case stripe.Unknown, stripe.NotExecuted:
		return s.refundWaits(ctx, c, w, idempotency.NextTry(c), out.Why())
	}
	panic("bug: " + out.Effect.String())
}
