package payments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// cancelKeysMax is how many keys one cancel may use up: four days without a response, or
// sixteen stored errors. Then an operator must look.
const cancelKeysMax = 8

var errRefusedBefore = errors.New("a cancel was refused before, and the state of the intent still allows none")

// cancelCall cancels the order's n-th PaymentIntent. Its first key is <tenant>:<order>:cancel:<n>;
// a later key, for when the first is exhausted, adds a count.
func cancelCall(p db.Payment, try int) calls.Call {
	key := p.TenantID + ":" + p.OrderID + ":cancel:" + strconv.Itoa(int(p.IntentNumber))
	if try > 1 {
		key += ":" + strconv.Itoa(try)
	}
	return calls.New(stripe.OpCancel, p.OrderID, key, *p.IntentID)
}

// nextCancel is the cancel to send: the first whose key is not used up. A cancel is the only call
// that may be sent under another key while the first is in doubt: canceling twice is canceling
// once, and no money moves. Without it, one error stored by Stripe would keep an intent alive that
// must not be confirmed, and its payment open until an operator looks.
//
// refusedBefore: the key before it is used up because Stripe refused the cancel, as it does while the
// intent is processing, and repeats that for a day. The next one is worth sending only once the
// intent is in another state.
//
// The key of another intent is skipped: in a life that a restore has lost, the number may have been another intent's.
func (s *Service) nextCancel(ctx context.Context, p db.Payment) (target calls.Call, refusedBefore bool, err error) {
	for try, own := 1, 0; ; try++ {
		target := cancelCall(p, try)
		last, err := s.calls.Last(ctx, p.TenantID, target)
		if errors.Is(err, postgres.ErrNoRows) {
			return target, refusedBefore, nil
		}
		if err != nil {
			return target, false, fmt.Errorf("read the cancel of %s: %w", *p.IntentID, err)
		}
		if !bytes.Equal(last.ParamsSha256, target.Params) || postgres.Deref(last.ErrorCode) == stripe.ErrorIdempotency {
			continue
		}
		own++
		refused := last.Outcome == db.StripeOutcomeRefused
		if own == cancelKeysMax || !refused && !calls.Exhausted(last) {
			return target, refused || refusedBefore, nil
		}
		refusedBefore = refused
	}
}

// CancelIntent cancels a payment's intent and returns its state afterwards. An intent
// without a status means that the outcome is unknown: try again later.
func (s *Service) CancelIntent(
	ctx context.Context, c *idempotency.Claim, p db.Payment,
) (stripe.Intent, stripe.Outcome, error) {
	target, refusedBefore, err := s.nextCancel(ctx, p)
	if err != nil {
		return stripe.Intent{}, stripe.Outcome{}, err
	}
	if refusedBefore {
		intent, err := s.gateway.GetIntent(ctx, c.TenantID, *p.IntentID)
		if err != nil {
			return stripe.Intent{}, stripe.Outcome{
				Effect: stripe.Unknown, Err: err,
			}, nil //nolint:nilerr // a look that failed is an outcome: unknown
		}
		switch intent.Status {
		case stripe.IntentProcessing, stripe.IntentSucceeded, stripe.IntentCanceled:
			return intent, stripe.Outcome{Effect: stripe.Conflict, Intent: intent, Err: errRefusedBefore}, nil
		}
	}
	out, _, err := s.calls.Make(ctx, c, target, nil, func(ctx context.Context, call stripe.Call) stripe.Outcome {
		return s.gateway.CancelIntent(ctx, call, *p.IntentID)
	})
	if err != nil {
		return stripe.Intent{}, out, err
	}
	if out.Failure.Code == stripe.CodeKeyReused { // Stripe has the key with another intent. The next key is tried.
		if err := s.calls.RecordAttempt(ctx, c, target, out); err != nil {
			return stripe.Intent{}, out, err
		}
		return s.CancelIntent(ctx, c, p)
	}
	if out.Effect == stripe.Done && !out.Replayed {
		return out.Intent, out, s.calls.RecordAttempt(ctx, c, target, out)
	}
	if out.Effect == stripe.NotExecuted {
		return stripe.Intent{}, out, nil
	}
	intent, err := s.gateway.GetIntent(ctx, c.TenantID, *p.IntentID)
	if err != nil {
		return stripe.Intent{}, stripe.Outcome{
			Effect: stripe.Unknown, Err: err,
		}, nil //nolint:nilerr // a look that failed is an outcome: unknown
	}
	final := intent.Status == stripe.IntentCanceled || intent.Status == stripe.IntentSucceeded
	if out.Effect == stripe.Unknown && !final {
		return stripe.Intent{}, out, nil // The cancel may still be under way.
	}
	if out.Effect == stripe.Done || out.Effect == stripe.Refused { // Make has recorded any other.
		return intent, out, s.calls.RecordAttempt(ctx, c, target, out)
	}
	return intent, out, nil
}

// closeEarlier cancels the intents that an order had before the one of the number and that can still be confirmed. stays
// is one that is not canceled, as Stripe shows it, without a status if that is unknown, and why; nil: there is none. If it
// has succeeded, all others are canceled.
func (s *Service) closeEarlier(
	ctx context.Context, c *idempotency.Claim, order compare.OrderRef, number int32,
) (stays *stripe.Intent, why, err error) {
	open, err := s.pool.PaymentIntentsOpenBefore(ctx, db.PaymentIntentsOpenBeforeParams{
		TenantID: order.TenantID, OrderID: order.OrderID, IntentNumber: number,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the earlier intents of order %s: %w", order.OrderID, err)
	}
	for _, earlier := range open {
		intent, out, err := s.CancelIntent(ctx, c, db.Payment{
			TenantID: order.TenantID, OrderID: order.OrderID, IntentNumber: earlier.IntentNumber, IntentID: &earlier.IntentID,
		})
		switch {
		case err != nil:
			return nil, nil, err
		case errors.Is(out.Err, stripe.ErrNoSuchObject): // Nobody can pay it.
		case intent.Status == stripe.IntentSucceeded && intent.RefundedMinor == intent.ReceivedMinor: // It pays nothing.
			if err := s.intentSpent(ctx, order, earlier.IntentID); err != nil {
				return nil, nil, err
			}
			continue
		case intent.Status == stripe.IntentSucceeded:
			stays, why = &intent, out.Why()
			continue
		case intent.Status != stripe.IntentCanceled:
			return &intent, fmt.Errorf("cancel the earlier intent %s: %w", earlier.IntentID, out.Why()), nil
		}
		if err := intentEnded(ctx, s.pool.Queries, order, earlier.IntentID); err != nil {
			return nil, nil, err
		}
	}
	return stays, why, nil
}
