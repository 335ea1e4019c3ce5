package payments

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

// PayRequest is what POST /v1/payments asks for, decoded and validated.
type PayRequest struct {
	OrderID       string `json:"order_id"`
	PaymentMethod string `json:"payment_method"`
}

// Recovery points of create_payment, in order.
const (
	paymentRecorded = "payment_recorded" // the payment exists; its intent may
	intentRecorded  = "intent_recorded"  // the intent exists; it may be confirmed
	actionRequired  = "action_required"  // the customer must do something
)

// paying is what a run of create_payment works on: the rows as they were read
// or written last.
type paying struct {
	order   db.Order
	payment db.Payment
	// announced: the call that comes next was written down in the phase before,
	// in this very run, so it has never been sent.
	announced bool
	// checkout is the checkout that the payment is a step of, or nil. The end of a
	// step is not the answer to the key: the checkout goes on from there.
	checkout *checkingOut
}

// runPayment takes a payment from its last recovery point to its answer.
func (s *Service) runPayment(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	for {
		w, err := s.paying(ctx, c)
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := s.pay(ctx, c, w)
		switch {
		case err == nil, errors.Is(err, idempotency.ErrLeaseLost):
			return answer, err
		case !errors.Is(err, errMoved):
			// The payment is recorded and will be finished, so the answer is 202,
			// even if the claim cannot be given back.
			c.Log().Error("payment interrupted", "error", err.Error())
			return s.waitFor(ctx, c, w, err)
		}
		c.Carry = nil // Another operation changed the payment or its order. Read them again.
	}
}

// pay is the payment's life on one screen. A step that returns no answer has
// moved the recovery point; one that returns an answer is done for now.
func (s *Service) pay(ctx context.Context, c *idempotency.Claim, w *paying) (answer idempotency.Answer, err error) {
	if w.settled() {
		return s.finishSettled(ctx, c, w)
	}
	for answer.Status == 0 && err == nil {
		switch c.RecoveryPoint() {
		case paymentRecorded:
			answer, err = s.createIntent(ctx, c, w)
		case intentRecorded:
			answer, err = s.confirm(ctx, c, w)
		case actionRequired:
			answer, err = s.awaitCustomer(ctx, c, w)
		case idempotency.Finished:
			return c.Answer(), nil
		default:
			if w.checkout != nil {
				return answer, nil // The payment has ended, the checkout has not.
			}
			panic(fmt.Sprintf("bug: a payment cannot resume from %q", c.RecoveryPoint()))
		}
	}
	return answer, err
}

func (s *Service) paying(ctx context.Context, c *idempotency.Claim) (*paying, error) {
	if w, ok := c.Carry.(*paying); ok {
		return w, nil
	}
	return s.readPaying(ctx, c.TenantID, c.ResourceID)
}

func (s *Service) readPaying(ctx context.Context, tenantID, id string) (*paying, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", id, err)
	}
	o, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: tenantID, ID: p.OrderID})
	if err != nil {
		return nil, fmt.Errorf("read order %s: %w", p.OrderID, err)
	}
	return &paying{order: o, payment: p}, nil
}

// createIntent makes the order's PaymentIntent. Until it is confirmed no money
// can move, so everything here may be given up and started over.
func (s *Service) createIntent(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent := NewIntent{TenantID: c.TenantID, OrderID: w.order.ID, AmountMinor: w.payment.AmountMinor, Currency: w.payment.Currency}
	again := !w.announced
	out, sent, err := s.call(ctx, c, w.createCall(), &w.announced, func(ctx context.Context, call Call) Outcome {
		if !again {
			return s.gateway.CreateIntent(ctx, call, intent)
		}
		return hedged(ctx, func(ctx context.Context) (Outcome, bool) { // The same key every time, so Stripe makes one intent.
			out := s.gateway.CreateIntent(ctx, call, intent)
			return out, out.Verdict != Unknown
		})
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Verdict {
	case Done:
		return idempotency.Answer{}, s.recordIntent(ctx, c, w, out)
	case Refused, Conflict: // No money was at stake, so any refusal is final.
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusFailed, failure: out.Failure, closesIntent: true, call: w.createCall(), out: out})
	case Unknown, NotExecuted:
		if sent.forgotten || out.Frozen && sent.attempts > 1 {
			return idempotency.Answer{}, s.nextIntent(ctx, c, w)
		}
		return s.wait(ctx, c, w, out)
	}
	panic("bug: " + out.Verdict.String())
}

