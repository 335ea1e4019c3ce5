package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/internal/tracing"
)

// This file is a payment in which nothing goes wrong, in the order in which it happens:
// beginPayment, beginFirst, recordPayment, runPayment, createIntent, recordIntent, confirm, Finish. What is reached only when
// a call was sent before is in payment_resume.go.

// PayRequest is what POST /v1/payments asks for, decoded and validated.
type PayRequest struct {
	OrderID       string `json:"order_id"`
	PaymentMethod string `json:"payment_method"`
	// ManualCapture only reserves the money. A request of its own captures it.
	ManualCapture bool `json:"manual_capture,omitempty"`
}

// Recovery points of create_payment, in order. An operation of which the payment is a
// step passes them, too.
const (
	PaymentRecorded = "payment_recorded" // the payment exists; its intent may
	IntentRecorded  = "intent_recorded"  // the intent exists; it may be confirmed
	ActionRequired  = "action_required"  // the customer must do something
)

// Run is one run of a payment: its rows as they were read or written last. Of the order of a payment that T1 took for the
// order's first, it has what distinguishes it from other orders of which no payment was made, and not what was bought.
type Run struct {
	Order   db.Order
	Payment db.Payment
	ending  Ending
	// inStatus is how long the payment had its status when it was read, by the database's clock.
	inStatus time.Duration
	// recorded: the call that comes next was recorded in the phase before, in this
	// very run, so it has never been sent.
	recorded bool
	// beforeLife: the order is older than the life of this database, so a life that was lost may have paid it.
	beforeLife bool
}

// Ending is what happens when a payment ends, and what its key is answered with. For POST /v1/payments the
// end is the answer; for a payment that is a step of another operation it is the end of the step.
type Ending interface {
	// Finish records how the payment ended, under the fence. It returns the answer to
	// the key; none: the operation continues at the recovery point it is at now.
	// ErrMoved: another operation changed the payment or its order since it was read.
	Finish(ctx context.Context, c *idempotency.Claim, r *Run, e Settlement) (idempotency.Answer, error)
	// Pending is the answer while the payment has not ended.
	Pending(ctx context.Context, c *idempotency.Claim, r *Run) idempotency.Answer
}

// Settlement is how a payment ends.
type Settlement struct {
	Status        db.PaymentStatus
	ChargeID      string
	Failure       stripe.Failure
	Declined      bool           // by the issuer
	ClosesIntent  bool           // the order's next payment needs another intent
	Outcome       stripe.Outcome // of the call that decided it
	Call          calls.Call     // that call; without a key: it was decided without one
	AlreadyStored bool           // another operation has ended the payment; only the answer is missing
	PaidBy        *stripe.Intent // the order's money is on this intent, which has no payment: it gets one in the same transaction
}

// beginPayment is T1, in one statement. Nearly each payment is its order's first, and begins as such, before anything is
// read. If this one is none, or its order cannot be paid, nothing was written, and the order is read.
func (s *Service) beginPayment(
	ctx context.Context, req idempotency.Request,
) (*idempotency.Claim, idempotency.Answer, error) {
	asked := idempotency.Decode[PayRequest](req.Body)
	if claim, err := s.beginFirst(ctx, req, asked); !errors.Is(err, idempotency.ErrTaken) {
		return claim, idempotency.Answer{}, err
	}
	target, err := s.statements.OrderToPay.Do(ctx, orderKey{req.TenantID, asked.OrderID})
	if err != nil {
		return nil, idempotency.Answer{}, notFound(err, "read order %s", asked.OrderID)
	}
	if refusal := closedOrder(target.Order.Status); refusal != nil {
		return s.refuse(ctx, req, asked.OrderID, refusal)
	}
	// T1 would find out too, but only behind the order's lock.
	if target.LiveStatus != "" || target.Order.CancelingKey != nil {
		return nil, idempotency.Answer{}, s.whyNotClaimed(ctx, req, asked.OrderID)
	}
	admitted, err := s.gateway.Ready(ctx, req.TenantID)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	defer admitted()
	claim, err := s.recordPayment(ctx, req, NewRun(req.TenantID, req.Key, asked, target, s.answerPayment()), true)
	if errors.Is(err, idempotency.ErrTaken) {
		err = s.whyNotClaimed(ctx, req, asked.OrderID)
	}
	return claim, idempotency.Answer{}, err
}

