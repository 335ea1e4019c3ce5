package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
)

// The definite refusals of a refund.
var (
	ErrPaymentNotRefundable = errors.New("there is nothing to refund")
	ErrRefundExceedsPayment = errors.New("more than what is left of the payment")
)

// RefundRequest is what POST /v1/payments/{id}/refunds asks for, decoded and
// validated.
type RefundRequest struct {
	PaymentID string  `json:"payment_id"`
	Amount    *int64  `json:"amount"` // nil: what is left
	Reason    *string `json:"reason"`
}

// Refund is money on its way back, as the API shows it.
type Refund struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Status    db.RefundStatus `json:"status"`
	PaymentID string          `json:"payment_id"`
	Amount    int64           `json:"amount"`
	Currency  string          `json:"currency"`
	Reason    *string         `json:"reason"`
	Stripe    RefundAtStripe  `json:"stripe"`
	CreatedAt instant         `json:"created_at"`
}

// RefundAtStripe names Stripe's object.
type RefundAtStripe struct {
	Refund *string `json:"refund"`
}

func refundOf(row db.Refund) Refund {
	return Refund{
		ID: row.ID, Object: "refund", Status: row.Status, PaymentID: row.PaymentID, Amount: row.AmountMinor, Currency: row.Currency,
		Reason: row.Reason, Stripe: RefundAtStripe{Refund: row.StripeRefundID}, CreatedAt: instant(row.CreatedAt),
	}
}

func refundEvent(kind string, row db.Refund) outbox.Event {
	return outbox.Event{TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: kind, Data: mustMarshal(refundOf(row))}
}

// refundRecorded is the recovery point of a refund that Stripe may have made.
const refundRecorded = "refund_recorded"

const (
	// A refund has no object that we could make before the money moves, so one
	// that nobody answered for can only be looked for. Past this Stripe has
	// forgotten the key and given up repairing, and what is not listed is not.
	refundLostAfter = stripeKeyLifetime + 12*time.Hour
	// A pending refund is settled by webhook; the poll is for the one that never
	// comes. It is made as seldom as the refund is old: a balance at Stripe that is
	// too low keeps every refund pending for days, and thousands of them, asked for
	// twice a minute, would take the turns that payments need.
	refundPoll    = 30 * time.Second
	refundPollMax = 15 * time.Minute

	turnWait  = limitWait              // Longest wait for the payment's other refunds; after it the completer waits.
	turnPause = 200 * time.Millisecond // Longest pause between two looks whether they are done.
)

// errNotOurTurn says that another refund of the payment is with Stripe just now.
var errNotOurTurn = fmt.Errorf("another refund of the payment is under way: %w", ErrThrottled)

// refunding is what a run works on.
type refunding struct {
	refund    db.Refund
	intentID  string
	announced bool
	queued    bool   // new, so there is nothing to look for, but another was under way when it was recorded
	requestID string // Stripe's, of the answer that ends the call and is not written down yet
}

// beginRefund claims the key, takes the amount from what is left of the payment
// and records the refund, its event and the call it will make.
func (s *Service) beginRefund(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	req := decode[RefundRequest](r.Body)
	if _, err := s.GetPayment(ctx, r.TenantID, req.PaymentID); err != nil { // The claim would find out too, but it would have written by then.
		return nil, idempotency.Answer{}, err
	}
	w := &refunding{}
	id := newID(refundID)
	claim, err := s.keys.Begin(ctx, r, id, refundRecorded, func(q *db.Queries) error {
		p, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: r.TenantID, ID: req.PaymentID})
		if err != nil {
			return notFound(err, "lock payment %s", req.PaymentID)
		}
		amount, err := refundable(p, req.Amount)
		if err != nil {
			return err
		}
		w.intentID = *p.IntentID
		w.refund = newRefund(p, id, r.Key, r.TenantID+":"+r.Key+":refund", amount, req.Reason)
		if err := s.recordRefund(ctx, q, w.refund); err != nil {
			return err
		}
		if w.queued, err = s.othersOnTheirWay(ctx, q, w.refund); err != nil || w.queued {
			return err
		}
		c := w.call()
		return q.StripeCallInsert(ctx, db.StripeCallInsertParams{
			TenantID: r.TenantID, StripeKey: c.key, Operation: string(c.op), ResourceID: c.resourceID, ParamsSha256: c.params,
		})
	})
	if errors.Is(err, ErrPaymentNotRefundable) || errors.Is(err, ErrRefundExceedsPayment) {
		return s.refuse(ctx, r, req.PaymentID, err)
	}
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	w.announced = !w.queued
	claim.Carry = w
	return claim, idempotency.Answer{}, nil
}

