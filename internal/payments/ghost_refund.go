package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

// RefundGhost gives back money that Stripe has and that no payment of ours is
// for: an order paid a second time, an order that is not here any more. There is
// no row that a refund could belong to, so the key of ours under which it is made
// is its row: what it gives back, how far it has come and what was sent.
//
// It always gives back all that is left. So whatever else may happen at the same
// time, Stripe's own arithmetic refuses to give it back twice.
const RefundGhost = "refund_ghost"

// ghostRefundBegun is the recovery point of the refund; Stripe may have made it.
const ghostRefundBegun = "ghost_refund_begun"

// ghostRefundsMax is how often the money of one ghost is given back in vain.
const ghostRefundsMax = 8

// ghostRefund is the request.
type ghostRefund struct {
	OrderID     string `json:"order_id"`
	IntentID    string `json:"intent_id"`
	AmountMinor int64  `json:"amount"`
	Currency    string `json:"currency"`
}

// NotRefundableError says why the money of an intent is not given back this way.
type NotRefundableError struct{ Why string }

func (e *NotRefundableError) Error() string { return e.Why }

// ghostLeft is how much of an intent a person may have given back although no
// payment here has it, or a *NotRefundableError: what can be adopted is adopted
// first, and what a payment has, or may yet have, is refunded through that.
func ghostLeft(i Intent, v *orderView) (int64, error) {
	left := i.ReceivedMinor - i.RefundedMinor
	if i.Status != IntentSucceeded {
		return 0, &NotRefundableError{"Stripe has taken no money for it: it is " + string(i.Status)}
	}
	if paid := v.paid(); paid != nil && paid.uses(i.ID) {
		return 0, &NotRefundableError{"it has a payment here, " + paid.ID + ": refund that"}
	}
	if left == 0 {
		return 0, &NotRefundableError{"all of it went back already"}
	}
	switch j := judgeIntent(i, v); {
	case j.ruling == orphaned:
		return 0, &NotRefundableError{"it can be adopted: do that, and refund the payment, so that the tenant hears of both"}
	case j.ruling != disagrees:
		return 0, &NotRefundableError{"somebody here works on it and will find out what it is for"}
	case j.key != "":
		return 0, &NotRefundableError{"payment " + j.finding.PaymentID + " is what it was taken for: have that tried now"}
	}
	return left, nil
}

// ghostKeys are the keys of the refunds of an intent, in their order.
func ghostKeys(intentID string) []string {
	keys := make([]string, ghostRefundsMax)
	for n := range keys {
		keys[n] = RefundGhost + " " + intentID
		if n > 0 {
			keys[n] += ":" + strconv.Itoa(n+1)
		}
	}
	return keys
}

// RefundGhostFor has the completer give the money of an intent back that no
// payment here has. It judges with the order locked, so that nobody adopts it at
// the same moment, and joins q's transaction. A *NotRefundableError: it is not to be.
func (s *Service) RefundGhostFor(ctx context.Context, q *db.Queries, view IntentView) (id string, minor int64, err error) {
	i := view.Intent
	if !view.Ours {
		return "", 0, &NotRefundableError{view.Detail}
	}
	v, err := lockedView(ctx, q, ref{i.TenantID, i.OrderID})
	if err != nil {
		return "", 0, err
	}
	left, err := ghostLeft(i, v)
	if err != nil {
		return "", 0, err
	}
	keys := ghostKeys(i.ID)
	before, err := q.GhostRefunds(ctx, db.GhostRefundsParams{TenantID: i.TenantID, Keys: keys})
	if err != nil {
		return "", 0, fmt.Errorf("read the refunds of %s: %w", i.ID, err)
	}
	for _, b := range before {
		if b.FinishedAt == nil {
			return "", 0, &NotRefundableError{"it is being given back already, as " + b.ResourceID}
		}
	}
	if len(before) == len(keys) {
		return "", 0, &NotRefundableError{fmt.Sprintf("it was tried %d times; ask Stripe why it refuses", len(keys))}
	}
	id = newID(refundID)
	err = idempotency.Enqueue(ctx, q, idempotency.Request{
		TenantID: i.TenantID, Key: keys[len(before)], Operation: RefundGhost, Body: mustMarshal(ghostRefund{i.OrderID, i.ID, left, i.Currency}),
	}, id, ghostRefundBegun)
	if err != nil {
		return "", 0, err
	}
	// Where the order is not here there was no row to lock, and the key is the lock:
	// somebody may have added it while this waited to.
	now, err := q.GhostRefunds(ctx, db.GhostRefundsParams{TenantID: i.TenantID, Keys: keys[len(before) : len(before)+1]})
	if err != nil {
		return "", 0, fmt.Errorf("read the refund of %s: %w", i.ID, err)
	}
	if len(now) != 1 || now[0].ResourceID != id {
		return "", 0, &NotRefundableError{"somebody else is giving it back at this moment"}
	}
	return id, left, nil
}

