package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
)

func (s *Service) settleRefund(ctx context.Context, c *idempotency.Claim, w *refunding, seen StripeRefund) (idempotency.Answer, error) {
	if seen.AmountMinor != w.refund.AmountMinor || seen.Currency != w.refund.Currency {
		// "What is left" was another amount in the life that this database has lost. The reconciler says how much.
		answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
		return answer, givenBack(c, c.Park(ctx, fmt.Sprintf("Stripe has the refund, of %d %s; a person must look", seen.AmountMinor, seen.Currency)))
	}
	if seen.Status != db.RefundStatusPending {
		return s.finishRefund(ctx, c, w, seen, nil)
	}
	if err := s.pool.RefundSetStripeID(ctx, db.RefundSetStripeIDParams{TenantID: c.TenantID, ID: w.refund.ID, StripeRefundID: &seen.ID}); err != nil {
		return idempotency.Answer{}, fmt.Errorf("note refund %s: %w", w.refund.ID, err)
	}
	if w.refund.StripeRefundID == nil { // The call is answered, whatever becomes of the refund: it was made.
		err := recordCall(ctx, s.pool.Queries, c.TenantID, w.refund.StripeKey, Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID}, false)
		if err != nil {
			return idempotency.Answer{}, err
		}
	}
	w.refund.StripeRefundID, w.requestID = &seen.ID, ""
	return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("the refund is pending at Stripe"))
}

func (s *Service) refundRefused(ctx context.Context, c *idempotency.Claim, w *refunding, out Outcome) (idempotency.Answer, error) {
	refusal := ErrPaymentNotRefundable
	if out.Param == "amount" {
		refusal = ErrRefundExceedsPayment
	}
	code := out.ErrorCode
	if code == "" {
		code = "refused"
	}
	return s.finishRefund(ctx, c, w, StripeRefund{Status: db.RefundStatusFailed, FailureCode: code}, refusal)
}

// finishRefund ends the refund, unless it has ended already, and stores the answer:
// the refusal if there is one, otherwise the refund.
func (s *Service) finishRefund(ctx context.Context, c *idempotency.Claim, w *refunding, seen StripeRefund, refusal error) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		row, err := s.applyRefund(ctx, q, w.refund.TenantID, w.refund.ID, seen)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if seen.Status != "" {
			out := Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID}
			if refusal != nil {
				out = Outcome{Verdict: Refused, HTTPStatus: http.StatusBadRequest, ErrorCode: seen.FailureCode, RequestID: w.requestID}
			}
			if err := recordCall(ctx, q, c.TenantID, w.refund.StripeKey, out, false); err != nil {
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

// applyRefund moves a refund to the status it has at Stripe, and updates the sums of
// its payment and order. It does nothing if the refund has that status already, so a
// webhook, a poll and a late response can all report the same fact. It joins q's
// transaction and locks order, payment and refund, in the order used everywhere.
func (s *Service) applyRefund(ctx context.Context, q *db.Queries, tenantID, id string, seen StripeRefund) (db.Refund, error) {
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
	reserved, refunded, moves := refundMoves(row.Status, seen.Status, row.AmountMinor)
	if !moves {
		return row, nil
	}
	n, err := q.PaymentReserveRefund(ctx, db.PaymentReserveRefundParams{TenantID: tenantID, ID: row.PaymentID, AmountMinor: reserved, RefundedMinor: refunded})
	if err == nil && n == 0 {
		err = errors.New("its sums leave no room for that")
	}
	if err != nil {
		return row, fmt.Errorf("update the refunded sums of payment %s: %w", row.PaymentID, err)
	}
	if refunded != 0 {
		if err := q.OrderApplyRefund(ctx, db.OrderApplyRefundParams{TenantID: tenantID, ID: row.OrderID, PaymentID: &row.PaymentID, AmountMinor: refunded}); err != nil {
			return row, fmt.Errorf("update the refunded sum of order %s: %w", row.OrderID, err)
		}
	}
	row, err = q.RefundSettle(ctx, db.RefundSettleParams{
		TenantID: tenantID, ID: id, SeenVersion: row.Version, Status: seen.Status, StripeRefundID: optional(seen.ID), FailureCode: optional(seen.FailureCode),
	})
	if err != nil {
		return row, fmt.Errorf("settle refund %s: %w", id, err)
	}
	kind := "refund.failed" // To whoever waits for the money, a canceled refund is one that failed.
	if row.Status == db.RefundStatusSucceeded {
		kind = "refund.succeeded"
	}
	return row, outbox.Append(ctx, q, refundEvent(kind, row))
}

// refundMoves is what a refund's change of status does to the sums. A status that
// arrives late, or again, changes nothing.
func refundMoves(from, to db.RefundStatus, amount int64) (reserved, refunded int64, moves bool) {
	over := to == db.RefundStatusFailed || to == db.RefundStatusCanceled
	switch {
	case from == db.RefundStatusPending && to == db.RefundStatusSucceeded:
		return 0, amount, true
	case from == db.RefundStatusPending && over:
		return -amount, 0, true
	case from == db.RefundStatusSucceeded && to == db.RefundStatusFailed:
		return -amount, -amount, true
	}
	return 0, 0, false
}

func (s *Service) refundWaits(ctx context.Context, c *idempotency.Claim, w *refunding, pause time.Duration, why error) (idempotency.Answer, error) {
	answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
	return answer, yield(ctx, c, jittered(pause), why)
}

// nextPoll is the pause before Stripe is asked again about a refund that only time
// will settle.
func nextPoll(c *idempotency.Claim) time.Duration {
	return min(max(refundPoll, c.Age/20), refundPollMax)
}
