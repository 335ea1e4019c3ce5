package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/tracing"
)

// PayRequest is what POST /v1/payments asks for, decoded and validated.
type PayRequest struct {
	OrderID       string `json:"order_id"`
	PaymentMethod string `json:"payment_method"`
}

// Recovery points of create_payment, in order.
const (
	paymentRecorded = "payment_recorded" // the payment exists; its intent may
	intentRecorded  = "intent_recorded"  // the intent exists; it may be confirmed
	actionRequired  = "action_required"  // the customer must do something
)

// paying is what a run of create_payment works on: the rows as they were read
// or written last.
type paying struct {
	order   db.Order
	payment db.Payment
	// announced: the call that comes next was written down in the phase before,
	// in this very run, so it has never been sent.
	announced bool
	// checkout is what the payment is a step of, nil if it is by itself. The end
	// of a step is not the answer to the key: the checkout goes on from it.
	checkout *checkingOut
}

// beginPayment is T1. It claims the key and records the payment, its event and
// the first call it will make, in one statement.
func (s *Service) beginPayment(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	req := decode[PayRequest](r.Body)
	if !isID(orderID, req.OrderID) {
		return nil, idempotency.Answer{}, ErrNotFound
	}
	target, err := s.pool.OrderToPay(ctx, db.OrderToPayParams{TenantID: r.TenantID, ID: req.OrderID})
	if err != nil {
		return nil, idempotency.Answer{}, notFound(err, "read order %s", req.OrderID)
	}
	if refusal := closedOrder(target.Order.Status); refusal != nil {
		return s.refuse(ctx, r, req.OrderID, refusal)
	}
	if target.LiveStatus != "" || target.Order.CancelingKey != nil { // T1 would find out too, but it locks the order for it, which is a write.
		return nil, idempotency.Answer{}, s.whyNotClaimed(ctx, r, req.OrderID)
	}
	if err := s.gateway.Ready(ctx); err != nil {
		return nil, idempotency.Answer{}, err
	}
	w := newPaying(r.TenantID, r.Key, req.PaymentMethod, target)
	point, call := w.firstCall()
	claim, err := s.keys.BeginStatement(ctx, r, w.payment.ID, point, func(q *db.Queries, n idempotency.New) (bool, error) {
		row, err := q.PaymentBegin(ctx, db.PaymentBeginParams{
			TenantID: r.TenantID, OrderID: w.order.ID, Key: r.Key, Operation: r.Operation, Fingerprint: r.Fingerprint,
			FingerprintVersion: idempotency.FingerprintVersion, Request: r.Body, RequestID: r.RequestID, RecoveryPoint: n.Point,
			ClaimToken: n.ClaimToken, Lease: n.Lease, PaymentID: w.payment.ID, AmountMinor: w.payment.AmountMinor, Currency: w.payment.Currency,
			PaymentMethod: w.payment.PaymentMethod, IntentNumber: w.payment.IntentNumber, IntentID: w.payment.IntentID, CreatedAt: w.payment.CreatedAt,
			EventData: mustMarshal(paymentOf(w.payment)), Traceparent: tracing.Traceparent(ctx),
			StripeKey: call.key, StripeOperation: string(call.op), StripeResourceID: call.resourceID, ParamsSha256: call.params,
		})
		return row.Claimed, err
	})
	if errors.Is(err, idempotency.ErrTaken) || db.Violates(err, "one_live_payment_per_order") {
		return nil, idempotency.Answer{}, s.whyNotClaimed(ctx, r, req.OrderID)
	}
	if err != nil {
		return nil, idempotency.Answer{}, fmt.Errorf("begin a payment of order %s: %w", req.OrderID, err)
	}
	claim.Carry = w
	return claim, idempotency.Answer{}, nil
}

// whyNotClaimed tells a key that somebody has from an order that somebody pays.
// An order that was closed meanwhile is looked at again, from the start.
func (s *Service) whyNotClaimed(ctx context.Context, r idempotency.Request, orderID string) error {
	if found, err := s.keys.Lookup(ctx, r); err != nil || found.State != idempotency.Fresh {
		return errors.Join(idempotency.ErrTaken, err)
	}
	order, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: r.TenantID, ID: orderID})
	if err != nil {
		return notFound(err, "read order %s", orderID)
	}
	if closedOrder(order.Status) != nil {
		return idempotency.ErrTaken
	}
	return ErrPaymentInProgress
}