// beginFirst begins a payment that is taken for its order's first. ErrTaken: nothing was recorded, for whatever reason.
// Requests that will be refused must not queue here, and take the tenant's turns at Stripe meanwhile: of one order one
// request at a time is tried, and the others read it.
func (s *Service) beginFirst(ctx context.Context, req idempotency.Request, asked PayRequest) (*idempotency.Claim, error) {
	r := NewRun(req.TenantID, req.Key, asked, unpaid(req.TenantID, asked.OrderID), s.answerPayment())
	if !rendersPayment("payment.created", r.Payment) { // The event has data, some of which is the order's.
		return nil, idempotency.ErrTaken
	}
	order := orderKey{req.TenantID, asked.OrderID}
	if _, tried := s.beginning.LoadOrStore(order, true); tried {
		return nil, idempotency.ErrTaken
	}
	defer s.beginning.Delete(order)
	admitted, err := s.gateway.Ready(ctx, req.TenantID)
	if err != nil { // It is asked again, and its reason given, when the order is known to need it.
		return nil, idempotency.ErrTaken
	}
	defer admitted()
	return s.recordPayment(ctx, req, r, false)
}

// recordPayment claims the key and records the payment, its event and the first call it will make. If waits is set, it waits
// for a transaction that has locked the order. ErrTaken: the key is taken, or the payment cannot be made as r has it;
// nothing was recorded.
func (s *Service) recordPayment(
	ctx context.Context, req idempotency.Request, r *Run, waits bool,
) (*idempotency.Claim, error) {
	p := r.Payment
	var begun db.PaymentBeginRow
	claim, err := s.keys.BeginStatement(ctx, req, p.ID, r.firstPoint(), func(n idempotency.New) (err error) {
		begun, err = s.statements.PaymentBegin.Do(ctx, beginRow{
			Request: req, Claim: n, Payment: p, Event: PaymentEvent("payment.created", p).Data,
			Traceparent: tracing.Traceparent(ctx), Waits: waits,
		})
		waits = true // Once it is in doubt, the transaction that has locked the order may be its own.
		return err
	})
	if postgres.Violates(err, "one_live_payment_per_order") || postgres.Violates(err, "intent_is_created_once") {
		return nil, idempotency.ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("begin a payment of order %s: %w", p.OrderID, err)
	}
	if begun.Ordinal > 0 { // otherwise the response was lost, and the run reads what T1 wrote
		r.Payment.AmountMinor, r.Payment.Currency = begun.AmountMinor, begun.Currency
		r.Order.Version, r.beforeLife = begun.OrderVersion, begun.BeforeLife
		claim.Carry = r
	}
	return claim, nil
}

// unpaid is an order of which no payment was made, and only the id is known, which says when it was created.
func unpaid(tenantID, orderID string) db.OrderToPayRow {
	return db.OrderToPayRow{
		Order:        db.Order{TenantID: tenantID, ID: orderID, Status: db.OrderStatusOpen, CreatedAt: ids.Time(orderID)},
		IntentClosed: true,
	}
}

