package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

// RefundOrphanedIntent refunds money at Stripe that belongs to no payment of ours: an order paid a second
// time, or an order that is no longer here. There is no payment row for such a refund to belong to, so its
// idempotency key is its record: what it refunds, how far it got and what was sent.
//
// It always refunds all that is left. So whatever else happens at the same time,
// Stripe refuses to refund it twice, because nothing is left.
const RefundOrphanedIntent = "refund_orphan"

// orphanRefundBegun is the recovery point of the refund; Stripe may have made it.
const orphanRefundBegun = "orphan_refund_begun"

// orphanRefundsMax is how many refunds of one intent may fail.
const orphanRefundsMax = 8

// orphanRefund is the request.
type orphanRefund struct {
	OrderID     string `json:"order_id"`
	IntentID    string `json:"intent_id"`
	AmountMinor int64  `json:"amount"`
	Currency    string `json:"currency"`
}

// orphanRefundKeys are the keys of the refunds of an intent, in their order.
func orphanRefundKeys(intentID string) []string {
	keys := make([]string, orphanRefundsMax)
	for n := range keys {
		keys[n] = RefundOrphanedIntent + " " + intentID
		if n > 0 {
			keys[n] += ":" + strconv.Itoa(n+1)
		}
	}
	return keys
}

// RefundOrphan has the completer refund the money of an intent that belongs to no
// payment here. It compares with the order locked, so that the intent is not adopted at
// the same moment, and joins q's transaction. A *compare.NotRefundableError says why not.
func (s Repairs) RefundOrphan(
	ctx context.Context, q *db.Queries, view IntentView,
) (id string, minor int64, err error) {
	i := view.Intent
	if !view.Ours {
		return "", 0, &compare.NotRefundableError{Why: view.Detail}
	}
	v, err := s.lockedOrder(ctx, q, compare.OrderRef{TenantID: i.TenantID, OrderID: i.OrderID})
	if err != nil {
		return "", 0, err
	}
	left, err := compare.RefundableAmount(i, v)
	if err != nil {
		return "", 0, err
	}
	keys := orphanRefundKeys(i.ID)
	before, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: keys})
	if err != nil {
		return "", 0, fmt.Errorf("read the refunds of %s: %w", i.ID, err)
	}
	for _, b := range before {
		if b.FinishedAt == nil {
			return "", 0, &compare.NotRefundableError{Why: "it is being refunded already, as " + b.ResourceID}
		}
	}
	if len(before) == len(keys) {
		return "", 0, &compare.NotRefundableError{
			Why: fmt.Sprintf("it was tried %d times; ask Stripe why it refuses", len(keys)),
		}
	}
	id = ids.New(ids.Refund)
	err = s.keys.Enqueue(ctx, q, idempotency.Request{
		TenantID: i.TenantID, Key: keys[len(before)], Operation: RefundOrphanedIntent,
		Body: idempotency.Encode(orphanRefund{i.OrderID, i.ID, left, i.Currency}),
	}, id, orphanRefundBegun)
	if err != nil {
		return "", 0, err
	}
	// If the order is not here there was no row to lock, and the key is the lock: another
	// transaction may have inserted it while this one waited to.
	now, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{
		TenantID: i.TenantID, Keys: keys[len(before) : len(before)+1],
	})
	if err != nil {
		return "", 0, fmt.Errorf("read the refund of %s: %w", i.ID, err)
	}
	if !slices.ContainsFunc(now, func(r db.OrphanRefundsRow) bool { return r.ResourceID == id }) {
		return "", 0, &compare.NotRefundableError{Why: "it is being refunded by someone else at this moment"}
	}
	return id, left, nil
}

// orphanRefundInProgress reports whether an intent's money is being refunded, or was a moment
// ago: then what was read of the intent may be older, and it is not to be adopted.
func orphanRefundInProgress(ctx context.Context, q *db.Queries, i stripe.Intent) (bool, error) {
	refunds, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: orphanRefundKeys(i.ID)})
	if err != nil {
		return false, fmt.Errorf("read the refunds of %s: %w", i.ID, err)
	}
	for _, r := range refunds {
		if r.FinishedAt == nil || r.JustNow {
			return true, nil
		}
	}
	return false, nil
}

func (w orphanRefund) call(c *idempotency.Claim) calls.Call {
	return calls.New(stripe.OpRefund, c.ResourceID, c.TenantID+":"+c.Key+":refund", w.IntentID,
		strconv.FormatInt(w.AmountMinor, 10))
}

