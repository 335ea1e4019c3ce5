package tips

import (
	"context"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/docs/skeleton/tips/tipsql"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
)

// errTooOld parks the tip, for a person to look for its intent at Stripe.
var errTooOld = errors.New("the creation of the intent is too old to be sent again, and its outcome is not known")

// run takes a tip from its last recovery point to its answer: after begin in the request,
// after a crash in the completer.
func (s service) run(ctx context.Context, c *idempotency.Claim) (answer idempotency.Answer, err error) {
	w, ok := c.Carry.(*work)
	if !ok {
		row, err := tipsql.New(s.Pool.DB()).TipGet(ctx, tipsql.TipGetParams{TenantID: c.TenantID, ID: c.ResourceID})
		if err != nil {
			return answer, fmt.Errorf("read tip %s: %w", c.ResourceID, err)
		}
		w = &work{tip: row.Tip}
	}
	for answer.Status == 0 && err == nil {
		switch c.RecoveryPoint() {
		case recorded:
			answer, err = s.createIntent(ctx, c, w)
		case intentRecorded:
			answer, err = s.charge(ctx, c, w)
		default:
			panic("bug: a tip cannot resume from " + c.RecoveryPoint())
		}
	}
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		return s.wait(ctx, c, w, err) // It may have been charged, so this is no failure.
	}
	return answer, err
}

// createIntent makes a PaymentIntent, unconfirmed: no money can move before the confirm.
func (s service) createIntent(ctx context.Context, c *idempotency.Claim, w *work) (idempotency.Answer, error) {
	send := func(ctx context.Context, call stripe.Call) stripe.Outcome {
		return s.Gateway.CreateIntent(ctx, call, stripe.NewIntent{
			TenantID: c.TenantID, OrderID: w.tip.OrderID, Operation: Name,
			AmountMinor: w.tip.AmountMinor, Currency: w.tip.Currency,
		})
	}
	out, attempts, err := s.Calls.Make(ctx, c, w.create(), &w.recorded, send)
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Done:
		return idempotency.Answer{}, s.recordIntent(ctx, c, w, out)
	case out.Effect == stripe.Refused: // It was never confirmed, so no money has moved.
		return s.end(ctx, c, w, failed(out), ended{w.create(), out})
	case attempts.PastCutoff: // In the time that a restored database has lost, it may have been confirmed.
		return s.wait(ctx, c, w, errTooOld)
	}
	return s.wait(ctx, c, w, out.Why())
}

// recordIntent stores the intent and records its confirm, in one transaction.
func (s service) recordIntent(ctx context.Context, c *idempotency.Claim, w *work, out stripe.Outcome) error {
	return c.Phase(ctx, intentRecorded, func(q *db.Queries) error {
		tip, err := tipsql.New(q.DB()).TipIntentRecord(ctx, tipsql.TipIntentRecordParams{
			TenantID: c.TenantID, ID: w.tip.ID, IntentID: out.Intent.ID,
		})
		if err != nil {
			return err
		}
		w.tip, w.recorded = tip, true
		if err := calls.RecordEnd(ctx, q, c.TenantID, w.create(), out); err != nil {
			return err
		}
		return w.confirm().Insert(ctx, q, c.TenantID)
	})
}

// charge confirms the intent. If that may have been sent before, the intent is read first.
func (s service) charge(ctx context.Context, c *idempotency.Claim, w *work) (idempotency.Answer, error) {
	if !w.recorded {
		intent, err := s.Gateway.GetIntent(ctx, w.tip.TenantID, *w.tip.IntentID)
		if err != nil {
			return s.wait(ctx, c, w, err)
		}
		if done, answer, err := s.settle(ctx, c, w, stripe.FromRead(intent)); done {
			return answer, err
		}
	}
	send := func(ctx context.Context, call stripe.Call) stripe.Outcome {
		// The money moves here. No transaction is open.
		return s.Gateway.ConfirmIntent(ctx, call, *w.tip.IntentID, w.tip.PaymentMethod)
	}
	out, attempts, err := s.Calls.Make(ctx, c, w.confirm(), &w.recorded, send)
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Refused:
		return s.end(ctx, c, w, failed(out), ended{w.confirm(), out})
	case attempts.PastCutoff: // It may have been executed and may not be sent again: only a cancel can tell.
		return s.giveUp(ctx, c, w, "provider_error")
	case out.Effect == stripe.Done && !out.Replayed: // A replay shows the intent as it was then.
		if done, answer, err := s.settle(ctx, c, w, out); done {
			return answer, err
		}
	}
	return s.wait(ctx, c, w, out.Why())
}

// settle ends the tip as its intent shows. Not done: the intent has not been decided.
func (s service) settle(
	ctx context.Context, c *idempotency.Claim, w *work, out stripe.Outcome,
) (done bool, answer idempotency.Answer, err error) {
	switch out.Intent.Status {
	case stripe.IntentSucceeded:
		answer, err = s.end(ctx, c, w, "", ended{w.confirm(), out})
	case stripe.IntentCanceled:
		answer, err = s.end(ctx, c, w, "canceled", ended{w.confirm(), out})
	case stripe.IntentRequiresAction: // The customer is not there. What waits could still be paid, so it is canceled.
		answer, err = s.giveUp(ctx, c, w, "authentication_required")
	default:
		return false, answer, nil
	}
	return true, answer, err
}

// giveUp cancels the intent. Only then is it certain that the money will not move.
func (s service) giveUp(ctx context.Context, c *idempotency.Claim, w *work, code string) (idempotency.Answer, error) {
	send := func(ctx context.Context, call stripe.Call) stripe.Outcome {
		return s.Gateway.CancelIntent(ctx, call, *w.tip.IntentID)
	}
	out, _, err := s.Calls.Make(ctx, c, w.cancel(), nil, send)
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Done && out.Intent.Status == stripe.IntentCanceled:
		return s.end(ctx, c, w, code, ended{w.confirm(), stripe.Outcome{Effect: stripe.Refused}}, ended{w.cancel(), out})
	}
	return s.wait(ctx, c, w, out.Why()) // It may have been paid meanwhile. The next run reads it.
}

// wait gives the claim back until its next try. Unknown is not failed: the answer is 202.
func (s service) wait(ctx context.Context, c *idempotency.Claim, w *work, why error) (idempotency.Answer, error) {
	return s.answer(w.tip), c.YieldOrPark(ctx, why)
}
