package checkout

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// failStep records that a step has definitely failed, and turns the saga around: the
// next recovery point is that of the first compensation that is due.
func (s *Service) failStep(
	ctx context.Context, c *idempotency.Claim, k *saga, step db.SagaStep, due string, why stripe.Failure,
) error {
	if err := c.Phase(ctx, due, func(q *db.Queries) error { return k.fail(ctx, q, step, why, false) }); err != nil {
		return err
	}
	c.Log().Info("checkout turns round", "step", string(step), "failure", why.Code)
	return nil
}

// fail records the failure in q's transaction. Steps that have not begun are skipped,
// and so are the compensations of steps that were not done.
func (k *saga) fail(ctx context.Context, q *db.Queries, step db.SagaStep, why stripe.Failure, declined bool) error {
	if err := k.move(ctx, q, step, db.SagaStepStatusFailed); err != nil {
		return err
	}
	if err := k.noteFailure(ctx, q, &why, declined); err != nil {
		return err
	}
	if err := q.CheckoutStepsSkip(ctx, db.CheckoutStepsSkipParams{
		TenantID: k.row.TenantID, CheckoutID: k.row.ID,
	}); err != nil {
		return fmt.Errorf("skip the remaining steps of checkout %s: %w", k.row.ID, err)
	}
	return nil
}

// noteFailure records why the checkout fails, or, with nil, that it does not.
func (k *saga) noteFailure(ctx context.Context, q *db.Queries, why *stripe.Failure, declined bool) error {
	p := db.CheckoutSetFailureParams{TenantID: k.row.TenantID, ID: k.row.ID, Declined: declined}
	if why != nil {
		p.Code, p.DeclineCode, p.Message = &why.Code, postgres.Nullable(why.DeclineCode), &why.Message
	}
	if err := q.CheckoutSetFailure(ctx, p); err != nil {
		return fmt.Errorf("note why checkout %s fails: %w", k.row.ID, err)
	}
	k.row.FailureCode, k.row.FailureDeclineCode, k.row.FailureMessage, k.row.Declined = p.Code, p.DeclineCode,
		p.Message, declined
	return nil
}

// failure is what noteFailure has recorded.
func (k *saga) failure() stripe.Failure {
	f := stripe.Failure{Code: *k.row.FailureCode, Message: *k.row.FailureMessage}
	if k.row.FailureDeclineCode != nil {
		f.DeclineCode = *k.row.FailureDeclineCode
	}
	return f
}

// undone records that a compensation is done, and its step compensated.
func (k *saga) undone(ctx context.Context, q *db.Queries, undoing, step db.SagaStep) error {
	if err := k.move(ctx, q, undoing, db.SagaStepStatusDone); err != nil {
		return err
	}
	return k.move(ctx, q, step, db.SagaStepStatusCompensated)
}

// beginRefundStep has the rest of the payment refunded, by the operation for refunds
// that no caller asked for. That has a key and a claim of its own; this saga waits for
// its outcome.
func (s *Service) beginRefundStep(ctx context.Context, c *idempotency.Claim, k *saga) error {
	return c.Phase(ctx, refundBegun, func(q *db.Queries) error {
		p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: k.row.TenantID, ID: *k.row.PaymentID})
		if err != nil {
			return fmt.Errorf("lock payment %s: %w", *k.row.PaymentID, err)
		}
		if err := s.payments.RefundRest(ctx, q, p); err != nil {
			return err
		}
		return k.move(ctx, q, db.SagaStepRefund, db.SagaStepStatusRunning)
	})
}

// returning is a compensation that gives money back: what it undoes, where the checkout goes when all of it is back, and
// where it waits while it is owed.
type returning struct {
	undoing, step db.SagaStep
	next, owed    string
}

// CustomerIsOwed begins the last_error of a checkout that has gone wrong and whose refund has failed.
const CustomerIsOwed = "the customer is owed money"

// awaitRefundStep waits for the refund of what was taken.
func (s *Service) awaitRefundStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	return s.awaitRefund(ctx, c, k, returning{db.SagaStepRefund, k.takes(), releaseDue, refundOwed})
}