// NewRun is the first run of a new payment. Its first call is recorded in the phase that
// records the payment.
func NewRun(tenantID, key string, asked PayRequest, target db.OrderToPayRow, ending Ending) *Run {
	id := ids.New(ids.Payment)
	p := db.Payment{
		TenantID: tenantID, ID: id, Version: 1, Status: db.PaymentStatusProcessing,
		OrderID: target.Order.ID, IdempotencyKey: key, AmountMinor: target.Order.AmountMinor,
		Currency: target.Order.Currency, PaymentMethod: asked.PaymentMethod, IntentNumber: target.IntentNumber,
		ManualCapture: asked.ManualCapture, CreatedAt: ids.Time(id),
	}
	if target.IntentClosed || target.IntentID == "" || target.IntentNumber <= target.Order.IntentsRetired ||
		target.ManualCapture != asked.ManualCapture { // An intent is made for one of the two.
		p.IntentNumber++
	} else {
		p.IntentID = &target.IntentID
	}
	return &Run{Order: target.Order, Payment: p, ending: ending, recorded: true}
}

// firstPoint is before the call that a new payment makes: the creation of the order's intent,
// or, where an earlier card was declined, another confirm of that intent. T1 records it.
func (r *Run) firstPoint() string {
	if r.Payment.IntentID == nil {
		return PaymentRecorded
	}
	return IntentRecorded
}

// createCall makes the order's n-th PaymentIntent. No caller asked for it, so the
// key is made from our own ids.
func (r *Run) createCall() calls.Call {
	p := r.Payment
	key := p.TenantID + ":" + p.OrderID + ":intent:" + strconv.Itoa(int(p.IntentNumber))
	params := []string{strconv.FormatInt(p.AmountMinor, 10), p.Currency}
	if p.ManualCapture {
		params = append(params, "manual")
	}
	return calls.New(stripe.OpCreateIntent, p.OrderID, key, params...)
}

// confirmCall moves the money, so it carries the caller's key, scoped by tenant and operation: two tenants
// can never meet, and an operator who knows the key finds the payment in Stripe's dashboard.
func (r *Run) confirmCall() calls.Call { return r.confirmCallOn(orEmpty(r.Payment.IntentID)) }

func (r *Run) confirmCallOn(intentID string) calls.Call {
	p := r.Payment
	return calls.New(stripe.OpConfirm, p.ID, r.confirmKey(), intentID, p.PaymentMethod)
}

func (r *Run) confirmKey() string {
	return r.Payment.TenantID + ":" + r.Payment.IdempotencyKey + ":confirm"
}

// runPayment takes a payment from its last recovery point to its answer.
func (s *Service) runPayment(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	r, carried := c.Carry.(*Run)
	for {
		if !carried {
			var err error
			if r, err = s.ReadRun(ctx, c.TenantID, c.ResourceID, s.answerPayment()); err != nil {
				return idempotency.Answer{}, err
			}
		}
		answer, err := s.Advance(ctx, c, r)
		switch {
		case err == nil && answer.Status == 0:
			panic(fmt.Sprintf("bug: a payment cannot resume from %q", c.RecoveryPoint()))
		case err == nil, errors.Is(err, idempotency.ErrLeaseLost):
			return answer, err
		case !errors.Is(err, ErrMoved):
			// The payment is recorded and will be finished, so the answer is 202,
			// even if the claim cannot be given back.
			c.Log().Error("payment interrupted", "error", err.Error())
			return s.Wait(ctx, c, r, err)
		}
		carried = false // Another operation changed the payment or its order. Read them again.
	}
}

// Advance is the payment's life on one screen: from its last recovery point to its end. A step that
// returns no answer has moved the recovery point; one that returns an answer is done for now.
// Without an answer, the payment has ended and the operation that it is a step of continues.
func (s *Service) Advance(ctx context.Context, c *idempotency.Claim, r *Run) (answer idempotency.Answer, err error) {
	if r.Ended() {
		return r.ending.Finish(ctx, c, r, Settlement{Status: r.Payment.Status, AlreadyStored: true})
	}
	for answer.Status == 0 && err == nil {
		switch c.RecoveryPoint() {
		case PaymentRecorded:
			answer, err = s.createIntent(ctx, c, r)
		case IntentRecorded:
			answer, err = s.confirm(ctx, c, r)
		case ActionRequired:
			answer, err = s.awaitCustomer(ctx, c, r)
		default:
			return c.Answer(), nil
		}
	}
	return answer, err
}

