package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// This file is everything that a payment reaches only when a call was sent before, or when
// a call had no definite outcome: a process was killed, a response was lost, the customer
// must act, or another operation changed the payment, its order or its key.

// ReadRun reads what a run works on.
func (s *Service) ReadRun(ctx context.Context, tenantID, id string, ending Ending) (*Run, error) {
	row, err := s.pool.PaymentWithOrder(ctx, db.PaymentWithOrderParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", id, err)
	}
	inStatus := time.Duration(row.StatusSeconds * float64(time.Second))
	return &Run{
		Order: row.Order, Payment: row.Payment, ending: ending, inStatus: inStatus, beforeLife: row.BeforeLife,
	}, nil
}

// Wait gives the claim back until the next attempt, and answers with the present state.
func (s *Service) Wait(ctx context.Context, c *idempotency.Claim, r *Run, why error) (idempotency.Answer, error) {
	pending := r.ending.Pending(ctx, c, r) // Once the claim is given back, another process may change the state.
	return pending, c.YieldOrPark(ctx, why)
}

// createUnanswered continues after a creation that did not succeed. If the call is too old to
// be sent again, or another attempt would get the same stored error, another intent is made.
func (s *Service) createUnanswered(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome, attempts calls.Attempts,
) (idempotency.Answer, error) {
	switch {
	case attempts.PastCutoff, out.ErrorCached && attempts.Count > 1, out.Failure.Code == stripe.CodeKeyReused:
		return s.makeAnother(ctx, c, r, out)
	case out.Effect == stripe.Refused || out.Effect == stripe.Conflict:
		// No money was at stake, so any refusal is final.
		return r.ending.Finish(ctx, c, r, Settlement{
			Status: db.PaymentStatusFailed, Failure: out.Failure, ClosesIntent: true, Call: r.createCall(),
			Outcome: out,
		})
	}
	return s.Wait(ctx, c, r, out.Why()) // It may have been made, so it may not be abandoned yet.
}

// makeAnother moves on to the order's next intent once no intent of the order is paid, nor can be. A database that was
// restored may not know of such an intent, so Stripe is asked, unless Stripe says that no request came before those that
// are recorded. If the order's money is on an intent of which this payment cannot be made, the payment fails.
func (s *Service) makeAnother(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (idempotency.Answer, error) {
	if out.ErrorCached {
		ours, err := s.calls.BeganHere(ctx, c.TenantID, r.createCall(), out)
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read the creation of an intent of order %s: %w", r.Order.ID, err)
		}
		if ours { // No one has the id of what it may have made, so that was not confirmed.
			return idempotency.Answer{}, s.nextIntent(ctx, c, r)
		}
	}
	paidBy, err := s.Repairs().recoverIntent(ctx, c, r, out)
	switch {
	case errors.Is(err, ErrMoved), errors.Is(err, idempotency.ErrLeaseLost):
		return idempotency.Answer{}, err
	case err != nil:
		return s.Wait(ctx, c, r, err)
	case paidBy != nil:
		return s.paidOtherwise(ctx, c, r, *paidBy)
	}
	return idempotency.Answer{}, s.nextIntent(ctx, c, r)
}

// paidOtherwise fails a payment whose order has its money on another intent.
func (s *Service) paidOtherwise(
	ctx context.Context, c *idempotency.Claim, r *Run, by stripe.Intent,
) (idempotency.Answer, error) {
	return r.ending.Finish(ctx, c, r, Settlement{
		Status: db.PaymentStatusFailed, ClosesIntent: true, Call: r.createCall(), PaidBy: &by,
		Outcome: stripe.Outcome{Effect: stripe.Refused}, Failure: stripe.Failure{
			Code: "order_already_paid", Message: "The order was paid at Stripe meanwhile. No money was taken by this payment.",
		},
	})
}

