package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/stripe"
)

// actionPoll is the pause between two looks at an intent that waits for its customer. A
// webhook is faster; this is for webhooks that never come.
const actionPoll = 40 * time.Second

// A payment that the customer completed is settled within a minute, without its webhook.
const _ = uint(60*time.Second - actionPoll - actionPoll/10 - idempotency.FastRetry)

// requireAction records that the customer must act. The key stays unfinished,
// because this is not the final answer.
func (s *Service) requireAction(ctx context.Context, c *idempotency.Claim, r *Run, intent stripe.Intent) (idempotency.Answer, error) {
	if r.Payment.Status != db.PaymentStatusRequiresAction {
		var row db.Payment
		err := c.Phase(ctx, ActionRequired, func(q *db.Queries) (err error) {
			row, err = q.PaymentSettle(ctx, db.PaymentSettleParams{
				TenantID: c.TenantID, ID: r.Payment.ID, SeenVersion: r.Payment.Version, Status: db.PaymentStatusRequiresAction,
				NextAction: intent.NextAction,
			})
			if err != nil {
				return fmt.Errorf("settle payment %s: %w", r.Payment.ID, err)
			}
			if err := calls.RecordEnd(ctx, q, c.TenantID, r.confirmCall().Key, stripe.FromRead(intent)); err != nil {
				return err
			}
			return outbox.Append(ctx, q, PaymentEvent("payment.requires_action", row))
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
		r.Payment = row
	}
	pending := r.ending.Pending(ctx, c, r)
	return pending, c.YieldFor(ctx, idempotency.Jittered(actionPoll), errors.New("the customer must act"))
}

// awaitCustomer checks whether the customer has acted. If they do not act in time
// the intent is canceled, so that it cannot be paid later.
func (s *Service) awaitCustomer(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	intent, err := s.readIntent(ctx, *r.Payment.IntentID)
	if err != nil {
		return s.Wait(ctx, c, r, err)
	}
	switch intent.Status {
	case stripe.IntentRequiresPaymentMethod: // The authentication failed.
		why := stripe.Failure{Code: "payment_intent_authentication_failure", Message: "The customer did not pass the authentication."}
		if intent.LastFailure != nil {
			why = *intent.LastFailure
		}
		return r.ending.Finish(ctx, c, r, Settlement{
			Status: db.PaymentStatusFailed, Failure: why, Declined: intent.LastIsDecline, ChargeID: intent.ChargeID,
			StripeKey: r.confirmCall().Key, Outcome: stripe.Outcome{Effect: stripe.Refused, Intent: intent},
		})
	case stripe.IntentRequiresAction:
		late, err := s.pool.PaymentOlderThan(ctx, db.PaymentOlderThanParams{TenantID: c.TenantID, ID: r.Payment.ID, Age: s.o.ActionTimeout})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", r.Payment.ID, err)
		}
		if late {
			return s.expire(ctx, c, r)
		}
	case stripe.IntentCanceled:
		return s.finishCanceled(ctx, c, r, intent)
	}
	return s.SettleOrWait(ctx, c, r, intent, "the intent is "+string(intent.Status))
}

// expire cancels the intent of a payment whose customer did not act in time.
func (s *Service) expire(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	intent, out, err := s.CancelIntent(ctx, c, r.Payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case stripe.IntentCanceled:
		return s.finishCanceled(ctx, c, r, intent)
	case "":
		return s.Wait(ctx, c, r, out.Why())
	}
	return s.Wait(ctx, c, r, fmt.Errorf("the intent is %s, not canceled", intent.Status))
}

func (s *Service) finishCanceled(ctx context.Context, c *idempotency.Claim, r *Run, intent stripe.Intent) (idempotency.Answer, error) {
	return r.ending.Finish(ctx, c, r, Settlement{
		Status: db.PaymentStatusCanceled, ClosesIntent: true, StripeKey: r.confirmCall().Key,
		Outcome: stripe.Outcome{Effect: stripe.Done, Intent: intent},
	})
}