// closedOrder is why an order in this status takes no payment, for ever; nil if it does.
func closedOrder(status db.OrderStatus) error {
	switch status {
	case db.OrderStatusOpen:
		return nil
	case db.OrderStatusCanceled:
		return ErrOrderNotPayable
	case db.OrderStatusPaid, db.OrderStatusPartiallyRefunded, db.OrderStatusRefunded:
		return ErrOrderAlreadyPaid
	}
	panic("bug: an order of status " + string(status))
}

func newPaying(tenantID, key, method string, target db.OrderToPayRow) *paying {
	p := db.Payment{
		TenantID: tenantID, ID: newID(paymentID), Version: 1, Status: db.PaymentStatusProcessing, OrderID: target.Order.ID, IdempotencyKey: key,
		AmountMinor: target.Order.AmountMinor, Currency: target.Order.Currency, PaymentMethod: method,
		IntentNumber: target.IntentNumber, CreatedAt: now(),
	}
	if target.IntentClosed || target.IntentID == "" {
		p.IntentNumber++
	} else {
		p.IntentID = &target.IntentID
	}
	return &paying{order: target.Order, payment: p, announced: true}
}

// firstCall is the call that a new payment makes: the creation of the order's
// intent, or, where an earlier card was declined, another confirm of that intent.
func (w *paying) firstCall() (point string, c call) {
	if w.payment.IntentID == nil {
		return paymentRecorded, w.createCall()
	}
	return intentRecorded, w.confirmCall()
}

// runPayment takes a payment from its last recovery point to its answer.
func (s *Service) runPayment(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	for {
		w, err := s.paying(ctx, c)
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := s.pay(ctx, c, w)
		switch {
		case err == nil, errors.Is(err, idempotency.ErrLeaseLost):
			return answer, err
		case !errors.Is(err, errMoved):
			// The payment is recorded and will be finished, so that is the
			// answer, even while we cannot write down that we have stopped.
			c.Log().Error("payment interrupted", "error", err.Error())
			return s.waitFor(ctx, c, w, err)
		}
		c.Carry = nil // Somebody with a claim of its own changed the payment or its order. Read them again.
	}
}

// pay is the payment's life in one screen. A step that returns no answer has
// moved the recovery point; one that returns an answer is done for now.
func (s *Service) pay(ctx context.Context, c *idempotency.Claim, w *paying) (answer idempotency.Answer, err error) {
	if w.settled() {
		return s.finishSettled(ctx, c, w)
	}
	for answer.Status == 0 && err == nil {
		switch c.RecoveryPoint() {
		case paymentRecorded:
			answer, err = s.createIntent(ctx, c, w)
		case intentRecorded:
			answer, err = s.confirm(ctx, c, w)
		case actionRequired:
			answer, err = s.awaitCustomer(ctx, c, w)
		case idempotency.Finished:
			return c.Answer(), nil
		default:
			if w.checkout != nil {
				return answer, nil // The payment has ended, the checkout has not.
			}
			panic(fmt.Sprintf("bug: a payment cannot resume from %q", c.RecoveryPoint()))
		}
	}
	return answer, err
}

func (s *Service) paying(ctx context.Context, c *idempotency.Claim) (*paying, error) {
	if w, ok := c.Carry.(*paying); ok {
		return w, nil
	}
	return s.readPaying(ctx, c.TenantID, c.ResourceID)
}

func (s *Service) readPaying(ctx context.Context, tenantID, id string) (*paying, error) {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, fmt.Errorf("read payment %s: %w", id, err)
	}
	o, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: tenantID, ID: p.OrderID})
	if err != nil {
		return nil, fmt.Errorf("read order %s: %w", p.OrderID, err)
	}
	return &paying{order: o, payment: p}, nil
}

// createIntent makes the order's PaymentIntent. Until it is confirmed no money
// can move, so everything here may be given up and begun anew.
func (s *Service) createIntent(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent := NewIntent{TenantID: c.TenantID, OrderID: w.order.ID, AmountMinor: w.payment.AmountMinor, Currency: w.payment.Currency}
	again := !w.announced
	out, sent, err := s.call(ctx, c, w.createCall(), &w.announced, func(ctx context.Context, call Call) Outcome {
		if !again {
			return s.gateway.CreateIntent(ctx, call, intent)
		}
		return hedged(ctx, func(ctx context.Context) (Outcome, bool) { // The same key every time: Stripe makes one intent.
			out := s.gateway.CreateIntent(ctx, call, intent)
			return out, out.Verdict != Unknown
		})
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Verdict {
	case Done:
		return idempotency.Answer{}, s.recordIntent(ctx, c, w, out)
	case Refused, Conflict: // With nothing at stake, a refusal is a refusal.
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusFailed, failure: out.Failure, closesIntent: true, call: w.createCall(), out: out})
	case Unknown, NotExecuted:
		if sent.forgotten || out.Frozen && sent.attempts > 1 {
			return idempotency.Answer{}, s.nextIntent(ctx, c, w)
		}
		return s.wait(ctx, c, w, out)
	}
	panic("bug: " + out.Verdict.String())
}