// othersOnTheirWay reports whether another refund of the payment is with Stripe.
// Stripe changes one object at a time and turns the second change away, so we
// queue them ourselves, over all processes. Whoever died on the way holds the
// others up for as long as an attempt can take and no longer.
func (s *Service) othersOnTheirWay(ctx context.Context, q *db.Queries, row db.Refund) (bool, error) {
	busy, err := q.RefundOthersOnTheirWay(ctx, db.RefundOthersOnTheirWayParams{
		TenantID: row.TenantID, PaymentID: row.PaymentID, ID: row.ID, AttemptFor: limitWait + s.o.StripeTimeout,
	})
	if err != nil {
		return false, fmt.Errorf("ask for the other refunds of payment %s: %w", row.PaymentID, err)
	}
	return busy, nil
}

// announceRefund is announce for a refund, once it is its turn. While it is
// another's it waits, holding neither a connection nor a lock, for a while.
func (s *Service) announceRefund(ctx context.Context, c *idempotency.Claim, w *refunding) (row db.StripeCallSendRow, err error) {
	until := time.Now().Add(turnWait)
	for wait := turnPause / 16; ; wait = min(2*wait, turnPause) {
		err = c.Phase(ctx, refundRecorded, func(q *db.Queries) error {
			if _, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: c.TenantID, ID: w.refund.PaymentID}); err != nil {
				return fmt.Errorf("lock payment %s: %w", w.refund.PaymentID, err)
			}
			busy, err := s.othersOnTheirWay(ctx, q, w.refund)
			if err != nil {
				return err
			}
			if busy {
				return errNotOurTurn
			}
			row, err = announce(ctx, q, c, w.call())
			return err
		})
		if !errors.Is(err, errNotOurTurn) || time.Now().After(until) || !pause(ctx, jittered(wait)) {
			return row, err
		}
	}
}

// refundable is how much a refund gives back: what was asked for, or all that
// is left.
func refundable(p db.Payment, asked *int64) (int64, error) {
	left := p.AmountMinor - p.AmountRefundingMinor
	switch {
	case p.Status != db.PaymentStatusSucceeded, asked == nil && left == 0:
		return 0, ErrPaymentNotRefundable
	case asked == nil:
		return left, nil
	case *asked > left:
		return 0, ErrRefundExceedsPayment
	}
	return *asked, nil
}

func newRefund(p db.Payment, id, key, stripeKey string, amount int64, reason *string) db.Refund {
	return db.Refund{
		TenantID: p.TenantID, ID: id, Version: 1, Status: db.RefundStatusPending, PaymentID: p.ID, OrderID: p.OrderID, IdempotencyKey: key,
		StripeKey: stripeKey, AmountMinor: amount, Currency: p.Currency, Reason: reason, CreatedAt: now(),
	}
}

