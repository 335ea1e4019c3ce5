package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/tracing"
)

// errMoved says that a payment or its order has changed since it was read.
var errMoved = fmt.Errorf("the payment: %w", idempotency.ErrRowChanged)

// settled reports whether another operation has ended the payment: the customer
// canceled it, or its order.
func (w *paying) settled() bool {
	return w.payment.Status != db.PaymentStatusProcessing && w.payment.Status != db.PaymentStatusRequiresAction
}

// finishSettled stores the answer to a payment that another operation has ended.
func (s *Service) finishSettled(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	if w.checkout != nil {
		return idempotency.Answer{}, s.endSettledPayStep(ctx, c, w)
	}
	err := c.Finish(ctx, func(*db.Queries) (idempotency.Answer, error) {
		return s.paymentAnswer(w.payment, ending{}, c.RequestID), nil
	})
	return c.Answer(), err
}

// looked is the outcome of a call that was settled by reading the intent.
func looked(intent Intent) Outcome {
	return Outcome{Verdict: Done, Intent: intent, HTTPStatus: http.StatusOK}
}

// settle ends a payment as its intent shows, or waits where the intent has not
// decided. Not settled: the intent waits for a confirm, so none has succeeded.
func (s *Service) settle(ctx context.Context, c *idempotency.Claim, w *paying, out Outcome) (answer idempotency.Answer, settled bool, err error) {
	intent := out.Intent
	switch intent.Status {
	case IntentSucceeded:
		answer, err = s.finish(ctx, c, w, ending{status: db.PaymentStatusSucceeded, chargeID: intent.ChargeID, call: w.confirmCall(), out: out})
	case IntentRequiresAction:
		answer, err = s.requireAction(ctx, c, w, intent)
	case IntentProcessing:
		answer, err = s.waitFor(ctx, c, w, errors.New("the PaymentIntent is processing: the payment method takes time"))
	case IntentCanceled:
		answer, err = s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: Failure{Code: "payment_intent_canceled", Message: "The PaymentIntent was canceled before the payment was made."},
			closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Refused, HTTPStatus: out.HTTPStatus},
		})
	case IntentRequiresPaymentMethod, IntentRequiresConfirmation:
		return idempotency.Answer{}, false, nil
	default: // A status that this version does not know. It changes to a known one, or a person will see it.
		answer, err = s.waitFor(ctx, c, w, fmt.Errorf("the intent has the unknown status %q", intent.Status))
	}
	return answer, true, err
}

// abandon makes sure that a payment whose outcome cannot be determined has failed:
// a canceled intent moves no money, whatever is still on its way to Stripe.
func (s *Service) abandon(ctx context.Context, c *idempotency.Claim, w *paying, why Failure) (idempotency.Answer, error) {
	intent, out, err := s.cancelIntent(ctx, c, w.payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case IntentCanceled:
		return s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: why, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Refused},
		})
	case "":
		return s.wait(ctx, c, w, out)
	default: // Too late to cancel: it is paid, or about to be.
		return s.settleOrWait(ctx, c, w, intent, "the intent could not be canceled")
	}
}

// settleOrWait settles a payment by its intent, or waits if the intent decides nothing.
func (s *Service) settleOrWait(ctx context.Context, c *idempotency.Claim, w *paying, intent Intent, why string) (idempotency.Answer, error) {
	answer, settled, err := s.settle(ctx, c, w, looked(intent))
	if !settled && err == nil {
		return s.waitFor(ctx, c, w, errors.New(why))
	}
	return answer, err
}

