package checkout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// A checkout is a saga: create the order, reserve the stock, pay, notify. Not all of
// that can be rolled back, so each step has a compensation, and when a step
// definitely fails the steps before it are compensated, last first.
//
// With capture: manual it reserves the money before the stock, and takes it after:
// create the order, authorize, reserve the stock, capture, notify (capture.go). What
// fails before the capture costs no refund: the money is released.
//
// The whole saga is recorded before any of it is done: one row per step and per
// compensation, in the transaction that claims the caller's key. A step whose effect
// is in this database is done in the transaction that says so, and is never seen
// running. The payment, whose effect is at Stripe, is running before its first call
// is sent, and unknown for as long as its outcome is. While it is either, nothing is
// compensated: if a late answer were taken for a failure, we would have money without
// an order. The database refuses that, too (no_compensation_before_outcome_is_known).
//
// There is no coordinator that could die with the plan in its memory. Whoever holds
// the claim on the key reads the state of the saga and goes on: the request that
// began it, a retry, the completer. The checkout is the key's resource, so a retry
// finds it and cannot begin a second one.

// Request is what POST /v1/checkouts asks for, decoded and validated.
type Request struct {
	Currency          string          `json:"currency"`
	Items             []payments.Item `json:"items"`
	PaymentMethod     string          `json:"payment_method"`
	CustomerReference *string         `json:"customer_reference"`
	// ManualCapture reserves the money first, and takes it once the stock is reserved.
	ManualCapture bool `json:"manual_capture,omitempty"`
}

// Checkout is the saga as the API shows it.
type Checkout struct {
	ID        string                   `json:"id"`
	Object    string                   `json:"object"`
	Status    db.CheckoutStatus        `json:"status"`
	Capture   payments.Capture         `json:"capture"`
	OrderID   *string                  `json:"order_id"`
	PaymentID *string                  `json:"payment_id"`
	Steps     []Step                   `json:"steps"`
	Failure   *payments.PaymentFailure `json:"failure"`
	CreatedAt ids.Instant              `json:"created_at"`
}

// Step is one step or one compensation.
type Step struct {
	Name      db.SagaStep       `json:"name"`
	Status    db.SagaStepStatus `json:"status"`
	Attempts  int32             `json:"attempts"`
	UpdatedAt *ids.Instant      `json:"updated_at"`
}

// PaymentFailedError says that a checkout was compensated because its payment failed.
type PaymentFailedError struct {
	payments.PaymentError
	Checkout Checkout
}

func (e *PaymentFailedError) Unwrap() error { return &e.PaymentError }

// OutOfStockError says that a checkout could not reserve its items.
type OutOfStockError struct{ Checkout Checkout }

func (e *OutOfStockError) Error() string { return "out of stock" }

// Recovery points of create_checkout, in order. Between stockReserved and
// paymentMade stand those of a payment (pay.go). With manual capture these stand before
// paymentAuthorized, and stockReserved after it; then that of a capture (capture.go).
const (
	checkoutRecorded = "checkout_recorded" // the saga is recorded; nothing is done
	orderCreated     = "order_created"
	stockReserved    = "stock_reserved"
	paymentRefused   = "payment_refused" // its intent is not canceled yet, so it could still be paid
	paymentMade      = "payment_made"

	paymentAuthorized = "payment_authorized" // its money is reserved; the stock is not
	captureRefused    = "capture_refused"    // the intent is not canceled yet, so it could still be captured

	refundDue   = "refund_due" // from here on it goes backwards
	refundBegun = "refund_begun"
	refundOwed  = "refund_owed" // it failed; it is tried again, see payments.RetryOwedNow
	releaseDue  = "release_due"
	cancelDue   = "cancel_due"

	paymentReleaseDue   = "payment_release_due"   // the stock is released
	paymentReleaseBegun = "payment_release_begun" // the intent may be canceled already
	paymentRefundBegun  = "payment_refund_begun"  // others captured it first, so the money is given back
	paymentRefundOwed   = "payment_refund_owed"   // that failed, as at refundOwed
)

// saga is what a run of create_checkout works on: the saga as it was read
// or written last.
type saga struct {
	request Request
	row     db.Checkout
	steps   []db.CheckoutStep
	run     *payments.Run // of the pay step; nil: to be read
	// captures is the payment as the phase that has just recorded its capture left it; nil: to be read.
	captures *db.Payment
}