// beingGivenBack reports whether an intent's money is on its way back, or was a
// moment ago: then what was read of it may be older, and it is not to be adopted.
func beingGivenBack(ctx context.Context, q *db.Queries, i Intent) (bool, error) {
	refunds, err := q.GhostRefunds(ctx, db.GhostRefundsParams{TenantID: i.TenantID, Keys: ghostKeys(i.ID)})
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

func (w ghostRefund) call(c *idempotency.Claim) call {
	return newCall(opRefund, c.ResourceID, c.TenantID+":"+c.Key+":refund", w.IntentID, strconv.FormatInt(w.AmountMinor, 10))
}

// runGhostRefund takes the refund to its end: as for every refund, what Stripe
// lists comes before what is sent, and nothing is sent that it may have forgotten.
func (s *Service) runGhostRefund(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w := decode[ghostRefund](c.Request)
	target := w.call(c)
	if seen, found, err := s.findGhostRefund(ctx, c, w); err != nil {
		return s.ghostRefundWaits(ctx, c, w, err)
	} else if found {
		return s.settleGhostRefund(ctx, c, w, seen, "")
	}
	last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: c.TenantID, StripeKey: target.key})
	switch {
	case err != nil && !errors.Is(err, db.ErrNoRows):
		return idempotency.Answer{}, fmt.Errorf("read the refund of %s: %w", w.IntentID, err)
	case err == nil && last.AgeSeconds > refundLostAfter.Seconds():
		return s.finishGhostRefund(ctx, c, w, Outcome{Verdict: Refused, ErrorCode: "provider_error"})
	case err == nil && givenUp(last):
		return s.ghostRefundWaits(ctx, c, w, errors.New("Stripe repeats an error; only its list of refunds can tell"))
	}
	out, _, err := s.call(ctx, c, target, nil, func(ctx context.Context, call Call) Outcome {
		return s.gateway.CreateRefund(ctx, call, NewRefund{IntentID: w.IntentID, AmountMinor: w.AmountMinor, TenantID: c.TenantID, OrderID: w.OrderID, RefundID: c.ResourceID})
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Verdict {
	case Done:
		return s.settleGhostRefund(ctx, c, w, out.Refund, out.RequestID)
	case Refused, Conflict: // Perhaps our own earlier success. Only the list can tell.
		seen, found, err := s.findGhostRefund(ctx, c, w)
		switch {
		case err != nil:
			return s.ghostRefundWaits(ctx, c, w, err)
		case found:
			return s.settleGhostRefund(ctx, c, w, seen, "")
		}
		if out.Verdict == Conflict {
			out.RequestID = "" // written down already
		}
		return s.finishGhostRefund(ctx, c, w, Outcome{Verdict: Refused, HTTPStatus: out.HTTPStatus, ErrorCode: out.ErrorCode, RequestID: out.RequestID})
	case Unknown, NotExecuted:
		return s.ghostRefundWaits(ctx, c, w, out.why())
	}
	panic("bug: " + out.Verdict.String())
}

// findGhostRefund looks for the refund in Stripe's list, by ours in the metadata.
func (s *Service) findGhostRefund(ctx context.Context, c *idempotency.Claim, w ghostRefund) (StripeRefund, bool, error) {
	list, err := s.gateway.RefundsOf(ctx, w.IntentID)
	for _, r := range list {
		if r.RefundID == c.ResourceID {
			return r, true, err
		}
	}
	return StripeRefund{}, false, err
}

func (s *Service) settleGhostRefund(ctx context.Context, c *idempotency.Claim, w ghostRefund, seen StripeRefund, requestID string) (idempotency.Answer, error) {
	done := Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: requestID}
	switch seen.Status {
	case db.RefundStatusPending:
		if err := recordCall(ctx, s.pool.Queries, c.TenantID, w.call(c).key, done, false); err != nil { // it was made, whatever becomes of it
			return idempotency.Answer{}, err
		}
		return s.ghostRefundWaits(ctx, c, w, errors.New("Stripe has the refund and has not decided yet"))
	case db.RefundStatusSucceeded:
		return s.finishGhostRefund(ctx, c, w, done)
	case db.RefundStatusFailed, db.RefundStatusCanceled:
	}
	code := seen.FailureCode
	if code == "" {
		code = string(seen.Status)
	}
	return s.finishGhostRefund(ctx, c, w, Outcome{Verdict: Refused, HTTPStatus: http.StatusOK, ErrorCode: code, Refund: seen, RequestID: requestID})
}

func (s *Service) ghostRefundWaits(ctx context.Context, c *idempotency.Claim, w ghostRefund, why error) (idempotency.Answer, error) {
	return s.answers.Object(http.StatusAccepted, "", w), yield(ctx, c, nextTry(c), why)
}

// finishGhostRefund ends it. Where the money went back there is nothing left to
// disagree about; where it did not, the finding stays and a person looks again.
func (s *Service) finishGhostRefund(ctx context.Context, c *idempotency.Claim, w ghostRefund, out Outcome) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if err := recordCall(ctx, q, c.TenantID, w.call(c).key, out, false); err != nil {
			return idempotency.Answer{}, err
		}
		if out.Verdict != Done {
			return s.answers.Problem(ErrPaymentNotRefundable, c.RequestID), nil
		}
		_, err := q.FindingsResolve(ctx, db.FindingsResolveParams{TenantID: c.TenantID, ObjectID: w.IntentID, Resolution: "given back as " + out.Refund.ID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("resolve what was found of %s: %w", w.IntentID, err)
		}
		return s.answers.Object(http.StatusOK, "", w), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish the refund of %s: %w", w.IntentID, err)
	}
	c.Log().Warn("money that no payment has was refunded, or could not be", "payment_intent", w.IntentID, "verdict", out.Verdict.String(), "code", out.ErrorCode)
	return c.Answer(), nil
}