// recordIntent is T1b: it stores the intent's id and announces its confirm.
func (s *Service) recordIntent(ctx context.Context, c *idempotency.Claim, w *paying, out Outcome) error {
	create, confirm := w.createCall(), w.confirmCallOn(out.Intent.ID)
	err := c.Statement(ctx, intentRecorded, func(q *db.Queries) (int64, error) {
		return q.PaymentIntentRecord(ctx, db.PaymentIntentRecordParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: intentRecorded, PaymentID: w.payment.ID,
			IntentID: &out.Intent.ID, CreateKey: create.key, StripeRequestID: out.RequestID, ConfirmKey: confirm.key, ParamsSha256: confirm.params,
		})
	})
	if err != nil {
		return fmt.Errorf("record the intent of payment %s: %w", w.payment.ID, err)
	}
	w.payment.IntentID, w.announced = &out.Intent.ID, true
	return nil
}

// nextIntent gives up an intent whose creation will never be answered, and moves on
// to the next number. If the lost one exists, it is unconfirmed and will be swept.
func (s *Service) nextIntent(ctx context.Context, c *idempotency.Claim, w *paying) error {
	err := c.Phase(ctx, paymentRecorded, func(q *db.Queries) error {
		_, err := q.PaymentNextIntent(ctx, db.PaymentNextIntentParams{TenantID: c.TenantID, ID: w.payment.ID, IntentNumber: w.payment.IntentNumber})
		return err
	})
	if err == nil {
		w.payment.IntentNumber++
	}
	return err
}

// confirm moves the money. Unless it was announced in this very run, it may have
// been sent before, so then it reads the intent first.
func (s *Service) confirm(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	if !w.announced {
		intent, err := s.look(ctx, *w.payment.IntentID)
		if err != nil {
			return s.waitFor(ctx, c, w, err)
		}
		if answer, settled, err := s.settle(ctx, c, w, looked(intent)); settled || err != nil {
			return answer, err
		}
		// The intent shows no effect of an earlier confirm.
		last, err := s.lastConfirm(ctx, w)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if givenUp(last) {
			return s.abandon(ctx, c, w, failureOf(last))
		}
	}
	out, sent, err := s.call(ctx, c, w.confirmCall(), &w.announced, func(ctx context.Context, call Call) Outcome {
		return s.gateway.ConfirmIntent(ctx, call, *w.payment.IntentID, w.payment.PaymentMethod) // The money moves here. No transaction is open.
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Verdict {
	case Done:
		if !out.Replayed {
			if answer, settled, err := s.settle(ctx, c, w, out); settled || err != nil {
				return answer, err
			}
		}
		return s.awaitCustomer(ctx, c, w) // A replay shows the intent as it was then. It may have changed since.
	case Refused:
		return s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: out.Failure, declined: out.Declined, closesIntent: out.noSuchIntent(), call: w.confirmCall(), out: out,
		})
	case Conflict:
		return s.lookAgain(ctx, c, w)
	case Unknown, NotExecuted:
		if out.Frozen && sent.attempts > 1 {
			return s.lookAgain(ctx, c, w) // Another attempt would get the same stored error.
		}
		return s.wait(ctx, c, w, out)
	}
	panic("bug: " + out.Verdict.String())
}

// lookAgain reads the intent after a response that contradicts what we knew of it,
// and settles the payment or leaves it to the completer.
func (s *Service) lookAgain(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, err := s.look(ctx, *w.payment.IntentID)
	if err != nil {
		return s.waitFor(ctx, c, w, err)
	}
	answer, settled, err := s.settle(ctx, c, w, looked(intent))
	if settled || err != nil {
		return answer, err
	}
	last, err := s.lastConfirm(ctx, w)
	if err != nil {
		return idempotency.Answer{}, err
	}
	if last.Outcome == db.StripeOutcomeRefused || givenUp(last) {
		return s.abandon(ctx, c, w, failureOf(last))
	}
	return s.waitFor(ctx, c, w, fmt.Errorf("the intent is %s", intent.Status))
}

// lastConfirm is the record of the payment's confirm.
func (s *Service) lastConfirm(ctx context.Context, w *paying) (db.StripeCallGetRow, error) {
	last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: w.payment.TenantID, StripeKey: w.confirmCall().key})
	if err != nil {
		return last, fmt.Errorf("read the confirm of payment %s: %w", w.payment.ID, err)
	}
	return last, nil
}