// begin claims the key and records the saga.
func (s *Service) begin(ctx context.Context, r idempotency.Request) (*idempotency.Claim, idempotency.Answer, error) {
	admitted, err := s.gateway.Ready(ctx, r.TenantID)
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	defer admitted()
	k := newSaga(r)
	claim, err := s.keys.Begin(ctx, r, k.row.ID, checkoutRecorded, func(q *db.Queries) error {
		return q.CheckoutInsert(ctx, db.CheckoutInsertParams{
			TenantID: r.TenantID, ID: k.row.ID, IdempotencyKey: r.Key, CreatedAt: k.row.CreatedAt,
			Steps: k.names(),
		})
	})
	if err != nil {
		return nil, idempotency.Answer{}, err
	}
	claim.Carry = k
	return claim, idempotency.Answer{}, nil
}

func newSaga(r idempotency.Request) *saga {
	id := ids.New(ids.Checkout)
	k := &saga{
		request: idempotency.Decode[Request](r.Body),
		row: db.Checkout{TenantID: r.TenantID, ID: id, Status: db.CheckoutStatusProcessing, IdempotencyKey: r.Key,
			CreatedAt: ids.Time(id)},
	}
	for _, step := range stepsOf(k.request) {
		k.steps = append(k.steps, db.CheckoutStep{
			TenantID: r.TenantID, CheckoutID: k.row.ID, Step: step, Status: db.SagaStepStatusPending,
		})
	}
	return k
}

// stepsOf are the steps and compensations of a checkout, in their order.
func stepsOf(r Request) []db.SagaStep {
	if r.ManualCapture {
		return []db.SagaStep{
			db.SagaStepCreateOrder, db.SagaStepAuthorize, db.SagaStepReserveStock, db.SagaStepCapture, db.SagaStepNotify,
			db.SagaStepRefund, db.SagaStepReleaseStock, db.SagaStepReleasePayment, db.SagaStepCancelOrder,
		}
	}
	return []db.SagaStep{
		db.SagaStepCreateOrder, db.SagaStepReserveStock, db.SagaStepPay, db.SagaStepNotify,
		db.SagaStepRefund, db.SagaStepReleaseStock, db.SagaStepCancelOrder,
	}
}

func (k *saga) names() (names []string) {
	for _, step := range k.steps {
		names = append(names, string(step.Step))
	}
	return names
}

// pays is the step that confirms the PaymentIntent.
func (k *saga) pays() db.SagaStep {
	if k.request.ManualCapture {
		return db.SagaStepAuthorize
	}
	return db.SagaStepPay
}

// takes is the step that takes the money. The stock is reserved before it and, once it has begun, does not expire.
func (k *saga) takes() db.SagaStep {
	if k.request.ManualCapture {
		return db.SagaStepCapture
	}
	return db.SagaStepPay
}

// dueUnpaid is where a checkout goes whose payment failed: with manual capture nothing is reserved by then.
func (k *saga) dueUnpaid() string {
	if k.request.ManualCapture {
		return cancelDue
	}
	return releaseDue
}

// dueUnreserved is where a checkout goes that holds no stock, or none any more.
func (k *saga) dueUnreserved() string {
	if k.request.ManualCapture {
		return paymentReleaseDue
	}
	return cancelDue
}

// run takes a checkout from its last recovery point to its answer.
func (s *Service) run(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	k, err := s.resume(ctx, c)
	if err != nil {
		return idempotency.Answer{}, err
	}
	answer, err := s.advance(ctx, c, k)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		// The saga is recorded and will be finished, so the answer is 202, even if
		// the claim cannot be given back.
		c.Log().Error("checkout interrupted", "error", err.Error())
		return s.wait(ctx, c, k, idempotency.NextTry(c), err)
	}
	return answer, err
}