// recordIntent is T1b.
func (s *Service) recordIntent(ctx context.Context, c *idempotency.Claim, w *paying, out Outcome) error {
	create, confirm := w.createCall(), w.confirmCallOn(out.Intent.ID)
	err := c.Statement(ctx, intentRecorded, func(q *db.Queries) (int64, error) {
		return q.PaymentIntentRecord(ctx, db.PaymentIntentRecordParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, RecoveryPoint: intentRecorded, PaymentID: w.payment.ID,
			IntentID: &out.Intent.ID, CreateKey: create.key, StripeRequestID: out.RequestID, ConfirmKey: confirm.key, ParamsSha256: confirm.params,
		})
	})
	if err != nil {
		return fmt.Errorf("record the intent of payment %s: %w", w.payment.ID, err)
	}
	w.payment.IntentID, w.announced = &out.Intent.ID, true
	return nil
}

// nextIntent leaves an intent whose creation nobody will ever answer for, and
// tries the next number. If the lost one exists it is unconfirmed, and swept.
func (s *Service) nextIntent(ctx context.Context, c *idempotency.Claim, w *paying) error {
	err := c.Phase(ctx, paymentRecorded, func(q *db.Queries) error {
		_, err := q.PaymentNextIntent(ctx, db.PaymentNextIntentParams{TenantID: c.TenantID, ID: w.payment.ID, IntentNumber: w.payment.IntentNumber})
		return err
	})
	if err == nil {
		w.payment.IntentNumber++
	}
	return err
}

// confirm moves the money. What was not sent in this run for certain may have
// been sent before, so then it looks first.
func (s *Service) confirm(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	if !w.announced {
		intent, err := s.look(ctx, *w.payment.IntentID)
		if err != nil {
			return s.waitFor(ctx, c, w, err)
		}
		if answer, settled, err := s.settleBy(ctx, c, w, intent); settled || err != nil {
			return answer, err
		}
		// Nothing has come of the confirm, as far as can be seen.
		last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: c.TenantID, StripeKey: w.confirmCall().key})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read the confirm of payment %s: %w", w.payment.ID, err)
		}
		if givenUp(last) {
			return s.abandon(ctx, c, w, failureOf(last))
		}
	}
	out, sent, err := s.call(ctx, c, w.confirmCall(), &w.announced, func(ctx context.Context, call Call) Outcome {
		return s.gateway.ConfirmIntent(ctx, call, *w.payment.IntentID, w.payment.PaymentMethod) // The money moves here. No transaction is open.
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch out.Verdict {
	case Done:
		if !out.Replayed {
			if answer, settled, err := s.settleWith(ctx, c, w, out.Intent, out); settled || err != nil {
				return answer, err
			}
		}
		return s.awaitCustomer(ctx, c, w) // A replay shows the intent as it was then. It may have come further.
	case Refused:
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusFailed, failure: out.Failure, declined: out.Declined, call: w.confirmCall(), out: out})
	case Conflict:
		return s.lookAgain(ctx, c, w)
	case Unknown, NotExecuted:
		if out.Frozen && sent.attempts > 1 {
			return s.lookAgain(ctx, c, w) // Sending it a third time would say the same.
		}
		return s.wait(ctx, c, w, out)
	}
	panic("bug: " + out.Verdict.String())
}

// lookAgain reads the intent once more, when an answer has shown that it is not
// as we thought, and settles the payment or leaves it to the completer.
func (s *Service) lookAgain(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, err := s.look(ctx, *w.payment.IntentID)
	if err != nil {
		return s.waitFor(ctx, c, w, err)
	}
	answer, settled, err := s.settleBy(ctx, c, w, intent)
	if settled || err != nil {
		return answer, err
	}
	last, err := s.pool.StripeCallGet(ctx, db.StripeCallGetParams{TenantID: c.TenantID, StripeKey: w.confirmCall().key})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read the confirm of payment %s: %w", w.payment.ID, err)
	}
	if last.Outcome == db.StripeOutcomeRefused || givenUp(last) {
		return s.abandon(ctx, c, w, failureOf(last))
	}
	return s.waitFor(ctx, c, w, fmt.Errorf("the intent is %s", intent.Status))
}

