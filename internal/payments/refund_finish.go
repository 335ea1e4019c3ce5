package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

func (s *Service) settleRefund(
	ctx context.Context, c *idempotency.Claim, w *refunding, seen stripe.Refund,
) (idempotency.Answer, error) {
	if !seen.Returns(w.refund) {
		// "What is left" was another amount in the life that this database has lost. The reconciler says how much.
		answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
		return answer, c.ParkBecause(ctx,
			fmt.Errorf("the refund of this key at Stripe is of %d %s; an operator must look", seen.AmountMinor,
				seen.Currency))
	}
	if seen.Status != db.RefundStatusPending {
		return s.finishRefund(ctx, c, w, seen, nil)
	}
	if w.refund.StripeRefundID == nil { // The call is answered, because the refund was made, however it ends.
		err := calls.RecordEnd(ctx, s.pool.Queries, c.TenantID, w.call(), stripe.Outcome{
			Effect: stripe.Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID,
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
	}
	// A refund with Stripe's id has its call recorded: another process may end it from here on.
	if err := s.pool.RefundSetStripeID(ctx, db.RefundSetStripeIDParams{
		TenantID: c.TenantID, ID: w.refund.ID, StripeRefundID: &seen.ID,
	}); err != nil {
		return idempotency.Answer{}, fmt.Errorf("note refund %s: %w", w.refund.ID, err)
	}
	w.refund.StripeRefundID, w.requestID = &seen.ID, ""
	return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("the refund is pending at Stripe"))
}

func (s *Service) refundRefused(
	ctx context.Context, c *idempotency.Claim, w *refunding, out stripe.Outcome,
) (idempotency.Answer, error) {
	refusal := ErrPaymentNotRefundable
	if out.Param == "amount" {
		refusal = ErrRefundExceedsPayment
	}
	if disputedCodes[out.ErrorCode] {
		refusal = ErrPaymentDisputed
		if s.o.Disputes != nil { // The caller who is told of a dispute can read it.
			if err := s.o.Disputes.ReadOf(ctx, w.order(), w.intentID); err != nil {
				c.Log().Warn("dispute not read; a webhook or the next round will", "error", err.Error())
			}
		}
	}
	code := out.ErrorCode
	if code == "" {
		code = "refused"
	}
	return s.finishRefund(ctx, c, w, stripe.Refund{Status: db.RefundStatusFailed, FailureCode: code}, refusal)
}

// finishRefund ends the refund, unless it has ended already, and stores the answer:
// the refusal if there is one, otherwise the refund.
func (s *Service) finishRefund(
	ctx context.Context, c *idempotency.Claim, w *refunding, seen stripe.Refund, refusal error,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		row, err := s.ApplyRefund(ctx, q, w.refund.TenantID, w.refund.ID, seen)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if w.listed != nil { // What else Stripe has of the payment: there may be less left of it than we knew.
			ref := compare.OrderRef{TenantID: c.TenantID, OrderID: w.refund.OrderID}
			if err := s.applyRefunds(ctx, q, ref, w.listed); err != nil {
				return idempotency.Answer{}, err
			}
		}
		if seen.Status != "" { // A refund that others have made has no call.
			out := stripe.Outcome{
				Effect: stripe.Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID,
			}
			if refusal != nil {
				out = stripe.Outcome{
					Effect: stripe.Refused, HTTPStatus: http.StatusBadRequest, ErrorCode: seen.FailureCode,
					RequestID: w.requestID,
				}
			}
			if err := calls.RecordEnd(ctx, q, c.TenantID, w.call(), out); err != nil {
				return idempotency.Answer{}, err
			}
		}
		if refusal != nil {
			if refusal, err = s.refusalNow(ctx, q, w.refund, refusal); err != nil {
				return idempotency.Answer{}, err
			}
			return s.answers.Problem(refusal, c.RequestID), nil
		}
		return s.answers.Object(http.StatusCreated, "/v1/refunds/"+row.ID, refundOf(row)), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish refund %s: %w", w.refund.ID, err)
	}
	c.Log().Info("refund finished", "refund_id", w.refund.ID, "status", string(seen.Status))
	return c.Answer(), nil
}