// recordRefund writes a refund and takes its amount from its payment. The sum
// can never exceed the payment: the row's own constraint is the judge.
func (s *Service) recordRefund(ctx context.Context, q *db.Queries, row db.Refund) error {
	n, err := q.PaymentRefunding(ctx, db.PaymentRefundingParams{TenantID: row.TenantID, ID: row.PaymentID, AmountMinor: row.AmountMinor})
	if err != nil {
		return fmt.Errorf("reserve the refund of payment %s: %w", row.PaymentID, err)
	}
	if n == 0 {
		return ErrRefundExceedsPayment
	}
	err = q.RefundInsert(ctx, db.RefundInsertParams{
		TenantID: row.TenantID, ID: row.ID, PaymentID: row.PaymentID, OrderID: row.OrderID, IdempotencyKey: row.IdempotencyKey, StripeKey: row.StripeKey,
		AmountMinor: row.AmountMinor, Currency: row.Currency, Reason: row.Reason, CreatedAt: row.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert refund %s: %w", row.ID, err)
	}
	return outbox.Append(ctx, q, refundEvent("refund.created", row))
}

// refundByItself records a refund that nobody asked for: of a payment that
// succeeded although its order was canceled meanwhile. The completer drives it.
func (s *Service) refundByItself(ctx context.Context, q *db.Queries, p db.Payment) error {
	key := RefundOrder + " " + p.OrderID
	row := newRefund(p, newID(refundID), key, p.TenantID+":"+p.OrderID+":refund", p.AmountMinor-p.AmountRefundingMinor, nil)
	if err := s.recordRefund(ctx, q, row); err != nil {
		return err
	}
	return idempotency.Enqueue(ctx, q, idempotency.Request{TenantID: p.TenantID, Key: key, Operation: RefundOrder}, row.ID, refundRecorded)
}

func (w *refunding) call() call {
	reason := ""
	if w.refund.Reason != nil {
		reason = *w.refund.Reason
	}
	return newCall(opRefund, w.refund.ID, w.refund.StripeKey, w.intentID, strconv.FormatInt(w.refund.AmountMinor, 10), reason)
}

// runRefund takes a refund from its record to its answer.
func (s *Service) runRefund(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	w, err := s.refunding(ctx, c)
	if err != nil {
		return idempotency.Answer{}, err
	}
	answer, err := s.giveBack(ctx, c, w)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		// The refund is recorded, may have been made and will be finished, so that
		// is the answer, even while we cannot write down that we have stopped.
		c.Log().Error("refund interrupted", "error", err.Error())
		return s.refundWaits(ctx, c, w, nextTry(c), err)
	}
	return answer, err
}

// giveBack is the refund's life: look for it, make it, and end it as Stripe says.
func (s *Service) giveBack(ctx context.Context, c *idempotency.Claim, w *refunding) (idempotency.Answer, error) {
	if w.refund.Status != db.RefundStatusPending { // A webhook was faster.
		return s.finishRefund(ctx, c, w, StripeRefund{}, nil)
	}
	if !w.announced && !w.queued {
		seen, found, err := s.findRefund(ctx, w)
		switch {
		case err != nil:
			return s.refundWaits(ctx, c, w, nextTry(c), err)
		case found:
			return s.settleRefund(ctx, c, w, seen)
		}
		last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: c.TenantID, StripeKey: w.refund.StripeKey})
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return idempotency.Answer{}, fmt.Errorf("read the call of refund %s: %w", w.refund.ID, err)
		}
		switch {
		case last.AgeSeconds > refundLostAfter.Seconds():
			return s.finishRefund(ctx, c, w, StripeRefund{Status: db.RefundStatusFailed, FailureCode: "provider_error"}, ErrPaymentNotRefundable)
		case err == nil && givenUp(last):
			return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("Stripe repeats an error; only its list of refunds can tell"))
		}
	}
	announce := func(ctx context.Context) (db.StripeCallSendRow, error) { return s.announceRefund(ctx, c, w) }
	out, _, err := s.callAnnounced(ctx, c, w.call(), &w.announced, announce, func(ctx context.Context, call Call) Outcome {
		return s.gateway.CreateRefund(ctx, call, NewRefund{
			IntentID: w.intentID, AmountMinor: w.refund.AmountMinor, Reason: w.refund.Reason,
			TenantID: c.TenantID, OrderID: w.refund.OrderID, PaymentID: w.refund.PaymentID, RefundID: w.refund.ID,
		})
	})
	if errors.Is(err, errNotOurTurn) {
		return s.refundWaits(ctx, c, w, nextTry(c), err)
	}
	if err != nil {
		return idempotency.Answer{}, err
	}
	if out.Verdict == Done || out.Verdict == Refused {
		w.requestID = out.RequestID
	}
	switch out.Verdict {
	case Done:
		return s.settleRefund(ctx, c, w, out.Refund)
	case Refused:
		return s.refundRefused(ctx, c, w, out)
	case Conflict: // Perhaps our own earlier success. Only the list can tell.
		seen, found, err := s.findRefund(ctx, w)
		if err != nil {
			return s.refundWaits(ctx, c, w, nextTry(c), err)
		}
		if found {
			return s.settleRefund(ctx, c, w, seen)
		}
		return s.refundRefused(ctx, c, w, out)
	case Unknown, NotExecuted:
		return s.refundWaits(ctx, c, w, nextTry(c), out.why())
	}
	panic("bug: " + out.Verdict.String())
}