// awaitRefund checks the outcome of the refund. One that failed is owed: it is tried again without this saga, which
// waits until the money is back or an operator has settled it. No later step would help the customer, so none is taken.
func (s *Service) awaitRefund(
	ctx context.Context, c *idempotency.Claim, k *saga, of returning,
) (idempotency.Answer, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: *k.row.PaymentID})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", *k.row.PaymentID, err)
	}
	owed, err := s.pool.RefundOwedGet(ctx, db.RefundOwedGetParams{TenantID: c.TenantID, PaymentID: p.ID})
	switch {
	case err != nil && !errors.Is(err, postgres.ErrNoRows):
		return idempotency.Answer{}, fmt.Errorf("read what is owed of payment %s: %w", p.ID, err)
	case p.AmountRefundedMinor+owed.SettledMinor >= payments.PaymentOf(p).AmountCaptured:
		return idempotency.Answer{}, c.Phase(ctx, of.next, func(q *db.Queries) error {
			return k.undone(ctx, q, of.undoing, of.step)
		})
	case p.AmountRefundingMinor == payments.PaymentOf(p).AmountCaptured:
		return s.wait(ctx, c, k, idempotency.NextTry(c), errors.New("the refund is under way"))
	case owed.ParkedAt != nil && c.RecoveryPoint() != of.owed:
		return idempotency.Answer{}, c.Phase(ctx, of.owed, func(q *db.Queries) error {
			return k.move(ctx, q, of.undoing, db.SagaStepStatusFailed)
		})
	}
	return s.wait(ctx, c, k, idempotency.NextTry(c),
		errors.New(CustomerIsOwed+": the refund failed with "+owed.LastError))
}

// releaseStockStep returns what was reserved.
func (s *Service) releaseStockStep(ctx context.Context, c *idempotency.Claim, k *saga) error {
	return c.Phase(ctx, k.dueUnreserved(), func(q *db.Queries) error {
		return k.releaseStock(ctx, q)
	})
}

// cancelOrderStep cancels the order, which ends the saga, and stores the answer.
// Its PaymentIntent is canceled already, or there never was one.
func (s *Service) cancelOrderStep(ctx context.Context, c *idempotency.Claim, k *saga) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		order, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: *k.row.OrderID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", *k.row.OrderID, err)
		}
		if order.Status == db.OrderStatusOpen {
			// Otherwise it is closed already: canceled by the customer, or paid and refunded.
			if order, err = q.OrderCancel(ctx, db.OrderCancelParams{TenantID: c.TenantID, ID: order.ID}); err != nil {
				return idempotency.Answer{}, fmt.Errorf("cancel order %s: %w", order.ID, err)
			}
			if err := outbox.Append(ctx, q, payments.OrderEvent("order.canceled", order)); err != nil {
				return idempotency.Answer{}, err
			}
		}
		if err := k.undone(ctx, q, db.SagaStepCancelOrder, db.SagaStepCreateOrder); err != nil {
			return idempotency.Answer{}, err
		}
		shown, err := k.end(ctx, q, db.CheckoutStatusCompensated)
		if err != nil {
			return idempotency.Answer{}, err
		}
		return s.compensatedAnswer(ctx, q, c, k, shown)
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	s.o.Metrics.ended(db.CheckoutStatusCompensated)
	c.Log().Info("checkout compensated", "failure", *k.row.FailureCode)
	return c.Answer(), nil
}

// compensatedAnswer says why the checkout failed: its payment did, or the stock could
// not be reserved.
func (s *Service) compensatedAnswer(
	ctx context.Context, q *db.Queries, c *idempotency.Claim, k *saga, shown Checkout,
) (idempotency.Answer, error) {
	if *k.row.FailureCode == outOfStockCode {
		return s.answers.Problem(&OutOfStockError{Checkout: shown}, c.RequestID), nil
	}
	p, err := q.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: *shown.PaymentID})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", *shown.PaymentID, err)
	}
	return s.answers.Problem(&PaymentFailedError{
		PaymentError: payments.PaymentError{Payment: payments.PaymentOf(p), Declined: k.row.Declined},
		Checkout:     shown,
	}, c.RequestID), nil
}