// errMoved says that a payment or its order is not as it was read any more.
var errMoved = fmt.Errorf("the payment: %w", idempotency.ErrMoved)

// settled reports whether another operation has ended the payment: the customer
// canceled it, or its order.
func (w *paying) settled() bool {
	return w.payment.Status != db.PaymentStatusProcessing && w.payment.Status != db.PaymentStatusRequiresAction
}

// finishSettled stores the answer to a payment that another operation has ended.
func (s *Service) finishSettled(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	if w.checkout != nil {
		return idempotency.Answer{}, s.endSettledPayStep(ctx, c, w)
	}
	err := c.Finish(ctx, func(*db.Queries) (idempotency.Answer, error) {
		return s.paymentAnswer(w.payment, ending{}, c.RequestID), nil
	})
	return c.Answer(), err
}

// settleBy settles a payment by what its intent shows. Not settled: the intent
// waits for a confirm, so none has succeeded.
func (s *Service) settleBy(ctx context.Context, c *idempotency.Claim, w *paying, intent Intent) (idempotency.Answer, bool, error) {
	return s.settleWith(ctx, c, w, intent, Outcome{Verdict: Done, Intent: intent, HTTPStatus: http.StatusOK})
}

func (s *Service) settleWith(ctx context.Context, c *idempotency.Claim, w *paying, intent Intent, out Outcome) (answer idempotency.Answer, settled bool, err error) {
	switch intent.Status {
	case IntentSucceeded:
		answer, err = s.finish(ctx, c, w, ending{status: db.PaymentStatusSucceeded, chargeID: intent.ChargeID, call: w.confirmCall(), out: out})
	case IntentRequiresAction:
		answer, err = s.requireAction(ctx, c, w, intent)
	case IntentProcessing:
		answer, err = s.waitFor(ctx, c, w, errors.New("the payment method takes its time"))
	case IntentCanceled:
		answer, err = s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: Failure{Code: "payment_intent_canceled", Message: "The PaymentIntent was canceled before the payment was made."},
			closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Refused, HTTPStatus: out.HTTPStatus},
		})
	case IntentRequiresPaymentMethod, IntentRequiresConfirmation:
		return idempotency.Answer{}, false, nil
	default: // A status this version does not know. It will become one that it does, or a person sees it.
		answer, err = s.waitFor(ctx, c, w, fmt.Errorf("the intent has the unknown status %q", intent.Status))
	}
	return answer, true, err
}

// abandon makes sure that a payment which nobody can tell about has failed: a
// canceled intent moves no money, whatever is still under way.
func (s *Service) abandon(ctx context.Context, c *idempotency.Claim, w *paying, why Failure) (idempotency.Answer, error) {
	intent, out, err := s.cancelIntent(ctx, c, w.payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case IntentCanceled:
		return s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: why, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Refused},
		})
	case "":
		return s.wait(ctx, c, w, out)
	default: // Too late to cancel: it is paid, or about to be.
		answer, settled, err := s.settleBy(ctx, c, w, intent)
		if !settled && err == nil {
			return s.waitFor(ctx, c, w, errors.New("the intent could not be canceled"))
		}
		return answer, err
	}
}

// requireAction records that the customer must act. The key stays unfinished:
// what is said now is not the last word.
func (s *Service) requireAction(ctx context.Context, c *idempotency.Claim, w *paying, intent Intent) (idempotency.Answer, error) {
	if w.payment.Status != db.PaymentStatusRequiresAction {
		err := c.Phase(ctx, actionRequired, func(q *db.Queries) error {
			row, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
				TenantID: c.TenantID, ID: w.payment.ID, SeenVersion: w.payment.Version, Status: db.PaymentStatusRequiresAction,
				NextAction: intent.NextAction,
			})
			if err != nil {
				return fmt.Errorf("settle payment %s: %w", w.payment.ID, err)
			}
			if err := recordCall(ctx, q, c.TenantID, w.confirmCall().key, Outcome{Verdict: Done, HTTPStatus: http.StatusOK, Intent: intent}, false); err != nil {
				return err
			}
			w.payment = row
			return outbox.Append(ctx, q, paymentEvent("payment.requires_action", row))
		})
		if err != nil {
			return idempotency.Answer{}, err
		}
	}
	return s.interim(ctx, c, w), c.Yield(ctx, jittered(actionPoll), "the customer must act")
}

