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

// RefundGhost refunds money at Stripe that belongs to no payment of ours: an order paid
// a second time, or an order that is no longer here. There is no payment row for such a
// refund to belong to, so its idempotency key is its record: what it refunds, how far
// it got and what was sent.
//
// It always refunds all that is left. So whatever else happens at the same time,
// Stripe refuses to refund it twice, because nothing is left.
const RefundGhost = "refund_orphan"

// ghostRefundBegun is the recovery point of the refund; Stripe may have made it.
const ghostRefundBegun = "ghost_refund_begun"

// ghostRefundsMax is how many refunds of one intent may fail.
const ghostRefundsMax = 8

// ghostRefund is the request.
type ghostRefund struct {
	OrderID     string `json:"order_id"`
	IntentID    string `json:"intent_id"`
	AmountMinor int64  `json:"amount"`
	Currency    string `json:"currency"`
}

// NotRefundableError says why the money of an intent cannot be refunded this way.
type NotRefundableError struct{ Why string }

func (e *NotRefundableError) Error() string { return e.Why }

// ghostLeft is how much of an intent an operator may refund although it belongs to no
// payment here, or a *NotRefundableError: what can be adopted is adopted first, and
// what belongs to a payment, or may yet, is refunded through that.
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
		return 0, &NotRefundableError{"it can be adopted: do that, and refund the payment, so that the tenant gets the events of both"}
	case j.ruling != disagrees:
		return 0, &NotRefundableError{"an operation here works on it and will find out what it is for"}
	case j.key != "":
		return 0, &NotRefundableError{"payment " + j.finding.PaymentID + " is what it was charged for: have that tried now"}
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

// RefundGhostFor has the completer refund the money of an intent that belongs to no
// payment here. It judges with the order locked, so that the intent is not adopted at
// the same moment, and joins q's transaction. A *NotRefundableError says why not.
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
	before, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: keys})
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
	// If the order is not here there was no row to lock, and the key is the lock: another
	// transaction may have inserted it while this one waited to.
	now, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: keys[len(before) : len(before)+1]})
	if err != nil {
		return "", 0, fmt.Errorf("read the refund of %s: %w", i.ID, err)
	}
	if len(now) != 1 || now[0].ResourceID != id {
		return "", 0, &NotRefundableError{"it is being refunded by someone else at this moment"}
	}
	return id, left, nil
}

// beingGivenBack reports whether an intent's money is being refunded, or was a moment
// ago: then what was read of the intent may be older, and it is not to be adopted.
func beingGivenBack(ctx context.Context, q *db.Queries, i Intent) (bool, error) {
	refunds, err := q.OrphanRefunds(ctx, db.OrphanRefundsParams{TenantID: i.TenantID, Keys: ghostKeys(i.ID)})
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

// runGhostRefund takes the refund to its end. As for every refund, Stripe's list is read
// before anything is sent, and nothing is sent under a key that Stripe may have
// forgotten.
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
		return s.ghostRefundWaits(ctx, c, w, errors.New("Stripe repeats a stored error; only its list of refunds can tell"))
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
	case Refused, Conflict: // Perhaps caused by our own earlier success. Only the list can tell.
		seen, found, err := s.findGhostRefund(ctx, c, w)
		switch {
		case err != nil:
			return s.ghostRefundWaits(ctx, c, w, err)
		case found:
			return s.settleGhostRefund(ctx, c, w, seen, "")
		}
		if out.Verdict == Conflict {
			out.RequestID = "" // recorded already
		}
		return s.finishGhostRefund(ctx, c, w, Outcome{Verdict: Refused, HTTPStatus: out.HTTPStatus, ErrorCode: out.ErrorCode, RequestID: out.RequestID})
	case Unknown, NotExecuted:
		return s.ghostRefundWaits(ctx, c, w, out.why())
	}
	panic("bug: " + out.Verdict.String())
}

// findGhostRefund looks for the refund in Stripe's list, by our id in its metadata.
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
		return s.ghostRefundWaits(ctx, c, w, errors.New("the refund is pending at Stripe"))
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

// finishGhostRefund ends the refund. If it succeeded the finding is resolved; if not,
// the finding stays and a person looks again.
func (s *Service) finishGhostRefund(ctx context.Context, c *idempotency.Claim, w ghostRefund, out Outcome) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if err := recordCall(ctx, q, c.TenantID, w.call(c).key, out, false); err != nil {
			return idempotency.Answer{}, err
		}
		if out.Verdict != Done {
			return s.answers.Problem(ErrPaymentNotRefundable, c.RequestID), nil
		}
		_, err := q.DiscrepanciesResolve(ctx, db.DiscrepanciesResolveParams{TenantID: c.TenantID, ObjectID: w.IntentID, Resolution: "given back as " + out.Refund.ID})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("resolve the findings of %s: %w", w.IntentID, err)
		}
		return s.answers.Object(http.StatusOK, "", w), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish the refund of %s: %w", w.IntentID, err)
	}
	c.Log().Warn("the refund of money that belongs to no payment has ended", "payment_intent", w.IntentID, "verdict", out.Verdict.String(), "code", out.ErrorCode)
	return c.Answer(), nil
}