// requireAction records that the customer must act. The key stays unfinished,
// because this is not the final answer.
func (s *Service) requireAction(ctx context.Context, c *idempotency.Claim, w *paying, intent Intent) (idempotency.Answer, error) {
	if w.payment.Status != db.PaymentStatusRequiresAction {
		var row db.Payment
		err := c.Phase(ctx, actionRequired, func(q *db.Queries) (err error) {
			row, err = q.PaymentSettle(ctx, db.PaymentSettleParams{
				TenantID: c.TenantID, ID: w.payment.ID, SeenVersion: w.payment.Version, Status: db.PaymentStatusRequiresAction,
				NextAction: intent.NextAction,
			})
			if err != nil {
				return fmt.Errorf("settle payment %s: %w", w.payment.ID, err)
			}
			if err := recordCall(ctx, q, c.TenantID, w.confirmCall().key, Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Intent: intent}, false); err != nil {
				return err
			}
			return outbox.Append(ctx, q, paymentEvent("payment.requires_action", row))
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
		w.payment = row
	}
	return s.interim(ctx, c, w), yield(ctx, c, jittered(actionPoll), errors.New("the customer must act"))
}

// awaitCustomer checks whether the customer has acted. If they do not act in time
// the intent is canceled, so that it cannot be paid later.
func (s *Service) awaitCustomer(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, err := s.look(ctx, *w.payment.IntentID)
	if err != nil {
		return s.waitFor(ctx, c, w, err)
	}
	if intent.Status == IntentRequiresPaymentMethod { // The authentication failed.
		why := Failure{Code: "payment_intent_authentication_failure", Message: "The customer did not pass the authentication."}
		if intent.LastFailure != nil {
			why = *intent.LastFailure
		}
		return s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: why, declined: intent.LastIsDecline, chargeID: intent.ChargeID,
			call: w.confirmCall(), out: Outcome{Verdict: Refused, Intent: intent},
		})
	}
	if intent.Status == IntentRequiresAction {
		late, err := s.pool.PaymentOlderThan(ctx, db.PaymentOlderThanParams{TenantID: c.TenantID, ID: w.payment.ID, Age: s.o.ActionTimeout})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", w.payment.ID, err)
		}
		if late {
			return s.expire(ctx, c, w)
		}
	}
	if intent.Status == IntentCanceled {
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusCanceled, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Done, Intent: intent}})
	}
	return s.settleOrWait(ctx, c, w, intent, "the intent is "+string(intent.Status))
}

func (s *Service) expire(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, out, err := s.cancelIntent(ctx, c, w.payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case IntentCanceled:
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusCanceled, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Done, Intent: intent}})
	case "":
		return s.wait(ctx, c, w, out)
	}
	return s.waitFor(ctx, c, w, fmt.Errorf("the intent is %s, not canceled", intent.Status))
}

// ending is how a payment ends.
type ending struct {
	status       db.PaymentStatus
	chargeID     string
	failure      Failure
	declined     bool
	closesIntent bool
	call         call    // the call that decided it
	out          Outcome // and what came of that
}

// finish is T2: the outcome, the order's new state, the events and the answer,
// in one statement under the fence.
func (s *Service) finish(ctx context.Context, c *idempotency.Claim, w *paying, e ending) (idempotency.Answer, error) {
	if w.checkout != nil {
		return idempotency.Answer{}, s.endPayStep(ctx, c, w, e)
	}
	if e.status == db.PaymentStatusSucceeded && w.order.Status != db.OrderStatusOpen {
		return s.finishTooLate(ctx, c, w, e)
	}
	after := w.ended(e)
	events := []outbox.Event{paymentEvent("payment."+string(e.status), after)}
	order := w.order
	if e.status == db.PaymentStatusSucceeded {
		order.Status, order.Version, order.PaymentID = db.OrderStatusPaid, order.Version+1, &after.ID
		events = append(events, orderEvent("order.paid", order))
	}
	answer := s.paymentAnswer(after, e, c.RequestID)
	httpStatus := int16(e.out.HTTPStatus) //nolint:gosec // an HTTP status fits
	err := c.FinishStatement(ctx, answer, func(q *db.Queries, a idempotency.Encoded) (int64, error) {
		p := db.PaymentFinishParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, PaymentID: after.ID, PaymentVersion: w.payment.Version, Status: after.Status,
			OrderID: w.order.ID, OrderVersion: w.order.Version, PaysOrder: e.status == db.PaymentStatusSucceeded,
			AnswerVersion: a.Version, AnswerStatus: a.Status, AnswerHeaders: a.Headers, AnswerBody: a.Body,
			StripeKey: e.call.key, StripeOutcome: e.out.record(), HttpStatus: &httpStatus, StripeRequestID: e.out.RequestID,
			ErrorCode: optional(e.out.ErrorCode), ObjectID: optional(e.out.Intent.ID), IntentClosed: after.IntentClosed, ChargeID: after.ChargeID,
			FailureCode: after.FailureCode, FailureDeclineCode: after.FailureDeclineCode, FailureMessage: after.FailureMessage,
			Traceparent: tracing.Traceparent(ctx),
		}
		for _, event := range events {
			p.EventAggregateIds = append(p.EventAggregateIds, event.AggregateID)
			p.EventVersions = append(p.EventVersions, event.Version)
			p.EventTypes = append(p.EventTypes, event.Type)
			p.EventData = append(p.EventData, event.Data)
		}
		n, err := q.PaymentFinish(ctx, p)
		if err == nil && n == 0 {
			err = s.whyNotFinished(ctx, c, w)
		}
		return n, err
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish payment %s: %w", w.payment.ID, err)
	}
	c.Log().Info("payment finished", "payment_id", after.ID, "status", string(after.Status), "stripe_request_id", e.out.RequestID)
	return c.Answer(), nil
}

