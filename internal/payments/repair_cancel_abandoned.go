package payments

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/stripe"
)

// CancelAbandonedIntent is an operation that no caller asked for: it cancels a PaymentIntent that
// no operation will confirm. Such an intent is harmless as long as no client has its
// client secret; once canceled, it is harmless in any case.
const CancelAbandonedIntent = "cancel_abandoned_intent"

// cancelAbandonedBegun is its recovery point; the intent may be canceled already.
const cancelAbandonedBegun = "cancel_abandoned_begun"

// AbandonedAfter is the age at which Stripe has forgotten the key under which an intent was
// made. Before that, repeating a lost creation still finds its intent.
const AbandonedAfter = calls.KeyLifetime

// No client waits for it, and most often it is a bank's direct debit that is waited for. So the pause grows, from a
// minute, with the age of the key.
const (
	cancelAbandonedShare    = 10
	cancelAbandonedPauseMax = time.Hour
)

// An intent that the next payment could use is canceled no sooner than one that none could.
const _ = uint(compare.UnusedAfter - AbandonedAfter)

// abandonedIntent is its request.
type abandonedIntent struct {
	OrderID  string `json:"order_id"`
	IntentID string `json:"intent_id"`
	Number   int32  `json:"intent_number"`
}

// CancelAbandoned has an abandoned intent canceled. The order is locked and the intent compared once more
// in the transaction that enqueues the cancel. Not begun: it is, or may become, a payment's, or it was begun before.
func (s Repairs) CancelAbandoned(ctx context.Context, i stripe.Intent) (begun bool, err error) {
	err = s.pool.InTx(ctx, func(q *db.Queries) error {
		begun = false
		if served, err := q.TenantServedHere(ctx, i.TenantID); !served {
			return err
		}
		o, err := s.lockedOrder(ctx, q, compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID})
		if err != nil || o.MayConfirm(i.ID) {
			return err
		}
		recorded, err := q.CancelCallsOfOrder(ctx, db.CancelCallsOfOrderParams{
			TenantID: i.TenantID, Prefix: i.TenantID + ":" + i.OrderID + ":cancel:",
		})
		if err != nil {
			return fmt.Errorf("read the cancels of order %s: %w", i.OrderID, err)
		}
		number, ok := o.CancelNumber(i.ID, cancelsOf(recorded, i.ID))
		if !ok {
			return nil
		}
		if own := o.Number(i.ID); own > 0 { // A payment that was about to begin on it makes another intent instead.
			if err := q.OrderRetireIntents(ctx, db.OrderRetireIntentsParams{
				TenantID: i.TenantID, ID: i.OrderID, IntentNumber: own,
			}); err != nil {
				return fmt.Errorf("retire the intents of order %s: %w", i.OrderID, err)
			}
		}
		// Recorded now, and not when it is sent: another intent of the order may be canceled
		// before that, and must find the number taken.
		target := cancelCall(db.Payment{
			TenantID: i.TenantID, OrderID: i.OrderID, IntentNumber: number, IntentID: &i.ID,
		}, 1)
		if !slices.ContainsFunc(recorded, func(c db.CancelCallsOfOrderRow) bool { return c.StripeKey == target.Key }) {
			if err := target.Insert(ctx, q, i.TenantID); err != nil {
				return err
			}
		}
		begun, err = s.keys.EnqueueNew(ctx, q, idempotency.Request{
			TenantID: i.TenantID, Key: CancelAbandonedIntent + " " + i.ID, Operation: CancelAbandonedIntent,
			Body: idempotency.Encode(abandonedIntent{i.OrderID, i.ID, number}),
		}, i.OrderID, cancelAbandonedBegun)
		if err != nil || begun {
			return err
		}
		// Begun before, and the intent can be canceled now: it need not wait, nor stay parked.
		return idempotency.Expedite(ctx, q, i.TenantID, CancelAbandonedIntent+" "+i.ID)
	})
	return begun, err
}

// cancelsOf reads the numbers from the keys of recorded cancels:
// <tenant>:<order>:cancel:<n>, and a count after it where the first key was exhausted.
func cancelsOf(recorded []db.CancelCallsOfOrderRow, intentID string) (cancels []compare.Cancel) {
	same := calls.New(stripe.OpCancel, "", "", intentID).Params
	for _, call := range recorded {
		_, number, _ := strings.Cut(call.StripeKey, ":cancel:")
		number, _, _ = strings.Cut(number, ":")
		if n, err := strconv.ParseInt(number, 10, 32); err == nil {
			cancels = append(cancels, compare.Cancel{
				IntentNumber: int32(n), SameIntent: bytes.Equal(call.ParamsSha256, same),
			})
		}
	}
	return cancels
}

// runCancelAbandoned cancels the intent, or finds that it has ended otherwise.
func (s Repairs) runCancelAbandoned(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w := idempotency.Decode[abandonedIntent](c.Request)
	intent, out, err := s.CancelIntent(ctx, c, db.Payment{
		TenantID: c.TenantID, OrderID: w.OrderID, IntentNumber: w.Number, IntentID: &w.IntentID,
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	if intent.Status != stripe.IntentCanceled && intent.Status != stripe.IntentSucceeded {
		// An intent that is processing may fail, and could then be paid again: only what is final needs no cancel.
		why := fmt.Errorf("cancel the intent: %w", out.Why())
		if intent.Status != "" {
			why = fmt.Errorf("the intent is %s: %w", intent.Status, why)
		}
		pause := min(max(time.Minute, c.Age/cancelAbandonedShare), cancelAbandonedPauseMax)
		return s.answers.Object(http.StatusAccepted, "", w),
			c.YieldUntil(ctx, idempotency.ParkAfter, idempotency.Jittered(pause), why)
	}
	err = c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		answer := s.answers.Object(http.StatusOK, "", w)
		if intent.Status != stripe.IntentCanceled {
			return answer, nil // If it has succeeded after all, the reconciler finds that.
		}
		return answer, intentEnded(ctx, q, compare.OrderRef{TenantID: c.TenantID, OrderID: w.OrderID}, w.IntentID)
	})
	return c.Answer(), err
}