// awaitCustomer looks whether the customer has acted. One who does not in time
// has not paid: the intent is canceled, so that nothing can happen later.
func (s *Service) awaitCustomer(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, err := s.look(ctx, *w.payment.IntentID)
	if err != nil {
		return s.waitFor(ctx, c, w, err)
	}
	if intent.Status == IntentRequiresPaymentMethod { // The authentication failed.
		why := Failure{Code: "payment_intent_authentication_failure", Message: "The customer did not pass the authentication."}
		if intent.LastFailure != nil {
			why = *intent.LastFailure
		}
		return s.finish(ctx, c, w, ending{
			status: db.PaymentStatusFailed, failure: why, declined: intent.LastIsDecline, chargeID: intent.ChargeID,
			call: w.confirmCall(), out: Outcome{Verdict: Refused, Intent: intent},
		})
	}
	if intent.Status == IntentRequiresAction {
		late, err := s.pool.PaymentOlderThan(ctx, db.PaymentOlderThanParams{TenantID: c.TenantID, ID: w.payment.ID, Age: s.o.ActionTimeout})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("read payment %s: %w", w.payment.ID, err)
		}
		if late {
			return s.expire(ctx, c, w)
		}
	}
	if intent.Status == IntentCanceled {
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusCanceled, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Done, Intent: intent}})
	}
	answer, settled, err := s.settleBy(ctx, c, w, intent)
	if !settled && err == nil {
		return s.waitFor(ctx, c, w, fmt.Errorf("the intent is %s", intent.Status))
	}
	return answer, err
}

func (s *Service) expire(ctx context.Context, c *idempotency.Claim, w *paying) (idempotency.Answer, error) {
	intent, out, err := s.cancelIntent(ctx, c, w.payment)
	if err != nil {
		return idempotency.Answer{}, err
	}
	switch intent.Status {
	case IntentCanceled:
		return s.finish(ctx, c, w, ending{status: db.PaymentStatusCanceled, closesIntent: true, call: w.confirmCall(), out: Outcome{Verdict: Done, Intent: intent}})
	case "":
		return s.wait(ctx, c, w, out)
	}
	return s.waitFor(ctx, c, w, fmt.Errorf("the intent is %s, not canceled", intent.Status))
}

// ending is how a payment ends.
type ending struct {
	status       db.PaymentStatus
	chargeID     string
	failure      Failure
	declined     bool
	closesIntent bool
	call         call    // the call that decided it
	out          Outcome // and what came of that
}