// endEarlier cancels the order's earlier intents before another is made: those of the other kind of capture, and those
// that nothing has used for a day. stays: one of them was paid, which ends the payment, or may still be, and the payment
// waits.
func (s *Service) endEarlier(
	ctx context.Context, c *idempotency.Claim, r *Run,
) (answer idempotency.Answer, stays bool, err error) {
	earlier, why, err := s.closeEarlier(ctx, c, r.order(), r.Payment.IntentNumber)
	switch {
	case err != nil || earlier == nil:
		return idempotency.Answer{}, false, err
	case earlier.Status != stripe.IntentSucceeded:
		answer, err = s.Wait(ctx, c, r, why)
		return answer, true, err
	}
	answer, err = s.paidOtherwise(ctx, c, r, *earlier)
	return answer, true, err
}

// nextIntent abandons an intent whose creation will never be answered, and moves on
// to the next number. If the lost one exists, it is unconfirmed and will be canceled.
func (s *Service) nextIntent(ctx context.Context, c *idempotency.Claim, r *Run) error {
	err := c.Phase(ctx, PaymentRecorded, func(q *db.Queries) error {
		_, err := q.PaymentNextIntent(ctx, db.PaymentNextIntentParams{
			TenantID: c.TenantID, ID: r.Payment.ID, IntentNumber: r.Payment.IntentNumber,
		})
		return err
	})
	if err != nil {
		return err
	}
	r.Payment.IntentNumber++
	return nil
}

// confirmedBefore settles a payment by its intent if an earlier confirm had an effect,
// and fails it if another confirm could give no new information. Not done: confirm.
func (s *Service) confirmedBefore(
	ctx context.Context, c *idempotency.Claim, r *Run,
) (answer idempotency.Answer, done bool, err error) {
	intent, err := s.gateway.GetIntent(ctx, c.TenantID, *r.Payment.IntentID)
	if err != nil {
		answer, err = s.Wait(ctx, c, r, err)
		return answer, true, err
	}
	if answer, settled, err := s.settle(ctx, c, r, stripe.FromRead(intent)); settled {
		return answer, true, err
	}
	last, err := s.lastConfirm(ctx, r) // The intent shows no effect of it.
	if err != nil {
		return idempotency.Answer{}, true, err
	}
	if !calls.Exhausted(last) {
		return idempotency.Answer{}, false, nil
	}
	answer, err = s.abandon(ctx, c, r, r.failed(last))
	return answer, true, err
}

// confirmUndecided continues after a confirm that neither succeeded nor was refused.
func (s *Service) confirmUndecided(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome, attempts calls.Attempts,
) (idempotency.Answer, error) {
	switch {
	case out.Effect == stripe.Done:
		if !out.Replayed {
			if answer, settled, err := s.settle(ctx, c, r, out); settled {
				return answer, err
			}
		}
		return s.awaitCustomer(ctx, c, r) // A replay shows the intent as it was then. It may have changed since.
	case out.Effect == stripe.Conflict, out.ErrorCached && attempts.Count > 1:
		// Another attempt would get the same stored error.
		return s.readAgain(ctx, c, r)
	}
	return s.Wait(ctx, c, r, out.Why())
}

// readAgain reads the intent after a response that contradicts what we knew of it, and that another attempt would
// get again. It settles the payment, or abandons it.
func (s *Service) readAgain(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	intent, err := s.gateway.GetIntent(ctx, c.TenantID, *r.Payment.IntentID)
	if err != nil {
		return s.Wait(ctx, c, r, err)
	}
	answer, settled, err := s.settle(ctx, c, r, stripe.FromRead(intent))
	if settled {
		return answer, err
	}
	last, err := s.lastConfirm(ctx, r)
	if err != nil {
		return idempotency.Answer{}, err
	}
	return s.abandon(ctx, c, r, r.failed(last))
}

// lastConfirm is the record of the payment's confirm.
func (s *Service) lastConfirm(ctx context.Context, r *Run) (db.StripeCallGetRow, error) {
	last, err := s.calls.Last(ctx, r.Payment.TenantID, r.confirmCall())
	if err != nil {
		return last, fmt.Errorf("read the confirm of payment %s: %w", r.Payment.ID, err)
	}
	return last, nil
}

