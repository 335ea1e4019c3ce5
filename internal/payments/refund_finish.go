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
	if seen.AmountMinor != w.refund.AmountMinor || seen.Currency != w.refund.Currency {
		// "What is left" was another amount in the life that this database has lost. The reconciler says how much.
		answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
		return answer, c.ParkBecause(ctx,
			fmt.Errorf("the refund of this key at Stripe is of %d %s; an operator must look", seen.AmountMinor,
				seen.Currency))
	}
	if seen.Status != db.RefundStatusPending {
		return s.finishRefund(ctx, c, w, seen, nil)
	}
	if err := s.pool.RefundSetStripeID(ctx, db.RefundSetStripeIDParams{
		TenantID: c.TenantID, ID: w.refund.ID, StripeRefundID: &seen.ID,
	}); err != nil {
		return idempotency.Answer{}, fmt.Errorf("note refund %s: %w", w.refund.ID, err)
	}
	if w.refund.StripeRefundID == nil { // The call is answered, because the refund was made, however it ends.
		err := calls.RecordEnd(ctx, s.pool.Queries, c.TenantID, w.refund.StripeKey, stripe.Outcome{
			Effect: stripe.Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID,
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
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
			if err := s.o.Disputes.ReadOf(ctx, w.intentID); err != nil {
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
		if seen.Status != "" {
			out := stripe.Outcome{
				Effect: stripe.Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID,
			}
			if refusal != nil {
				out = stripe.Outcome{
					Effect: stripe.Refused, HTTPStatus: http.StatusBadRequest, ErrorCode: seen.FailureCode,
					RequestID: w.requestID,
				}
			}
			if err := calls.RecordEnd(ctx, q, c.TenantID, w.refund.StripeKey, out); err != nil {
				return idempotency.Answer{}, err
			}
		}
		if refusal != nil {
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
	n, err := q.PaymentReserveRefund(ctx, db.PaymentReserveRefundParams{
		TenantID: tenantID, ID: row.PaymentID, AmountMinor: reserved, RefundedMinor: refunded,
	})
	if err == nil && n == 0 {
		err = errors.New("the refund totals would exceed the payment")
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
	return answer, c.YieldFor(ctx, idempotency.Jittered(pause), why)
}

// nextPoll is the pause before Stripe is asked again about a refund that only time will settle.
func nextPoll(c *idempotency.Claim) time.Duration {
	return min(max(refundPoll, c.Age/20), refundPollMax)
}
