package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// The definite refusals. The HTTP edge has a problem document for each.
var (
	ErrNotFound             = errors.New("no such object of this tenant")
	ErrPaymentInProgress    = errors.New("another payment of the order is in progress")
	ErrOrderAlreadyPaid     = errors.New("the order is paid")
	ErrOrderNotPayable      = errors.New("the order is canceled")
	ErrOrderNotCancelable   = errors.New("the order is paid")
	ErrPaymentNotCancelable = errors.New("only a payment that waits for the customer can be canceled")
	ErrStripeUnavailable    = errors.New("Stripe does not answer; no new payment is begun")
)

// PaymentError says that a payment has definitely failed.
type PaymentError struct {
	Payment  Payment
	Declined bool      // by the issuer; otherwise it failed for another reason
	Checkout *Checkout // the checkout it was a step of, or nil
}

func (e *PaymentError) Error() string {
	if e.Declined {
		return "the issuer declined the payment"
	}
	return "the payment failed"
}

// InvalidError is an invalid request that the edge's own validation cannot
// recognise. Nothing was stored.
type InvalidError struct {
	Pointer string // RFC 6901, into the request's body
	Message string
}

func (e *InvalidError) Error() string { return e.Message }

// Answers turns outcomes into responses. The HTTP edge implements it; this package
// decides what happened, not how it is worded.
type Answers interface {
	// Object is a success that shows an object. location may be empty.
	Object(status int, location string, object any) idempotency.Answer
	// Problem is an error of this package as a problem document.
	Problem(err error, requestID string) idempotency.Answer
}

// Options of New.
type Options struct {
	StripeTimeout time.Duration // deadline of one attempt
	ActionTimeout time.Duration // how long a payment may wait for its customer
	Metrics       *Metrics      // may be nil
	Log           *slog.Logger
}

// Service carries out what the API offers. It holds no state of its own.
type Service struct {
	pool    *postgres.Pool
	keys    *idempotency.Store
	gateway Gateway
	answers Answers
	o       Options
}

// New returns the service. It starts nothing.
func New(pool *postgres.Pool, keys *idempotency.Store, gateway Gateway, answers Answers, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return &Service{pool: pool, keys: keys, gateway: gateway, answers: answers, o: o}
}

// Names of the operations, as the table of keys holds them.
const (
	CreateOrder   = "create_order"
	CancelOrder   = "cancel_order"
	CreatePayment = "create_payment"
	CancelPayment = "cancel_payment"
	CreateRefund  = "create_refund"
	RefundOrder   = "refund_order" // no caller asked for it: the payment came too late for its order

	RefundByOperator = "operator_refund" // an operator asked for it, not the tenant

	CreateCheckout = "create_checkout"
)

// Operations is everything a request can start. The API and the completer are
// given the same map: whatever the one can start, the other can finish.
func (s *Service) Operations() map[string]idempotency.Operation {
	return map[string]idempotency.Operation{
		CreateOrder:   {Begin: s.beginOrder, Run: neverRuns},
		CancelOrder:   {Begin: s.beginCancelOrder, Run: s.runCancelOrder},
		CreatePayment: {Begin: s.beginPayment, Run: s.runPayment},
		CancelPayment: {Begin: s.beginCancelPayment, Run: s.runCancelPayment},
		CreateRefund:  {Begin: s.beginRefund, Run: s.runRefund},
		RefundOrder:   {Run: s.runRefund},
		SweepIntent:   {Run: s.runSweep},

		RefundByOperator: {Run: s.runRefund},
		RefundGhost:      {Run: s.runGhostRefund},

		CreateCheckout: {Begin: s.beginCheckout, Run: s.runCheckout},
	}
}

// neverRuns is the Run of an operation that finishes in its first phase.
func neverRuns(_ context.Context, c *idempotency.Claim) (idempotency.Answer, error) {
	panic(fmt.Sprintf("bug: %s has no second phase, but is at %q", c.Operation, c.RecoveryPoint()))
}

// refuse stores a definite refusal as the answer to a fresh key.
func (s *Service) refuse(ctx context.Context, r idempotency.Request, resourceID string, refusal error) (*idempotency.Claim, idempotency.Answer, error) {
	answer, err := s.keys.BeginFinished(ctx, r, resourceID, func(*db.Queries) (idempotency.Answer, error) {
		return s.answers.Problem(refusal, r.RequestID), nil
	})
	return nil, answer, err
}

// decode reads a request that this program encoded itself.
func decode[T any](body []byte) T {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		panic("bug: a stored request does not decode: " + err.Error())
	}
	return v
}

// now is for timestamps that people read (created_at), to the precision they see.
// The only decision that depends on it is whether a refund is looked for before it
// is sent.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