// settle ends a payment as its intent shows, or waits where the intent has not
// decided. Not settled, which is no error: the intent waits for a confirm, so none has succeeded.
func (s *Service) settle(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (answer idempotency.Answer, settled bool, err error) {
	intent := out.Intent
	switch intent.Status {
	case stripe.IntentSucceeded:
		answer, err = s.settlePaid(ctx, c, r, out)
	case stripe.IntentRequiresAction:
		answer, err = s.requireAction(ctx, c, r, out)
	case stripe.IntentProcessing:
		answer, err = s.Wait(ctx, c, r, errors.New("the PaymentIntent is processing: the payment method takes time"))
	case stripe.IntentCanceled:
		answer, err = r.ending.Finish(ctx, c, r, Settlement{
			Status: db.PaymentStatusFailed, ClosesIntent: true, Call: r.confirmCall(),
			Failure: stripe.Failure{Code: "payment_intent_canceled",
				Message: "The PaymentIntent was canceled before the payment was made."},
			Outcome: stripe.Outcome{Effect: stripe.Refused, HTTPStatus: out.HTTPStatus},
		})
	case stripe.IntentRequiresCapture:
		answer, err = s.settleAuthorized(ctx, c, r, out)
	case stripe.IntentRequiresReauthorization: // It holds no money, and cannot be captured.
		answer, err = s.abandon(ctx, c, r, r.failed(db.StripeCallGetRow{}))
	case stripe.IntentRequiresPaymentMethod, stripe.IntentRequiresConfirmation:
		return idempotency.Answer{}, false, nil
	default: // A status that this version does not know. It changes to a known one, or the key is parked.
		answer, err = s.Wait(ctx, c, r, fmt.Errorf("the intent has the unknown status %q", intent.Status))
	}
	return answer, true, err
}

// settlePaid ends a payment whose intent was paid, by it or by others.
func (s *Service) settlePaid(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (idempotency.Answer, error) {
	intent := out.Intent
	if !pays(r.Payment, intent) {
		return s.otherAmount(ctx, c, r, out)
	}
	if intent.RefundedMinor == intent.ReceivedMinor {
		last, err := s.lastConfirm(ctx, r)
		if err != nil {
			return idempotency.Answer{}, err
		}
		// Others have paid the intent and given all of it back. This payment has moved nothing, and there is nothing left
		// that could pay its order: the next one makes another intent.
		refused := last.Outcome == db.StripeOutcomeRefused || last.Outcome == db.StripeOutcomeNotExecuted
		if refused && !last.InDoubt {
			if err := s.intentSpent(ctx, r.order(), intent.ID); err != nil {
				return idempotency.Answer{}, err
			}
			return r.ending.Finish(ctx, c, r, r.failed(last))
		}
	}
	return r.ending.Finish(ctx, c, r, Settlement{
		Status: db.PaymentStatusSucceeded, ChargeID: intent.ChargeID, Call: r.confirmCall(), Outcome: out,
	})
}

// isFor reports whether an intent is for a payment's amount. Anybody with the Stripe account's key can change that of
// an intent until it is paid.
func isFor(p db.Payment, i stripe.Intent) bool {
	return i.AmountMinor == p.AmountMinor && i.Currency == p.Currency
}

// pays reports whether what was taken of an intent is what a payment takes: its amount or, of one that is authorized
// first, a part of it. The capture method of an intent can be changed, too.
func pays(p db.Payment, i stripe.Intent) bool {
	return isFor(p, i) && (p.ManualCapture || i.ReceivedMinor == p.AmountMinor)
}

// otherAmount is for an intent that was paid with another amount than the payment's. The order is not paid with it, and
// the reconciler reports it. Once all of it was given back at Stripe, or lost in disputes, the payment has failed.
func (s *Service) otherAmount(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (idempotency.Answer, error) {
	intent, err := s.WithLost(ctx, out.Intent)
	if err != nil {
		return s.Wait(ctx, c, r, err)
	}
	if intent.RefundedMinor+intent.LostMinor == intent.ReceivedMinor {
		if err := s.intentSpent(ctx, r.order(), intent.ID); err != nil {
			return idempotency.Answer{}, err
		}
		return r.ending.Finish(ctx, c, r, Settlement{
			Status: db.PaymentStatusFailed, ClosesIntent: true, Call: r.confirmCall(),
			Failure: stripe.Failure{
				Code: "amount_changed", Message: "The payment was made with another amount, and was given back.",
			},
			Outcome: stripe.Outcome{Effect: stripe.Refused, HTTPStatus: out.HTTPStatus},
		})
	}
	return s.Wait(ctx, c, r, fmt.Errorf("%d %s were taken, and the payment is of %d %s: refund it at Stripe",
		intent.ReceivedMinor, intent.Currency, r.Payment.AmountMinor, r.Payment.Currency))
}

// intentSpent records that an intent was paid and pays nothing, before the operation that has found it ends: what the
// intent holds is read from then on, because a bank may return what others have given back.
func (s *Service) intentSpent(ctx context.Context, order compare.OrderRef, intentID string) error {
	err := s.pool.PaymentIntentSpent(ctx, db.PaymentIntentSpentParams{
		TenantID: order.TenantID, OrderID: order.OrderID, IntentID: &intentID,
	})
	if err != nil {
		return fmt.Errorf("note that %s is spent: %w", intentID, err)
	}
	return nil
}

func (r *Run) order() compare.OrderRef {
	return compare.OrderRef{TenantID: r.Payment.TenantID, OrderID: r.Order.ID}
}

// SettleOrWait settles a payment by its intent, or waits if the intent decides nothing.
func (s *Service) SettleOrWait(
	ctx context.Context, c *idempotency.Claim, r *Run, intent stripe.Intent, why string,
) (idempotency.Answer, error) {
	answer, settled, err := s.settle(ctx, c, r, stripe.FromRead(intent))
	if !settled {
		return s.Wait(ctx, c, r, errors.New(why))
	}
	return answer, err
}

// abandon ends a payment that cannot succeed any more. It cancels the intent first: a canceled
// intent moves no money, whatever is still on its way to Stripe.
func (s *Service) abandon(
	ctx context.Context, c *idempotency.Claim, r *Run, end Settlement,
) (idempotency.Answer, error) {
	intent, out, err := s.CancelIntent(ctx, c, r.Payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case stripe.IntentCanceled:
		return r.ending.Finish(ctx, c, r, end)
	case "", stripe.IntentRequiresAction, stripe.IntentRequiresCapture, stripe.IntentRequiresReauthorization:
		return s.Wait(ctx, c, r, out.Why())
	default: // Too late to cancel: it is paid, or about to be.
		return s.SettleOrWait(ctx, c, r, intent, "the intent could not be canceled")
	}
}

// failed is the end of a payment whose confirm, last, gave no result and cannot be sent again.
func (r *Run) failed(last db.StripeCallGetRow) Settlement {
	f := stripe.Failure{
		Code: "provider_error", Message: "The payment provider could not process the payment. No money was taken.",
	}
	if last.Outcome == db.StripeOutcomeRefused && last.ErrorCode != nil {
		f.Code = *last.ErrorCode
	}
	return Settlement{
		Status: db.PaymentStatusFailed, Failure: f, ClosesIntent: true, Call: r.confirmCall(),
		Outcome: stripe.Outcome{Effect: stripe.Refused},
	}
}

// notAuthenticated is the end of a payment whose customer did not pass the authentication, or whose card was
// declined after it.
func (r *Run) notAuthenticated(intent stripe.Intent) Settlement {
	why := stripe.Failure{
		Code: "payment_intent_authentication_failure", Message: "The customer did not pass the authentication.",
	}
	if intent.LastFailure != nil {
		why = *intent.LastFailure
	}
	if !intent.LastIsDecline {
		intent.ChargeID = "" // It is of an earlier payment on the intent.
	}
	return Settlement{
		Status: db.PaymentStatusFailed, Failure: why, Declined: intent.LastIsDecline, ChargeID: intent.ChargeID,
		ClosesIntent: true, Call: r.confirmCall(), Outcome: stripe.Outcome{Effect: stripe.Refused, Intent: intent},
	}
}

// canceled is the end of a payment whose customer did not act in time.
func (r *Run) canceled(intent stripe.Intent) Settlement {
	intent.ChargeID = "" // A charge is of an earlier payment on the intent: this one has moved nothing.
	return Settlement{
		Status: db.PaymentStatusCanceled, ClosesIntent: true, Call: r.confirmCall(),
		Outcome: stripe.Outcome{Effect: stripe.Done, Intent: intent},
	}
}

// finishOtherwise ends a payment that T2 has no form for: another operation has ended it, or it
// succeeded although its order was closed meanwhile. The latter is refunded automatically.
func (s paymentAnswer) finishOtherwise(
	ctx context.Context, c *idempotency.Claim, r *Run, e Settlement,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if e.AlreadyStored {
			return s.finalAnswer(PaymentOf(r.Payment), e, c.RequestID), nil
		}
		if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: r.Order.ID}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", r.Order.ID, err)
		}
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if err := outbox.Append(ctx, q, PaymentEvent("payment.succeeded", p)); err != nil {
			return idempotency.Answer{}, err
		}
		return s.finalAnswer(PaymentOf(p), e, c.RequestID), s.RefundRest(ctx, q, p)
	})
	return c.Answer(), err
}

