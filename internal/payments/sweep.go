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
	"example.com/payonce/internal/idempotency"
)

// SweepIntent is an operation that no caller asked for: it cancels a PaymentIntent that
// nobody will confirm any more. Such an intent is harmless as long as nobody has its
// client secret; once canceled, it is harmless in any case.
const SweepIntent = "sweep_intent"

// sweepBegun is the recovery point of a sweep; the intent may be canceled already.
const sweepBegun = "sweep_begun"

// sweepAfter is the age at which Stripe has forgotten the key under which an intent was
// made. Before that, repeating a lost creation still finds its intent.
const sweepAfter = stripeKeyLifetime

// sweeping is the request of a sweep.
type sweeping struct {
	OrderID  string `json:"order_id"`
	IntentID string `json:"intent_id"`
	Number   int32  `json:"intent_number"`
}

// isAbandoned reports whether nobody will ever confirm the intent: it is
// unconfirmed, older than the given time, and no payment of its order can use it.
func (v *orderView) isAbandoned(i Intent, before time.Time) bool {
	return unconfirmed(i.Status) && i.CreatedAt.Before(before) && !v.mayConfirm(i.ID)
}

// unconfirmed reports whether no money has moved and a confirm could still move it.
func unconfirmed(status IntentStatus) bool {
	return status == IntentRequiresPaymentMethod || status == IntentRequiresConfirmation || status == IntentRequiresAction
}

// mayConfirm reports whether a payment of the order uses the intent, or the next
// one would.
func (v *orderView) mayConfirm(intentID string) bool {
	if live := v.live(); live != nil && (live.IntentID == nil || live.uses(intentID)) {
		return true
	}
	if v.order == nil || v.order.Status != db.OrderStatusOpen {
		return false
	}
	if v.checkoutRuns || v.order.CancelingKey != nil || len(v.payments) == 0 {
		return true
	}
	next := v.payments[0]
	for _, p := range v.payments {
		if p.IntentNumber > next.IntentNumber {
			next = p
		}
	}
	return next.uses(intentID)
}

// cancelNumber is the number under which the intent is canceled: its own if a payment
// has it, otherwise the smallest that no other intent of the order has, in our rows or
// in an announced cancel. False: that number may still be given to the order's next
// intent.
func (v *orderView) cancelNumber(intentID string, announced []db.CancelCallsOfOrderRow) (int32, bool) {
	taken, top := map[int32]bool{}, int32(0)
	for _, p := range v.payments {
		if p.uses(intentID) {
			return p.IntentNumber, true
		}
		if p.IntentID != nil {
			taken[p.IntentNumber] = true
		}
		top = max(top, p.IntentNumber)
	}
	mine := newCall(opCancel, "", "", intentID).params
	for _, call := range announced {
		_, number, _ := strings.Cut(call.StripeKey, ":cancel:")
		number, _, _ = strings.Cut(number, ":") // the count after it does not matter
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			continue
		}
		if bytes.Equal(call.ParamsSha256, mine) {
			return int32(n), true
		}
		taken[int32(n)] = true
	}
	n := int32(1)
	for taken[n] {
		n++
	}
	return n, n <= top || v.order == nil || v.order.Status != db.OrderStatusOpen
}

// sweep has an abandoned intent canceled. The order is locked and judged once more in
// the transaction that enqueues the cancel.
func (s *Service) sweep(ctx context.Context, i Intent) (begun bool, err error) {
	err = s.pool.InTx(ctx, func(q *db.Queries) error {
		begun = false
		v, err := lockedView(ctx, q, ref{i.TenantID, i.OrderID})
		if err != nil || v.mayConfirm(i.ID) {
			return err
		}
		calls, err := q.CancelCallsOfOrder(ctx, db.CancelCallsOfOrderParams{TenantID: i.TenantID, Prefix: i.TenantID + ":" + i.OrderID + ":cancel:"})
		if err != nil {
			return fmt.Errorf("read the cancels of order %s: %w", i.OrderID, err)
		}
		number, ok := v.cancelNumber(i.ID, calls)
		if !ok {
			return nil
		}
		begun = true
		// Said now, and not when it is sent: another intent of the order may be swept
		// before that, and must find the number taken.
		target := cancelCall(db.Payment{TenantID: i.TenantID, OrderID: i.OrderID, IntentNumber: number, IntentID: &i.ID}, 1)
		if !slices.ContainsFunc(calls, func(c db.CancelCallsOfOrderRow) bool { return c.StripeKey == target.key }) {
			err = q.StripeCallInsert(ctx, db.StripeCallInsertParams{
				TenantID: i.TenantID, StripeKey: target.key, Operation: string(target.op), ResourceID: target.resourceID, ParamsSha256: target.params,
			})
			if err != nil {
				return fmt.Errorf("announce the cancel of %s: %w", i.ID, err)
			}
		}
		return idempotency.Enqueue(ctx, q, idempotency.Request{
			TenantID: i.TenantID, Key: SweepIntent + " " + i.ID, Operation: SweepIntent, Body: mustMarshal(sweeping{i.OrderID, i.ID, number}),
		}, i.OrderID, sweepBegun)
	})
	return begun, err
}

// runSweep cancels the intent, or finds that it has ended otherwise.
func (s *Service) runSweep(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w := decode[sweeping](c.Request)
	intent, out, err := s.cancelIntent(ctx, c, db.Payment{TenantID: c.TenantID, OrderID: w.OrderID, IntentNumber: w.Number, IntentID: &w.IntentID})
	if err != nil {
		return idempotency.Answer{}, err
	}
	if intent.Status == "" || unconfirmed(intent.Status) {
		answer := s.answers.Object(http.StatusAccepted, "", w)
		return answer, yield(ctx, c, jittered(time.Minute), fmt.Errorf("cancel the intent: %w", out.why()))
	}
	err = c.Finish(ctx, func(*db.Queries) (idempotency.Answer, error) {
		return s.answers.Object(http.StatusOK, "", w), nil // If it has succeeded after all, the reconciler finds that.
	})
	return c.Answer(), err
}