func (s *Service) refunding(ctx context.Context, c *idempotency.Claim) (*refunding, error) {
	if w, ok := c.Carry.(*refunding); ok {
		return w, nil
	}
	row, err := s.pool.RefundGet(ctx, db.RefundGetParams{TenantID: c.TenantID, ID: c.ResourceID})
	if err != nil {
		return nil, fmt.Errorf("read refund %s: %w", c.ResourceID, err)
	}
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: row.PaymentID})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", row.PaymentID, err)
	}
	return &refunding{refund: row, intentID: *p.IntentID}, nil
}

// findRefund looks for the refund in Stripe's list of the intent's refunds, by
// its id there or by ours in the metadata.
func (s *Service) findRefund(ctx context.Context, w *refunding) (StripeRefund, bool, error) {
	list, err := s.gateway.RefundsOf(ctx, w.intentID)
	if err != nil {
		return StripeRefund{}, false, err
	}
	for _, r := range list {
		if r.RefundID == w.refund.ID || w.refund.StripeRefundID != nil && r.ID == *w.refund.StripeRefundID {
			return r, true, nil
		}
	}
	return StripeRefund{}, false, nil
}

func (s *Service) settleRefund(ctx context.Context, c *idempotency.Claim, w *refunding, seen StripeRefund) (idempotency.Answer, error) {
	if seen.Status != db.RefundStatusPending {
		return s.finishRefund(ctx, c, w, seen, nil)
	}
	if err := s.pool.RefundAtStripe(ctx, db.RefundAtStripeParams{TenantID: c.TenantID, ID: w.refund.ID, StripeRefundID: &seen.ID}); err != nil {
		return idempotency.Answer{}, fmt.Errorf("note refund %s: %w", w.refund.ID, err)
	}
	if w.refund.StripeRefundID == nil { // The call is answered, whatever becomes of the refund: nobody need ask whether it was made.
		err := recordCall(ctx, s.pool.Queries, c.TenantID, w.refund.StripeKey, Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID}, false)
		if err != nil {
			return idempotency.Answer{}, err
		}
	}
	w.refund.StripeRefundID, w.requestID = &seen.ID, ""
	return s.refundWaits(ctx, c, w, nextPoll(c), errors.New("Stripe has not decided yet"))
}

func (s *Service) refundWaits(ctx context.Context, c *idempotency.Claim, w *refunding, pause time.Duration, why error) (idempotency.Answer, error) {
	answer := s.answers.Object(http.StatusAccepted, "/v1/refunds/"+w.refund.ID, refundOf(w.refund))
	return answer, yield(ctx, c, jittered(pause), why)
}

// nextPoll is the pause before Stripe is asked again about a refund that only time
// can settle.
func nextPoll(c *idempotency.Claim) time.Duration {
	return min(max(refundPoll, c.Age/20), refundPollMax)
}

func (s *Service) refundRefused(ctx context.Context, c *idempotency.Claim, w *refunding, out Outcome) (idempotency.Answer, error) {
	refusal := ErrPaymentNotRefundable
	if out.Param == "amount" {
		refusal = ErrRefundExceedsPayment
	}
	code := out.ErrorCode
	if code == "" {
		code = "refused"
	}
	return s.finishRefund(ctx, c, w, StripeRefund{Status: db.RefundStatusFailed, FailureCode: code}, refusal)
}

// finishRefund ends the refund, if nobody has, and stores the answer: a refusal
// where there is one, the refund otherwise.
func (s *Service) finishRefund(ctx context.Context, c *idempotency.Claim, w *refunding, seen StripeRefund, refusal error) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		row, err := s.applyRefund(ctx, q, w.refund.TenantID, w.refund.ID, seen)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if seen.Status != "" {
			out := Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Refund: seen, RequestID: w.requestID}
			if refusal != nil {
				out = Outcome{Verdict: Refused, HTTPStatus: http.StatusBadRequest, ErrorCode: seen.FailureCode, RequestID: w.requestID}
			}
			if err := recordCall(ctx, q, c.TenantID, w.refund.StripeKey, out, false); err != nil {
				return idempotency.Answer{}, err
			}
		}
		if refusal != nil {
			return s.answers.Problem(refusal, c.RequestID), nil
		}
		return s.answers.Object(http.StatusCreated, "/v1/refunds/"+row.ID, refundOf(row)), nil
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish refund %s: %w", w.refund.ID, err)
	}
	c.Log().Info("refund finished", "refund_id", w.refund.ID, "status", string(seen.Status))
	return c.Answer(), nil
}

