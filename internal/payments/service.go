package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/calls"
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
	ErrPaymentNotCancelable = errors.New(
		"only a payment that waits for the customer or is authorized can be canceled")
)

// ErrOrderAuthorized is ErrPaymentInProgress for an order whose payment waits for its capture or cancel, maybe for days.
var ErrOrderAuthorized = fmt.Errorf("%w: it is authorized", ErrPaymentInProgress)

// ErrMoved says that a payment or its order has changed since it was read.
var ErrMoved = fmt.Errorf("the payment: %w", idempotency.ErrRowChanged)

// PaymentError says that a payment has definitely failed.
type PaymentError struct {
	Payment  Payment
	Declined bool // by the issuer; otherwise it failed for another reason
}

func (e *PaymentError) Error() string {
	if e.Declined {
		return "the issuer declined the payment"
	}
	return "the payment failed"
}

// InvalidError is an invalid request that the edge's own validation cannot recognise. Nothing was stored.
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
	Log           *slog.Logger
	// Registered are operations that are not this package's and that charge cards of their own, by name.
	Registered map[string]Registered
	// Disputes may be nil: then only Stripe refuses to refund a disputed payment.
	Disputes Disputes
}

// Service carries out what the API offers. It holds no state of its own but who waits in this process, and what begins.
type Service struct {
	pool       *postgres.Pool
	keys       *idempotency.Store
	gateway    Gateway
	calls      calls.Recorder
	answers    Answers
	o          Options
	statements statements
	turns      *refundTurns
	beginning  sync.Map // the orders whose first payments are being recorded: orderKey
}

// New returns the service. It starts nothing.
func New(pool *postgres.Pool, keys *idempotency.Store, gateway Gateway, answers Answers, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		pool: pool, keys: keys, gateway: gateway, calls: calls.NewRecorder(pool), answers: answers, o: o,
		statements: newStatements(pool), turns: newRefundTurns(),
	}
}

// Names of the operations, as the table of keys has them.
const (
	CreateOrder    = "create_order"
	CancelOrder    = "cancel_order"
	CreatePayment  = "create_payment"
	CancelPayment  = "cancel_payment"
	CapturePayment = "capture_payment"
	CreateRefund   = "create_refund"
	RefundOrder    = "refund_order" // no caller asked for it: the payment came too late for its order
)

// refuse stores a definite refusal as the answer to a fresh key.
func (s *Service) refuse(
	ctx context.Context, r idempotency.Request, resourceID string, refusal error,
) (*idempotency.Claim, idempotency.Answer, error) {
	answer, err := s.keys.BeginFinished(ctx, r, resourceID, func(*db.Queries) (idempotency.Answer, error) {
		return s.answers.Problem(refusal, r.RequestID), nil
	})
	return nil, answer, err
}

// notFound is ErrNotFound for a row that does not exist, else the error with its context.
func notFound(err error, format string, args ...any) error {
	if errors.Is(err, postgres.ErrNoRows) {
		return ErrNotFound
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