// advance is the saga on one screen. A step that returns no answer has moved
// the recovery point; one that returns an answer is done for now.
func (s *Service) advance(ctx context.Context, c *idempotency.Claim, k *saga) (answer idempotency.Answer, err error) {
	for answer.Status == 0 && err == nil {
		switch c.RecoveryPoint() {
		case checkoutRecorded:
			err = s.createOrderStep(ctx, c, k)
		case orderCreated:
			if k.request.ManualCapture {
				answer, err = s.beginPayStep(ctx, c, k)
			} else {
				err = s.reserveStockStep(ctx, c, k)
			}
		case paymentAuthorized:
			err = s.reserveStockStep(ctx, c, k)
		case stockReserved:
			if k.request.ManualCapture {
				answer, err = s.beginCaptureStep(ctx, c, k)
			} else {
				answer, err = s.beginPayStep(ctx, c, k)
			}
		case payments.PaymentRecorded, payments.IntentRecorded, payments.ActionRequired:
			answer, err = s.pay(ctx, c, k, s.payments.Advance)
		case paymentRefused:
			answer, err = s.pay(ctx, c, k, s.callOff(k))
		case payments.CaptureRecorded:
			answer, err = s.captureStep(ctx, c, k)
		case captureRefused:
			answer, err = s.callOffCapture(ctx, c, k)
		case paymentMade:
			answer, err = s.notifyStep(ctx, c, k)

		case refundDue:
			err = s.beginRefundStep(ctx, c, k)
		case refundBegun, refundOwed:
			answer, err = s.awaitRefundStep(ctx, c, k)
		case releaseDue:
			err = s.releaseStockStep(ctx, c, k)
		case paymentReleaseDue:
			err = s.beginReleasePaymentStep(ctx, c, k)
		case paymentReleaseBegun:
			answer, err = s.releasePaymentStep(ctx, c, k)
		case paymentRefundBegun, paymentRefundOwed:
			answer, err = s.awaitRefundOfRelease(ctx, c, k)
		case cancelDue:
			answer, err = s.cancelOrderStep(ctx, c, k)

		default:
			panic(fmt.Sprintf("bug: a checkout cannot resume from %q", c.RecoveryPoint()))
		}
	}
	return answer, err
}

// resume reads the saga, and counts an attempt of the step that was running
// when the previous run ended.
func (s *Service) resume(ctx context.Context, c *idempotency.Claim) (*saga, error) {
	if k, ok := c.Carry.(*saga); ok {
		return k, nil
	}
	_, err := s.pool.CheckoutStepsResume(ctx, db.CheckoutStepsResumeParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, CheckoutID: c.ResourceID,
	})
	if err != nil {
		return nil, fmt.Errorf("resume checkout %s: %w", c.ResourceID, err)
	}
	k := &saga{request: idempotency.Decode[Request](c.Request)}
	k.row, k.steps, err = read(ctx, s.pool.Queries, c.TenantID, c.ResourceID)
	return k, err
}

func read(
	ctx context.Context, q *db.Queries, tenantID, id string,
) (row db.Checkout, steps []db.CheckoutStep, err error) {
	rows, err := q.CheckoutGet(ctx, db.CheckoutGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return row, nil, fmt.Errorf("read checkout %s: %w", id, err)
	}
	if len(rows) == 0 {
		return row, nil, payments.ErrNotFound
	}
	for _, r := range rows {
		steps = append(steps, r.CheckoutStep)
	}
	return rows[0].Checkout, steps, nil
}

// Shown is the checkout as the API shows it. A failure is shown once it is decided: while a step of money runs or its
// outcome is unknown, the payment may still succeed.
func Shown(row db.Checkout, steps []db.CheckoutStep) Checkout {
	o := Checkout{
		ID: row.ID, Object: "checkout", Status: row.Status, OrderID: row.OrderID, PaymentID: row.PaymentID,
		Steps: make([]Step, len(steps)), CreatedAt: ids.Instant(row.CreatedAt), Capture: payments.CaptureAutomatic,
	}
	undecided := false
	for i, step := range steps {
		o.Steps[i] = Step{
			Name: step.Step, Status: step.Status, Attempts: step.Attempts, UpdatedAt: (*ids.Instant)(step.UpdatedAt),
		}
		if step.Step == db.SagaStepAuthorize {
			o.Capture = payments.CaptureManual
		}
		ofMoney := step.Step == db.SagaStepPay || step.Step == db.SagaStepAuthorize || step.Step == db.SagaStepCapture
		undecided = undecided || ofMoney &&
			(step.Status == db.SagaStepStatusRunning || step.Status == db.SagaStepStatusUnknown)
	}
	if row.FailureCode != nil && !undecided { // Until the intent is canceled the payment, or its capture, may still succeed.
		o.Failure = &payments.PaymentFailure{
			Code: *row.FailureCode, DeclineCode: row.FailureDeclineCode, Message: *row.FailureMessage,
		}
	}
	return o
}