// errNotAdoptable keeps a payment waiting whose order has its money on an intent that no payment can be made of.
var errNotAdoptable = errors.New("the order's money is on an intent that is not adopted")

// finishPaidBy fails a payment and, in the same transaction, makes a payment of the intent that holds the order's money:
// between the two another payment could begin, and would charge the customer again.
func (s paymentAnswer) finishPaidBy(
	ctx context.Context, c *idempotency.Claim, r *Run, e Settlement,
) (idempotency.Answer, error) {
	repairs := s.Repairs()
	adoption, err := repairs.adoptionOf(ctx, *e.PaidBy)
	if err != nil {
		return s.Wait(ctx, c, r, err)
	}
	err = c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: r.Order.ID}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", r.Order.ID, err)
		}
		p, err := r.Settle(ctx, q, e)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if err := outbox.Append(ctx, q, PaymentEvent("payment.failed", p)); err != nil {
			return idempotency.Answer{}, err
		}
		adopted, err := repairs.adoptFinally(ctx, q, adoption, *e.PaidBy)
		if err == nil && adopted == "" {
			err = fmt.Errorf("%w: %s", errNotAdoptable, e.PaidBy.ID)
		}
		return s.finalAnswer(PaymentOf(p), e, c.RequestID), err
	})
	return c.Answer(), err
}

