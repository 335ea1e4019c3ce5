package payments

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// cancelCall cancels the order's n-th PaymentIntent. Its first key is
// <tenant>:<order>:cancel:<n>; a later key, for when the first is given up, adds a
// count.
func cancelCall(p db.Payment, try int) call {
	key := p.TenantID + ":" + p.OrderID + ":cancel:" + strconv.Itoa(int(p.IntentNumber))
	if try > 1 {
		key += ":" + strconv.Itoa(try)
	}
	return newCall(opCancel, p.OrderID, key, *p.IntentID)
}

// nextCancel is the cancel to send: the first whose key is not given up. A cancel is
// the only call that may be sent under another key while the first is in doubt:
// canceling twice is canceling once, and no money moves. Without it, one error stored
// by Stripe would keep an intent alive that must not be confirmed, and its payment
// open until a person looks.
func (s *Service) nextCancel(ctx context.Context, p db.Payment) (call, error) {
	for try := 1; ; try++ {
		target := cancelCall(p, try)
		last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: p.TenantID, StripeKey: target.key})
		if errors.Is(err, postgres.ErrNoRows) {
			return target, nil
		}
		if err != nil {
			return target, fmt.Errorf("read the cancel of %s: %w", *p.IntentID, err)
		}
		if !givenUp(last) || try == cancelsMax {
			return target, nil
		}
	}
}

// cancelIntent cancels a payment's intent and returns its state afterwards. An intent
// without a status means that the outcome is unknown: try again later.
func (s *Service) cancelIntent(ctx context.Context, c *idempotency.Claim, p db.Payment) (Intent, Outcome, error) {
	target, err := s.nextCancel(ctx, p)
	if err != nil {
		return Intent{}, Outcome{}, err
	}
	out, _, err := s.call(ctx, c, target, nil, func(ctx context.Context, call Call) Outcome {
		return s.gateway.CancelIntent(ctx, call, *p.IntentID)
	})
	if err != nil {
		return Intent{}, out, err
	}
	if out.Verdict == Done && !out.Replayed {
		return out.Intent, out, s.answered(ctx, c, target, out)
	}
	if out.Verdict == NotExecuted {
		return Intent{}, out, nil
	}
	intent, err := s.look(ctx, *p.IntentID)
	if err != nil {
		return Intent{}, Outcome{Verdict: Unknown, Err: err}, nil //nolint:nilerr // a look that failed is an outcome: unknown
	}
	if out.Verdict == Unknown && intent.Status != IntentCanceled && intent.Status != IntentSucceeded {
		return Intent{}, out, nil // The cancel may still be under way.
	}
	return intent, out, s.answered(ctx, c, target, out)
}