// Ended reports whether another operation has ended the payment: the customer canceled it, or its order.
func (r *Run) Ended() bool {
	return r.Payment.Status != db.PaymentStatusProcessing && r.Payment.Status != db.PaymentStatusRequiresAction
}

// createIntent makes the order's PaymentIntent. Until it is confirmed no money
// can move, so everything here may be abandoned and started over.
func (s *Service) createIntent(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	intent := stripe.NewIntent{
		TenantID: r.Payment.TenantID, OrderID: r.Order.ID, AmountMinor: r.Payment.AmountMinor,
		Currency: r.Payment.Currency, ManualCapture: r.Payment.ManualCapture,
	}
	if r.Payment.IntentNumber > 1 {
		if answer, stays, err := s.endEarlier(ctx, c, r); stays || err != nil {
			return answer, err
		}
	}
	if r.beforeLife {
		if answer, stays, err := s.accountForLostLife(ctx, c, r); stays || err != nil {
			return answer, err
		}
	}
	call := r.createCall()
	out, attempts, err := s.calls.Make(ctx, c, call, &r.recorded,
		func(ctx context.Context, call stripe.Call) stripe.Outcome {
			return s.gateway.CreateIntent(ctx, call, intent)
		})
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Done:
		return idempotency.Answer{}, s.recordIntent(ctx, c, r, IntentRecorded, out)
	}
	return s.createUnanswered(ctx, c, r, out, attempts)
}