// step is a step's row, as last read.
func (k *saga) step(name db.SagaStep) db.CheckoutStep {
	for _, step := range k.steps {
		if step.Step == name {
			return step
		}
	}
	panic("bug: a checkout without the step " + string(name))
}

// move moves a step on, in the phase of q.
func (k *saga) move(ctx context.Context, q *db.Queries, step db.SagaStep, to db.SagaStepStatus) error {
	return MoveStep(ctx, q, k.row.TenantID, k.row.ID, step, to)
}

// MoveStep moves a step of a checkout on. It fails if the step has ended: what was read of the step is old by then.
func MoveStep(ctx context.Context, q *db.Queries, tenantID, id string, step db.SagaStep, to db.SagaStepStatus) error {
	n, err := q.CheckoutStepAdvance(ctx, db.CheckoutStepAdvanceParams{
		TenantID: tenantID, CheckoutID: id, Step: step, Status: to,
	})
	if err == nil && n == 0 {
		err = errors.New("it has ended already")
	}
	if err != nil {
		return fmt.Errorf("move step %s of checkout %s to %s: %w", step, id, to, err)
	}
	return nil
}

// end ends the saga, appends its event and returns the object for the answer.
func (k *saga) end(ctx context.Context, q *db.Queries, status db.CheckoutStatus) (Checkout, error) {
	err := q.CheckoutEnd(ctx, db.CheckoutEndParams{TenantID: k.row.TenantID, ID: k.row.ID, Status: status})
	if err != nil {
		return Checkout{}, fmt.Errorf("end checkout %s: %w", k.row.ID, err)
	}
	row, steps, err := read(ctx, q, k.row.TenantID, k.row.ID)
	if err != nil {
		return Checkout{}, err
	}
	object := Shown(row, steps)
	return object, outbox.Append(ctx, q, outbox.Event{
		TenantID: row.TenantID, AggregateID: row.ID, Version: row.Version, Type: "checkout." + string(status),
		Data: outbox.Data(object),
	})
}

// wait gives the claim back for a while and answers with the present state. What is not resolved in time is parked; the
// refund of a compensation may take the bank weeks, or an operator, if it is owed.
func (s *Service) wait(
	ctx context.Context, c *idempotency.Claim, k *saga, pause time.Duration, why error,
) (idempotency.Answer, error) {
	interim := s.saveProgress(ctx, c, k)
	limit := idempotency.ParkAfter
	switch c.RecoveryPoint() {
	case refundBegun, refundOwed, paymentRefundBegun, paymentRefundOwed:
		limit = payments.RefundPendingMax
	}
	return interim, c.YieldUntil(ctx, limit, pause, why)
}

// saveProgress records the state of the running step and shows the saga. If the
// database cannot be reached it shows what was last known.
func (s *Service) saveProgress(ctx context.Context, c *idempotency.Claim, k *saga) idempotency.Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), standsWithin)
	defer cancel()
	own := k.row.TenantID + ":" + k.row.IdempotencyKey
	keys := []string{own + ":confirm", own + ":capture"}
	if k.row.OrderID != nil {
		keys = append(keys, payments.AutomaticStripeKeys(k.row.TenantID, *k.row.OrderID)...)
	}
	_, err := s.pool.CheckoutStepSuspend(ctx, db.CheckoutStepSuspendParams{
		TenantID: c.TenantID, Key: c.Key, LeaseToken: c.Token, CheckoutID: k.row.ID, StripeKeys: keys,
	})
	if err == nil {
		var row db.Checkout
		var steps []db.CheckoutStep
		if row, steps, err = read(ctx, s.pool.Queries, c.TenantID, k.row.ID); err == nil {
			k.row, k.steps = row, steps
		}
	}
	if err != nil {
		c.Log().Warn("the state of the checkout could not be recorded", "error", err.Error())
	}
	return s.answers.Object(http.StatusAccepted, "/v1/checkouts/"+k.row.ID, Shown(k.row, k.steps))
}