// runOrphanRefund takes the refund to its end. As for every refund, Stripe's list is read before
// anything is sent, and nothing is sent under a key that Stripe may have forgotten.
func (s Repairs) runOrphanRefund(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w := idempotency.Decode[orphanRefund](c.Request)
	target := w.call(c)
	if seen, found, err := s.findOrphanRefund(ctx, c, w); err != nil {
		return s.waitForOrphanRefund(ctx, c, w, err)
	} else if found {
		return s.settleOrphanRefund(ctx, c, w, seen, "")
	}
	last, err := s.calls.Last(ctx, c.TenantID, target)
	switch {
	case err != nil && !errors.Is(err, postgres.ErrNoRows):
		return idempotency.Answer{}, fmt.Errorf("read the refund of %s: %w", w.IntentID, err)
	case last.Outcome == db.StripeOutcomeDone: // It was made. Another call would make a second one.
		return s.waitForOrphanRefund(ctx, c, w, errors.New("the refund is not in Stripe's list now"))
	case last.AgeSeconds > refundLostAfter.Seconds():
		return s.finishOrphanRefund(ctx, c, w, stripe.Outcome{Effect: stripe.Refused, ErrorCode: "provider_error"})
	case calls.Exhausted(last):
		return s.waitForOrphanRefund(ctx, c, w,
			errors.New("a stored error is repeated; only Stripe's list of refunds shows the outcome"))
	}
	out, _, err := s.calls.Make(ctx, c, target, nil, func(ctx context.Context, call stripe.Call) stripe.Outcome {
		return s.gateway.CreateRefund(ctx, call, stripe.NewRefund{
			IntentID: w.IntentID, AmountMinor: w.AmountMinor, TenantID: c.TenantID, OrderID: w.OrderID,
			RefundID: c.ResourceID,
		})
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Effect {
	case stripe.Done:
		return s.settleOrphanRefund(ctx, c, w, out.Refund, out.RequestID)
	case stripe.Refused, stripe.Conflict: // Perhaps caused by our own earlier success. Only the list shows it.
		seen, found, err := s.findOrphanRefund(ctx, c, w)
		switch {
		case err != nil:
			return s.waitForOrphanRefund(ctx, c, w, err)
		case found:
			return s.settleOrphanRefund(ctx, c, w, seen, "")
		}
		if out.Effect == stripe.Conflict {
			out.RequestID = "" // recorded already
		}
		return s.finishOrphanRefund(ctx, c, w, stripe.Outcome{
			Effect: stripe.Refused, HTTPStatus: out.HTTPStatus, ErrorCode: out.ErrorCode, RequestID: out.RequestID,
		})
	case stripe.Unknown, stripe.NotExecuted:
		return s.waitForOrphanRefund(ctx, c, w, out.Why())
	}
	panic("bug: " + out.Effect.String())
}

// findOrphanRefund looks for the refund in Stripe's list, by our id in its metadata.
func (s Repairs) findOrphanRefund(
	ctx context.Context, c *idempotency.Claim, w orphanRefund,
) (stripe.Refund, bool, error) {
	list, err := s.gateway.RefundsOf(ctx, c.TenantID, w.IntentID)
	for _, r := range list {
		if r.RefundID == c.ResourceID {
			return r, true, err
		}
	}
	return stripe.Refund{}, false, err
}

func (s Repairs) settleOrphanRefund(
	ctx context.Context, c *idempotency.Claim, w orphanRefund, seen stripe.Refund, requestID string,
) (idempotency.Answer, error) {
	done := stripe.Outcome{Effect: stripe.Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: requestID}
	switch seen.Status {
	case db.RefundStatusPending:
		if err := calls.RecordEnd(ctx, s.pool.Queries, c.TenantID, w.call(c), done); err != nil {
			// it was made, however it ends
			return idempotency.Answer{}, err
		}
		return s.waitForOrphanRefund(ctx, c, w, errors.New("the refund is pending at Stripe"))
	case db.RefundStatusSucceeded:
		return s.finishOrphanRefund(ctx, c, w, done)
	case db.RefundStatusFailed, db.RefundStatusCanceled:
		code := cmp.Or(seen.FailureCode, string(seen.Status))
		return s.finishOrphanRefund(ctx, c, w, stripe.Outcome{
			Effect: stripe.Refused, HTTPStatus: http.StatusOK, ErrorCode: code, Refund: seen, RequestID: requestID,
		})
	}
	panic(fmt.Sprintf("bug: a refund with the status %q", seen.Status))
}

func (s Repairs) waitForOrphanRefund(
	ctx context.Context, c *idempotency.Claim, w orphanRefund, why error,
) (idempotency.Answer, error) {
	return s.answers.Object(http.StatusAccepted, "", w),
		c.YieldUntil(ctx, RefundPendingMax, idempotency.NextTry(c), why)
}

// finishOrphanRefund ends the refund. If it succeeded the discrepancy is resolved; if not,
// the discrepancy stays and a person looks again.
func (s Repairs) finishOrphanRefund(
	ctx context.Context, c *idempotency.Claim, w orphanRefund, out stripe.Outcome,
) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if err := calls.RecordEnd(ctx, q, c.TenantID, w.call(c), out); err != nil {
			return idempotency.Answer{}, err
		}
		if out.Effect != stripe.Done {
			return s.answers.Problem(ErrPaymentNotRefundable, c.RequestID), nil
		}
		_, err := q.DiscrepanciesResolve(ctx, db.DiscrepanciesResolveParams{
			TenantID: c.TenantID, ObjectID: w.IntentID, Resolution: "given back as " + out.Refund.ID,
		})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("resolve the discrepancies of %s: %w", w.IntentID, err)
		}
		return s.answers.Object(http.StatusOK, "", w), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish the refund of %s: %w", w.IntentID, err)
	}
	c.Log().Warn("the refund of money that belongs to no payment has ended", "payment_intent", w.IntentID, "result",
		out.Effect.String(), "code", out.ErrorCode)
	return c.Answer(), nil
}

// expediteOrphanRefunds makes the keys of such refunds due, because a webhook tells of them.
func (s webhooks) expediteOrphanRefunds(ctx context.Context, q *db.Queries, seen webhookSeen) error {
	i := seen.intent
	refunds, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: orphanRefundKeys(i.ID)})
	if err != nil {
		return fmt.Errorf("read the refunds of %s: %w", i.ID, err)
	}
	for _, r := range refunds {
		if !slices.ContainsFunc(seen.refunds, func(s stripe.Refund) bool { return s.RefundID == r.ResourceID }) {
			continue
		}
		if err := idempotency.Expedite(ctx, q, i.TenantID, r.Key); err != nil {
			return err
		}
	}
	return nil
}
