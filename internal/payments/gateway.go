package payments

import (
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/payonce/db"
)

// Gateway is what this package needs from a payment provider. Every method makes one
// attempt, with one deadline, and no retries behind its caller's back.
type Gateway interface {
	// Ready reports whether a new payment may be begun; ErrStripeUnavailable if
	// not. What was begun before goes on either way.
	Ready(ctx context.Context) error
	// CreateIntent makes a PaymentIntent, unconfirmed: no money moves.
	CreateIntent(ctx context.Context, call Call, intent NewIntent) Outcome
	// ConfirmIntent moves the money.
	ConfirmIntent(ctx context.Context, call Call, intentID, paymentMethod string) Outcome
	// CancelIntent makes sure that no money can move any more.
	CancelIntent(ctx context.Context, call Call, intentID string) Outcome
	// GetIntent reads an intent. ErrNoSuchObject: the account has no such intent.
	GetIntent(ctx context.Context, intentID string) (Intent, error)
	// CreateRefund gives money back.
	CreateRefund(ctx context.Context, call Call, refund NewRefund) Outcome
	// RefundsOf lists every refund of an intent.
	RefundsOf(ctx context.Context, intentID string) ([]StripeRefund, error)
	// ListIntents and ListRefunds list what was created in a window, newest first,
	// one page at a time.
	ListIntents(ctx context.Context, w Window) (Page[Intent], error)
	ListRefunds(ctx context.Context, w Window) (Page[StripeRefund], error)
	// SearchIntents finds an order's intents by their metadata, however old. Its
	// results may be an hour old, and not every account has it. It is a shortcut:
	// what it does not show is looked for in ListIntents.
	SearchIntents(ctx context.Context, tenantID, orderID string) ([]Intent, error)
}

// Window is what was created since From and not after Until, by Stripe's clock.
type Window struct {
	From  time.Time
	Until time.Time // zero: until now
	After string    // the last id of the page before; empty: from the newest
}

// Page is a part of a list. The next one begins after the last id of this one.
type Page[T any] struct {
	Objects []T
	More    bool
}

// ErrNoSuchObject says that Stripe answered and has no object with that id.
var ErrNoSuchObject = errors.New("no such object at Stripe")

// ErrNotShown says that Stripe answered and refuses to show the object. Asking again
// will not help; any other error may pass.
var ErrNotShown = errors.New("Stripe does not show the object")

// Call is one attempt under a Stripe idempotency key.
type Call struct {
	Key string
	// InDoubt says that an earlier attempt under the key ended without a definite
	// answer. Then a refusal of this attempt proves nothing about the earlier one,
	// unless it is a replay.
	InDoubt bool
}

// NewIntent is a PaymentIntent to be made. Nothing in it changes between two
// attempts: Stripe compares the parameters.
type NewIntent struct {
	TenantID, OrderID string
	AmountMinor       int64
	Currency          string
}

// Intent is what we need to know about a PaymentIntent.
type Intent struct {
	ID             string
	Status         IntentStatus
	AmountMinor    int64
	Currency       string
	PaymentMethod  string   // the last one tried
	ChargeID       string   // the latest charge, failed ones included
	NextAction     []byte   // JSON for the client, while the customer must act
	LastFailure    *Failure // why the last attempt to pay failed
	LastIsDecline  bool     // the last attempt was declined, by the issuer or the customer
	TenantID       string   // from the metadata
	OrderID        string
	RefundedMinor  int64
	CreatedAt      time.Time
	ReceivedMinor  int64
	CanceledReason string
}

// StripeRefund is what we need to know about a refund at Stripe.
type StripeRefund struct {
	ID          string
	Status      db.RefundStatus // pending includes every status that is not final
	FailureCode string
	IntentID    string
	AmountMinor int64
	Currency    string
	TenantID    string // from the metadata or, in ListRefunds, from the intent's; so is OrderID
	OrderID     string
	PaymentID   string // from the metadata, like RefundID
	RefundID    string
	CreatedAt   time.Time
}

// IntentStatus is Stripe's status of a PaymentIntent.
type IntentStatus string

// The statuses of a PaymentIntent that can occur without manual capture.
const (
	IntentRequiresPaymentMethod IntentStatus = "requires_payment_method"
	IntentRequiresConfirmation  IntentStatus = "requires_confirmation"
	IntentRequiresAction        IntentStatus = "requires_action"
	IntentProcessing            IntentStatus = "processing"
	IntentSucceeded             IntentStatus = "succeeded"
	IntentCanceled              IntentStatus = "canceled"
)

// NewRefund is a refund to be made. Nothing in it changes between two attempts.
type NewRefund struct {
	IntentID                               string
	AmountMinor                            int64
	Reason                                 *string
	TenantID, OrderID, PaymentID, RefundID string // its metadata, by which it is found again
}

// Verdict answers the one question about a call: did it happen?
type Verdict int

const (
	// Unknown: it may have happened. Never stored as an answer, never a failure.
	Unknown Verdict = iota
	// Done: it did.
	Done
	// Refused: it did not, and the same call never will.
	Refused
	// NotExecuted: it did not, and the same call may be sent again.
	NotExecuted
	// Conflict: refused in a way that proves nothing, because the refusal may be
	// caused by our own earlier success, or says nothing about an earlier attempt.
	// Read the object.
	Conflict
)

// Failure is why a payment failed, in words a caller may see.
type Failure struct {
	Code        string
	DeclineCode string // empty: the issuer gave none
	Message     string
}

// Outcome is the outcome of one attempt.
type Outcome struct {
	Verdict  Verdict
	Intent   Intent       // of Done, as the answer showed it
	Refund   StripeRefund // likewise
	Failure  Failure      // of Refused
	Declined bool         // of Refused: by the issuer, not by Stripe or us
	Frozen   bool         // of Unknown: an error that Stripe stored and repeats under the key from now on

	HTTPStatus int    // zero: no answer
	ErrorCode  string // Stripe's
	Param      string // the parameter that Stripe complains about
	RequestID  string // Stripe's
	Replayed   bool
	Err        error // for the log; holds nothing secret
}

// noSuchIntent reports whether the account has no intent of the id that the call
// named: another account's key is in use, or Stripe has deleted its test data. Of
// a first confirm that is a definite no, and the order needs another intent. It
// says nothing of a confirm that was sent before.
func (o Outcome) noSuchIntent() bool {
	return o.HTTPStatus == http.StatusNotFound && o.ErrorCode == "resource_missing"
}

func (v Verdict) String() string {
	switch v {
	case Unknown:
		return "unknown"
	case Done:
		return "done"
	case Refused:
		return "refused"
	case NotExecuted:
		return "not_executed"
	case Conflict:
		return "conflict"
	}
	panic("bug: a verdict without a name")
}
