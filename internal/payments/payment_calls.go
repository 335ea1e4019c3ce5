package payments

import (
	"context"
	"errors"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
)

// firstCall is the call that a new payment makes: the creation of the order's intent,
// or, where an earlier card was declined, another confirm of that intent.
func (r *Run) firstCall() (point string, call calls.Call) {
	if r.Payment.IntentID == nil {
		return PaymentRecorded, r.createCall()
	}
	return IntentRecorded, r.confirmCall()
}

// createCall makes the order's n-th PaymentIntent. No caller asked for it, so the
// key is made from our own ids.
func (r *Run) createCall() calls.Call {
	p := r.Payment
	key := p.TenantID + ":" + p.OrderID + ":intent:" + strconv.Itoa(int(p.IntentNumber))
	return calls.New(stripe.OpCreateIntent, p.OrderID, key, strconv.FormatInt(p.AmountMinor, 10), p.Currency)
}

// confirmCall moves the money, so it carries the caller's key, scoped by tenant
// and operation: two tenants can never meet, and an operator who knows the key finds
// the payment in Stripe's dashboard.
func (r *Run) confirmCall() calls.Call { return r.confirmCallOn(*r.Payment.IntentID) }

func (r *Run) confirmCallOn(intentID string) calls.Call {
	p := r.Payment
	return calls.New(stripe.OpConfirm, p.ID, p.TenantID+":"+p.IdempotencyKey+":confirm", intentID, p.PaymentMethod)
}

// RecordFirstCall records the call that creates the payment's intent, in the phase that
// records the payment.
func (r *Run) RecordFirstCall(ctx context.Context, q *db.Queries) error {
	return r.createCall().Insert(ctx, q, r.Payment.TenantID)
}

// create makes the intent. If the call is too old to be sent again, what it has made is
// searched for instead: ErrMoved if that was found and recorded. The attempts are past
// the cut-off only once it is certain that nothing was made.
func (s *Service) create(ctx context.Context, c *idempotency.Claim, r *Run, send calls.Send) (stripe.Outcome, calls.Attempts, error) {
	out, attempts, err := s.calls.Make(ctx, c, r.createCall(), &r.recorded, send)
	if err != nil || !attempts.PastCutoff {
		return out, attempts, err
	}
	err = s.Repairs().recoverIntent(ctx, c, r.createCall())
	if errors.Is(err, ErrMoved) || errors.Is(err, idempotency.ErrLeaseLost) {
		return out, attempts, err
	}
	if err != nil { // It cannot be told yet, so nothing may be abandoned.
		out.Err, attempts.PastCutoff = err, false
	}
	return out, attempts, nil
}

// failureOf is what a caller is told about an abandoned payment.
func failureOf(last db.StripeCallGetRow) stripe.Failure {
	f := stripe.Failure{Code: "provider_error", Message: "The payment provider could not process the payment. No money was taken."}
	if last.Outcome == db.StripeOutcomeRefused && last.ErrorCode != nil {
		f.Code = *last.ErrorCode
	}
	return f
}