// refusalNow is the refusal of a refund once it is known what is left of the payment.
func (s *Service) refusalNow(ctx context.Context, q *db.Queries, row db.Refund, refusal error) (error, error) {
	p, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: row.TenantID, ID: row.PaymentID})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", row.PaymentID, err)
	}
	left, err := leftOf(ctx, q, p)
	switch {
	case err != nil:
		return nil, err
	case left <= 0:
		return ErrPaymentNotRefundable, nil
	case row.AmountMinor > left:
		return ErrRefundExceedsPayment, nil
	}
	return refusal, nil
}

// errRefundTotals says that the sums of the payment do not allow what Stripe says of a refund.
var errRefundTotals = errors.New("the refund totals would exceed the payment")

// errRefundDiffers says that Stripe's refund does not return what ours does.
var errRefundDiffers = errors.New("the refund at Stripe is of another amount or currency")

// ApplyRefund moves a refund to the status it has at Stripe, and updates the sums of
// its payment and order. It does nothing if the refund has that status already, so a
// webhook, a poll and a late response can all report the same fact. It joins q's
// transaction and locks order, payment and refund, in the order used everywhere.
func (s *Service) ApplyRefund(
	ctx context.Context, q *db.Queries, tenantID, id string, seen stripe.Refund,
) (db.Refund, error) {
	row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return row, fmt.Errorf("read refund %s: %w", id, err)
	}
	if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: tenantID, ID: row.OrderID}); err != nil {
		return row, fmt.Errorf("lock order %s: %w", row.OrderID, err)
	}
	if _, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: row.PaymentID}); err != nil {
		return row, fmt.Errorf("lock payment %s: %w", row.PaymentID, err)
	}
	if row, err = q.RefundLock(ctx, db.RefundLockParams{TenantID: tenantID, ID: id}); err != nil {
		return row, fmt.Errorf("lock refund %s: %w", id, err)
	}
	reserved, refunded, legal := compare.RefundTransition(row.Status, seen.Status, row.AmountMinor)
	if !legal {
		return row, nil
	}
	if seen.ID != "" && !seen.Returns(row) {
		return row, fmt.Errorf("refund %s: %w", id, errRefundDiffers)
	}
	n, err := q.PaymentReserveRefund(ctx, db.PaymentReserveRefundParams{
		TenantID: tenantID, ID: row.PaymentID, AmountMinor: reserved, RefundedMinor: refunded,
	})
	if err == nil && n == 0 {
		err = errRefundTotals
	}
	if err != nil {
		return row, fmt.Errorf("update the refunded sums of payment %s: %w", row.PaymentID, err)
	}
	if refunded != 0 {
		if err := q.OrderApplyRefund(ctx, db.OrderApplyRefundParams{
			TenantID: tenantID, ID: row.OrderID, PaymentID: &row.PaymentID, AmountMinor: refunded,
		}); err != nil {
			return row, fmt.Errorf("update the refunded sum of order %s: %w", row.OrderID, err)
		}
	}
	row, err = q.RefundSettle(ctx, db.RefundSettleParams{
		TenantID: tenantID, ID: id, SeenVersion: row.Version, Status: seen.Status,
		StripeRefundID: postgres.Nullable(seen.ID), FailureCode: postgres.Nullable(seen.FailureCode),
	})
	if err != nil {
		return row, fmt.Errorf("settle refund %s: %w", id, err)
	}
	if err := s.recordOwed(ctx, q, row); err != nil {
		return row, err
	}
	kind := "refund.failed" // For the tenant, a canceled refund is one that failed.
	if row.Status == db.RefundStatusSucceeded {
		kind = "refund.succeeded"
	}
	return row, outbox.Append(ctx, q, refundEvent(kind, row))
}

func (s *Service) refundWaits(
	ctx context.Context, c *idempotency.Claim, w *refunding, pause time.Duration, why error,
) (idempotency.Answer, error) {
	answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
	limit := idempotency.ParkAfter
	if w.refund.StripeRefundID != nil {
		limit = RefundPendingMax
	}
	return answer, c.YieldUntil(ctx, limit, idempotency.Jittered(pause), why)
}

// nextPoll is the pause before Stripe is asked again about a refund that only time will settle.
func nextPoll(c *idempotency.Claim) time.Duration {
	return min(max(refundPoll, c.Age/20), refundPollMax)
}