// Settle moves the payment's row to its final status and records the call that decided
// it, in q's transaction. ErrMoved: another operation changed the payment.
func (r *Run) Settle(ctx context.Context, q *db.Queries, e Settlement) (db.Payment, error) {
	after := r.After(e)
	p, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
		TenantID: after.TenantID, ID: after.ID, SeenVersion: r.Payment.Version, Status: after.Status,
		IntentClosed: after.IntentClosed, ChargeID: after.ChargeID, FailureCode: after.FailureCode,
		FailureDeclineCode: after.FailureDeclineCode, FailureMessage: after.FailureMessage,
		CaptureBefore: after.CaptureBefore, CapturedMinor: after.CapturedMinor,
	})
	if errors.Is(err, postgres.ErrNoRows) {
		return p, ErrMoved
	}
	if err != nil {
		return p, fmt.Errorf("settle payment %s: %w", after.ID, err)
	}
	if e.Call.Key == "" {
		return p, nil
	}
	return p, calls.RecordEnd(ctx, q, after.TenantID, e.Call, e.Outcome)
}

// whyNotFinished distinguishes a payment that another operation changed (ErrMoved) from a
// lost lease (nil), which the caller reports by itself.
func (s *Service) whyNotFinished(ctx context.Context, c *idempotency.Claim, r *Run) error {
	now, err := s.ReadRun(ctx, c.TenantID, r.Payment.ID, r.ending)
	if err != nil {
		return err
	}
	if now.Payment.Version == r.Payment.Version && now.Order.Version == r.Order.Version {
		return nil
	}
	return ErrMoved
}