// recordIntent is T1b: it stores the intent's id and records its confirm.
func (s *Service) recordIntent(
	ctx context.Context, c *idempotency.Claim, r *Run, point string, out stripe.Outcome,
) error {
	create := r.createCall()
	err := c.Statement(ctx, point, func() error {
		_, err := s.statements.PaymentIntentRecord.Do(ctx, recordRow{
			Claim: c, Point: point, PaymentID: r.Payment.ID, OrderID: r.Payment.OrderID, IntentID: out.Intent.ID,
			StripeRequestID: out.RequestID, Create: create,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("record the intent of payment %s: %w", r.Payment.ID, err)
	}
	r.Payment.IntentID, r.recorded = &out.Intent.ID, true
	return nil
}

// confirm moves the money. Unless it was recorded in this very run, it may have
// been sent before, so then the intent is read first.
func (s *Service) confirm(ctx context.Context, c *idempotency.Claim, r *Run) (idempotency.Answer, error) {
	if !r.recorded {
		if answer, done, err := s.confirmedBefore(ctx, c, r); done || err != nil {
			return answer, err
		}
	}
	call := r.confirmCall()
	out, attempts, err := s.calls.Make(ctx, c, call, &r.recorded,
		func(ctx context.Context, call stripe.Call) stripe.Outcome {
			// The money moves here, or is reserved. No transaction is open.
			call.WithCharge = r.Payment.ManualCapture // it says when the authorization expires
			return s.gateway.ConfirmIntent(ctx, call, *r.Payment.IntentID, r.Payment.PaymentMethod)
		})
	switch {
	case err != nil:
		return idempotency.Answer{}, err
	case out.Effect == stripe.Done && out.Intent.Status == stripe.IntentSucceeded && !out.Replayed:
		return s.settlePaid(ctx, c, r, out)
	case out.Effect == stripe.Refused:
		return r.ending.Finish(ctx, c, r, Settlement{
			Status: db.PaymentStatusFailed, Failure: out.Failure, Declined: out.Declined,
			ClosesIntent: out.NoSuchIntent(), Call: call, Outcome: out,
		})
	}
	return s.confirmUndecided(ctx, c, r, out, attempts)
}

// paymentAnswer is the Ending of POST /v1/payments: the payment's end is the answer to its key.
type paymentAnswer struct{ *Service }

func (s *Service) answerPayment() Ending { return paymentAnswer{s} }

// Finish implements Ending.
func (s paymentAnswer) Finish(
	ctx context.Context, c *idempotency.Claim, r *Run, e Settlement,
) (idempotency.Answer, error) {
	switch {
	case e.PaidBy != nil:
		return s.finishPaidBy(ctx, c, r, e)
	case e.AlreadyStored, e.Status == db.PaymentStatusSucceeded && r.Order.Status != db.OrderStatusOpen:
		return s.finishOtherwise(ctx, c, r, e)
	case e.Status == db.PaymentStatusAuthorized, e.Status == db.PaymentStatusSucceeded && r.Payment.ManualCapture:
		return s.finishAuthorized(ctx, c, r, e)
	}
	return s.finish(ctx, c, r, e)
}

// finish is T2: the outcome, the order's new state, the events and the answer,
// in one statement under the fence.
func (s *Service) finish(
	ctx context.Context, c *idempotency.Claim, r *Run, e Settlement,
) (idempotency.Answer, error) {
	after, order := r.After(e), r.Order
	shown := PaymentOf(after)
	row := finishRow{
		Claim: c, Before: r.Payment, After: after, OrderVersion: order.Version, Settlement: e,
		PaymentEvent: PaymentEvent("payment."+string(after.Status), after).Data, Traceparent: tracing.Traceparent(ctx),
	}
	if e.Status == db.PaymentStatusSucceeded {
		order.Status, order.Version, order.PaymentID = db.OrderStatusPaid, order.Version+1, &after.ID
		row.OrderEvent = OrderEvent("order.paid", order).Data
	}
	answer := s.finalAnswer(shown, e, c.RequestID)
	err := c.FinishStatement(ctx, answer, func(a idempotency.Encoded) error {
		row.Answer = a
		_, err := s.statements.PaymentFinish.Do(ctx, row)
		if errors.Is(err, postgres.ErrNoRows) {
			if moved := s.whyNotFinished(ctx, c, r); moved != nil {
				return moved
			}
		}
		return err
	})
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("finish payment %s: %w", after.ID, err)
	}
	c.Log().Info("payment finished", "payment_id", after.ID, "status", string(after.Status), "stripe_request_id",
		e.Outcome.RequestID)
	return c.Answer(), nil
}

// After is the payment's row as its end will leave it.
func (r *Run) After(e Settlement) db.Payment {
	p := r.Payment
	p.Status, p.Version, p.NextAction, p.IntentClosed = e.Status, p.Version+1, nil, e.ClosesIntent
	if e.ChargeID != "" {
		p.ChargeID = &e.ChargeID
	} else if e.Outcome.Intent.ChargeID != "" {
		p.ChargeID = &e.Outcome.Intent.ChargeID
	}
	switch {
	case e.Status == db.PaymentStatusAuthorized:
		p.CaptureBefore = &e.Outcome.Intent.CaptureBefore
	case e.Status == db.PaymentStatusSucceeded && p.ManualCapture: // captured by others, before it was seen here
		p.CapturedMinor = &e.Outcome.Intent.ReceivedMinor
	case e.Status == db.PaymentStatusFailed:
		p.FailureCode, p.FailureMessage = &e.Failure.Code, postgres.Nullable(e.Failure.Message)
		p.FailureDeclineCode = postgres.Nullable(e.Failure.DeclineCode)
	}
	return p
}

// finalAnswer is what the caller gets from now on.
func (s *Service) finalAnswer(p Payment, e Settlement, requestID string) idempotency.Answer {
	if p.Status == db.PaymentStatusSucceeded || p.Status == db.PaymentStatusAuthorized {
		return s.answers.Object(http.StatusCreated, "/v1/payments/"+p.ID, p)
	}
	return s.answers.Problem(&PaymentError{Payment: p, Declined: e.Declined}, requestID)
}

// Pending shows the present state to a client that asks before the end.
func (s paymentAnswer) Pending(_ context.Context, _ *idempotency.Claim, r *Run) idempotency.Answer {
	return s.answers.Object(http.StatusAccepted, "/v1/payments/"+r.Payment.ID, s.shown(r.Payment))
}