// applyRefund moves a refund to where Stripe has it, and the sums of its payment
// and order with it. It is a no-op when it is there already, so that a webhook,
// a look and a late answer can all tell the same fact. It joins q's transaction
// and locks the order before the payment before the refund, as everything does.
func (s *Service) applyRefund(ctx context.Context, q *db.Queries, tenantID, id string, seen StripeRefund) (db.Refund, error) {
	row, err := q.RefundGet(ctx, db.RefundGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return row, fmt.Errorf("read refund %s: %w", id, err)
	}
	if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: tenantID, ID: row.OrderID}); err != nil {
		return row, fmt.Errorf("lock order %s: %w", row.OrderID, err)
	}
	if _, err := q.PaymentLock(ctx, db.PaymentLockParams{TenantID: tenantID, ID: row.PaymentID}); err != nil {
		return row, fmt.Errorf("lock payment %s: %w", row.PaymentID, err)
	}
	if row, err = q.RefundLock(ctx, db.RefundLockParams{TenantID: tenantID, ID: id}); err != nil {
		return row, fmt.Errorf("lock refund %s: %w", id, err)
	}
	reserved, refunded, moves := refundMoves(row.Status, seen.Status, row.AmountMinor)
	if !moves {
		return row, nil
	}
	n, err := q.PaymentRefunding(ctx, db.PaymentRefundingParams{TenantID: tenantID, ID: row.PaymentID, AmountMinor: reserved, RefundedMinor: refunded})
	if err == nil && n == 0 {
		err = errors.New("its sums leave no room for that")
	}
	if err != nil {
		return row, fmt.Errorf("change what payment %s has refunded: %w", row.PaymentID, err)
	}
	if refunded != 0 {
		if err := q.OrderRefunded(ctx, db.OrderRefundedParams{TenantID: tenantID, ID: row.OrderID, PaymentID: &row.PaymentID, AmountMinor: refunded}); err != nil {
			return row, fmt.Errorf("change what order %s has refunded: %w", row.OrderID, err)
		}
	}
	row, err = q.RefundSettle(ctx, db.RefundSettleParams{
		TenantID: tenantID, ID: id, SeenVersion: row.Version, Status: seen.Status, StripeRefundID: optional(seen.ID), FailureCode: optional(seen.FailureCode),
	})
	if err != nil {
		return row, fmt.Errorf("settle refund %s: %w", id, err)
	}
	kind := "refund.failed" // A canceled refund is one that failed, to whoever waits for the money.
	if row.Status == db.RefundStatusSucceeded {
		kind = "refund.succeeded"
	}
	return row, outbox.Append(ctx, q, refundEvent(kind, row))
}

// refundMoves is what a change of a refund's status does to the sums. A status
// that comes late, or again, moves nothing.
func refundMoves(from, to db.RefundStatus, amount int64) (reserved, refunded int64, moves bool) {
	over := to == db.RefundStatusFailed || to == db.RefundStatusCanceled
	switch {
	case from == db.RefundStatusPending && to == db.RefundStatusSucceeded:
		return 0, amount, true
	case from == db.RefundStatusPending && over:
		return -amount, 0, true
	case from == db.RefundStatusSucceeded && to == db.RefundStatusFailed:
		return -amount, -amount, true
	}
	return 0, 0, false
}

// GetRefund returns one refund of the tenant, or ErrNotFound.
func (s *Service) GetRefund(ctx context.Context, tenantID, id string) (Refund, error) {
	if !isID(refundID, id) {
		return Refund{}, ErrNotFound
	}
	row, err := s.pool.RefundGet(ctx, db.RefundGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return Refund{}, notFound(err, "get refund %s", id)
	}
	return refundOf(row), nil
}