// whyNotClaimed distinguishes a key that is taken from an order that is being paid under another
// key. ErrTaken sends the request back to the look-up, as does an order that was closed meanwhile,
// or whose intent was retired.
func (s *Service) whyNotClaimed(ctx context.Context, r idempotency.Request, orderID string) error {
	found, err := s.keys.Lookup(ctx, r)
	if err != nil {
		return err
	}
	if found.State != idempotency.Fresh {
		return idempotency.ErrTaken
	}
	now, err := s.statements.OrderToPay.Do(ctx, orderKey{r.TenantID, orderID})
	if err != nil {
		return notFound(err, "read order %s", orderID)
	}
	occupied := now.LiveStatus != "" || now.Order.CancelingKey != nil || now.Order.CheckoutID != nil
	if closedOrder(now.Order.Status) != nil || !occupied {
		return idempotency.ErrTaken
	}
	if now.LiveStatus == string(db.PaymentStatusAuthorized) {
		return ErrOrderAuthorized
	}
	return ErrPaymentInProgress
}

// CustomerMustAct is the reason why a key waits for its customer, and for nothing else.
const CustomerMustAct = "the customer must act"

// actionPoll is the pause between two looks at an intent that waits for its customer. A
// webhook is faster; this is for webhooks that never come.
const actionPoll = 40 * time.Second

// A payment that the customer completed is settled within a minute, without its webhook.
const _ = uint(60*time.Second - actionPoll - actionPoll/10 - idempotency.FastRetry)

// requireAction records that the customer must act. The key stays unfinished,
// because this is not the final answer.
func (s *Service) requireAction(
	ctx context.Context, c *idempotency.Claim, r *Run, out stripe.Outcome,
) (idempotency.Answer, error) {
	if r.Payment.Status != db.PaymentStatusRequiresAction {
		var row db.Payment
		err := c.Phase(ctx, ActionRequired, func(q *db.Queries) (err error) {
			row, err = q.PaymentSettle(ctx, db.PaymentSettleParams{
				TenantID: c.TenantID, ID: r.Payment.ID, SeenVersion: r.Payment.Version,
				Status:     db.PaymentStatusRequiresAction,
				NextAction: s.sealAction(c.TenantID, r.Payment.ID, out.Intent.NextAction),
			})
			if err != nil {
				return fmt.Errorf("settle payment %s: %w", r.Payment.ID, err)
			}
			if err := calls.RecordEnd(ctx, q, c.TenantID, r.confirmCall(), out); err != nil {
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
	return pending, c.YieldFor(ctx, idempotency.Jittered(actionPoll), errors.New(CustomerMustAct))
}

// awaitCustomer checks whether the customer has acted. The customer holds the intent's client secret, and could
// pay from an open tab for as long as the intent can be confirmed: after a failed authentication with another
// card. So the payment ends only with its intent canceled, and the next card is a new intent.
func (s *Service) awaitCustomer(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	intent, err := s.gateway.GetIntent(ctx, c.TenantID, *r.Payment.IntentID)
	if err != nil {
		return s.Wait(ctx, c, r, err)
	}
	switch intent.Status {
	case stripe.IntentRequiresPaymentMethod:
		return s.abandon(ctx, c, r, r.notAuthenticated(intent))
	case stripe.IntentRequiresAction:
		if r.inStatus > s.o.ActionTimeout {
			return s.abandon(ctx, c, r, r.canceled(intent))
		}
	case stripe.IntentCanceled:
		if intent.LastFailure != nil { // canceled for that, by a run that was interrupted
			return r.ending.Finish(ctx, c, r, r.notAuthenticated(intent))
		}
		return r.ending.Finish(ctx, c, r, r.canceled(intent))
	}
	return s.SettleOrWait(ctx, c, r, intent, "the intent is "+string(intent.Status))
}