// finishTooLate records a payment that succeeded although its order was closed
// meanwhile. It is refunded automatically.
func (s *Service) finishTooLate(ctx context.Context, c *idempotency.Claim, w *paying, e ending) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: w.order.ID}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", w.order.ID, err)
		}
		p, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
			TenantID: c.TenantID, ID: w.payment.ID, SeenVersion: w.payment.Version, Status: e.status, ChargeID: optional(e.chargeID),
		})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("settle payment %s: %w", w.payment.ID, err)
		}
		if err := recordCall(ctx, q, c.TenantID, e.call.key, e.out, false); err != nil {
			return idempotency.Answer{}, err
		}
		if err := outbox.Append(ctx, q, paymentEvent("payment.succeeded", p)); err != nil {
			return idempotency.Answer{}, err
		}
		return s.paymentAnswer(p, e, c.RequestID), s.refundByItself(ctx, q, p)
	})
	return c.Answer(), err
}

// whyNotFinished tells a payment that another operation changed (errMoved) from a
// lost lease (nil), which the caller reports by itself.
func (s *Service) whyNotFinished(ctx context.Context, c *idempotency.Claim, w *paying) error {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: w.payment.ID})
	if err != nil {
		return err
	}
	o, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: c.TenantID, ID: w.order.ID})
	if err != nil {
		return err
	}
	if p.Version == w.payment.Version && o.Version == w.order.Version {
		return nil
	}
	return errMoved
}

// ended is the payment's row as T2 will leave it.
func (w *paying) ended(e ending) db.Payment {
	p := w.payment
	p.Status, p.Version, p.NextAction, p.IntentClosed = e.status, p.Version+1, nil, e.closesIntent
	if e.chargeID != "" {
		p.ChargeID = &e.chargeID
	} else if e.out.Intent.ChargeID != "" {
		p.ChargeID = &e.out.Intent.ChargeID
	}
	if e.status == db.PaymentStatusFailed {
		p.FailureCode, p.FailureDeclineCode, p.FailureMessage = &e.failure.Code, optional(e.failure.DeclineCode), optional(e.failure.Message)
	}
	return p
}

func (s *Service) paymentAnswer(p db.Payment, e ending, requestID string) idempotency.Answer {
	if p.Status == db.PaymentStatusSucceeded {
		return s.answers.Object(http.StatusCreated, "/v1/payments/"+p.ID, paymentOf(p))
	}
	return s.answers.Problem(&PaymentError{Payment: paymentOf(p), Declined: e.declined}, requestID)
}

// interim shows the present state to a client that asks before the end.
func (s *Service) interim(ctx context.Context, c *idempotency.Claim, w *paying) idempotency.Answer {
	if w.checkout != nil {
		return s.checkoutStands(ctx, c, w.checkout)
	}
	return s.answers.Object(http.StatusAccepted, "/v1/payments/"+w.payment.ID, paymentOf(w.payment))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