// finish is T2: the outcome, the order's new state, the events and the answer,
// in one statement under the fence.
func (s *Service) finish(ctx context.Context, c *idempotency.Claim, w *paying, e ending) (idempotency.Answer, error) {
	if w.checkout != nil {
		return idempotency.Answer{}, s.endPayStep(ctx, c, w, e)
	}
	if e.status == db.PaymentStatusSucceeded && w.order.Status != db.OrderStatusOpen {
		return s.finishTooLate(ctx, c, w, e)
	}
	after := w.ended(e)
	events := []outbox.Event{paymentEvent("payment."+string(e.status), after)}
	order := w.order
	if e.status == db.PaymentStatusSucceeded {
		order.Status, order.Version, order.PaymentID = db.OrderStatusPaid, order.Version+1, &after.ID
		events = append(events, orderEvent("order.paid", order))
	}
	answer := s.paymentAnswer(after, e, c.RequestID)
	httpStatus := int16(e.out.HTTPStatus) //nolint:gosec // an HTTP status fits
	err := c.FinishStatement(ctx, answer, func(q *db.Queries, a idempotency.Encoded) (int64, error) {
		p := db.PaymentFinishParams{
			TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, PaymentID: after.ID, PaymentVersion: w.payment.Version, Status: after.Status,
			OrderID: w.order.ID, OrderVersion: w.order.Version, PaysOrder: e.status == db.PaymentStatusSucceeded,
			AnswerVersion: a.Version, AnswerStatus: a.Status, AnswerHeaders: a.Headers, AnswerBody: a.Body,
			StripeKey: e.call.key, StripeOutcome: e.out.record(), HttpStatus: &httpStatus, StripeRequestID: e.out.RequestID,
			ErrorCode: optional(e.out.ErrorCode), ObjectID: optional(e.out.Intent.ID), IntentClosed: after.IntentClosed, ChargeID: after.ChargeID,
			FailureCode: after.FailureCode, FailureDeclineCode: after.FailureDeclineCode, FailureMessage: after.FailureMessage,
			Traceparent: tracing.Traceparent(ctx),
		}
		for _, event := range events {
			p.EventAggregateIds = append(p.EventAggregateIds, event.AggregateID)
			p.EventVersions = append(p.EventVersions, event.Version)
			p.EventTypes = append(p.EventTypes, event.Type)
			p.EventData = append(p.EventData, event.Data)
		}
		n, err := q.PaymentFinish(ctx, p)
		if err == nil && n == 0 {
			err = s.whyNotFinished(ctx, c, w)
		}
		return n, err
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish payment %s: %w", w.payment.ID, err)
	}
	c.Log().Info("payment finished", "payment_id", after.ID, "status", string(after.Status), "stripe_request_id", e.out.RequestID)
	return c.Answer(), nil
}

// finishTooLate records a payment that succeeded although its order was closed
// meanwhile. The money goes back by itself.
func (s *Service) finishTooLate(ctx context.Context, c *idempotency.Claim, w *paying, e ending) (idempotency.Answer, error) {
	err := c.Finish(ctx, func(q *db.Queries) (idempotency.Answer, error) {
		if _, err := q.OrderLock(ctx, db.OrderLockParams{TenantID: c.TenantID, ID: w.order.ID}); err != nil {
			return idempotency.Answer{}, fmt.Errorf("lock order %s: %w", w.order.ID, err)
		}
		p, err := q.PaymentSettle(ctx, db.PaymentSettleParams{
			TenantID: c.TenantID, ID: w.payment.ID, SeenVersion: w.payment.Version, Status: e.status, ChargeID: optional(e.chargeID),
		})
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("settle payment %s: %w", w.payment.ID, err)
		}
		if err := recordCall(ctx, q, c.TenantID, e.call.key, e.out, false); err != nil {
			return idempotency.Answer{}, err
		}
		if err := outbox.Append(ctx, q, paymentEvent("payment.succeeded", p)); err != nil {
			return idempotency.Answer{}, err
		}
		return s.paymentAnswer(p, e, c.RequestID), s.refundByItself(ctx, q, p)
	})
	return c.Answer(), err
}

// whyNotFinished tells a payment that was changed by another operation from a
// lease that was lost, which needs no reason.
func (s *Service) whyNotFinished(ctx context.Context, c *idempotency.Claim, w *paying) error {
	p, err := s.pool.PaymentGet(ctx, db.PaymentGetParams{TenantID: c.TenantID, ID: w.payment.ID})
	if err != nil {
		return err
	}
	o, err := s.pool.OrderGet(ctx, db.OrderGetParams{TenantID: c.TenantID, ID: w.order.ID})
	if err != nil {
		return err
	}
	if p.Version == w.payment.Version && o.Version == w.order.Version {
		return nil
	}
	return errMoved
}

// ended is the payment's row as T2 will leave it.
func (w *paying) ended(e ending) db.Payment {
	p := w.payment
	p.Status, p.Version, p.NextAction, p.IntentClosed = e.status, p.Version+1, nil, e.closesIntent
	if e.chargeID != "" {
		p.ChargeID = &e.chargeID
	} else if e.out.Intent.ChargeID != "" {
		p.ChargeID = &e.out.Intent.ChargeID
	}
	if e.status == db.PaymentStatusFailed {
		p.FailureCode, p.FailureDeclineCode, p.FailureMessage = &e.failure.Code, optional(e.failure.DeclineCode), optional(e.failure.Message)
	}
	return p
}

func (s *Service) paymentAnswer(p db.Payment, e ending, requestID string) idempotency.Answer {
	if p.Status == db.PaymentStatusSucceeded {
		return s.answers.Object(http.StatusCreated, "/v1/payments/"+p.ID, paymentOf(p))
	}
	return s.answers.Problem(&PaymentError{Payment: paymentOf(p), Declined: e.declined}, requestID)
}

// interim is how things stand, for a client that asks too early.
func (s *Service) interim(ctx context.Context, c *idempotency.Claim, w *paying) idempotency.Answer {
	if w.checkout != nil {
		return s.checkoutStands(ctx, c, w.checkout)
	}
	return s.answers.Object(http.StatusAccepted, "/v1/payments/"+w.payment.ID, paymentOf(w.payment))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
