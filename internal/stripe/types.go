package stripe

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/payonce/db"
)

// Window is what was created since From and not after Until, by Stripe's clock.
type Window struct {
	TenantID string // for whom it is read; NoTenant: for none
	From     time.Time
	Until    time.Time // zero: until now
	After    string    // the last id of the page before; empty: from the newest
}

// Page is a part of a list. The next one begins after the last id of this one.
type Page[T any] struct {
	Objects []T
	More    bool
}

// ErrNoSuchObject says that Stripe responded and has no object with that id.
var ErrNoSuchObject = errors.New("no such object at Stripe")

// ErrNotShown says that Stripe responded and refuses to show the object. Asking again
// will not help; any other error may pass.
var ErrNotShown = errors.New("the object cannot be read at Stripe")

// ErrAway says that a read got no response about its object: Stripe did not respond, is overloaded, or rejected us
// and not the request. Asking again may help.
var ErrAway = errors.New("no usable response from Stripe")

// Call is one attempt under a Stripe idempotency key.
type Call struct {
	TenantID string // for whom it is made: the limits share the rate among tenants
	Key      string
	// InDoubt says that an earlier attempt under the key ended without a definite
	// answer. Then a refusal of this attempt proves nothing about the earlier one,
	// unless it is a replay.
	InDoubt bool
	// WithCharge asks for the charge with the intent, which a response otherwise only names.
	WithCharge bool
}

// NewIntent is a PaymentIntent to be made. Nothing in it changes between two
// attempts: Stripe compares the parameters.
type NewIntent struct {
	TenantID, OrderID string
	Operation         string // empty: a payment
	AmountMinor       int64
	Currency          string
	ManualCapture     bool // a confirm only reserves the money
}

// Intent is what we need to know about a PaymentIntent.
type Intent struct {
	ID            string
	Status        IntentStatus
	AmountMinor   int64
	Currency      string
	PaymentMethod string   // the last one tried
	ChargeID      string   // the latest charge, failed ones included
	NextAction    []byte   // JSON for the client, while the customer must act
	LastFailure   *Failure // why the last attempt to pay failed
	LastIsDecline bool     // the last attempt was declined, by the issuer or the customer
	TenantID      string   // from the metadata, like OrderID
	OrderID       string
	Charged       Order // what the charge names, whatever the intent's metadata names by now; empty: there is no charge
	// Operation names the operation that made the intent, from the metadata; empty: a
	// payment. What another operation makes is compared by that operation's own rules.
	Operation string
	// RefundedMinor is what was given back of what was captured. In a list or a response it is what the charge says, as
	// RefundedAtMost says: that includes what was released of an authorization, and perhaps refunds that have failed since,
	// of which Stripe does not say whether they are taken off again. An intent that was read on its own has the sum of its
	// refunds.
	RefundedMinor  int64
	RefundedAtMost bool
	Disputed       bool // the charge is or was disputed
	// LostMinor is what lost disputes have taken. It is not read with the intent: payments.Service.WithLost adds it.
	LostMinor      int64
	CreatedAt      time.Time
	ReceivedMinor  int64
	CanceledReason string
	ManualCapture  bool
	CaptureBefore  time.Time // when the authorization expires; zero: not shown
}

// Expired reports whether Stripe canceled the intent because its authorization was not captured in time. The reason is
// called automatic before API version 2025-03-31 and expired since
// (https://docs.stripe.com/changelog/basil/2025-03-31/remove-refund-from-partial-capture-and-payment-cancellation-flow).
func (i Intent) Expired() bool {
	return i.Status == IntentCanceled && (i.CanceledReason == "automatic" || i.CanceledReason == "expired")
}

// Order is a tenant's order that metadata names. Stripe copies an intent's metadata to a charge when it makes the
// charge, and not later, so what is edited in the one stays in the other.
type Order struct{ TenantID, OrderID string }

// Refund is what we need to know about a refund at Stripe.
type Refund struct {
	ID          string
	Status      db.RefundStatus // pending includes every status that is not final
	FailureCode string
	IntentID    string
	AmountMinor int64
	Currency    string
	TenantID    string // from the metadata; in ListRefunds from the intent's, if that has any; so is OrderID
	OrderID     string
	Charged     Order  // in ListRefunds, what the charge names
	PaymentID   string // from the metadata, like RefundID
	RefundID    string
	Reason      string // empty: none, or one that only Stripe gives
	CreatedAt   time.Time
	Released    bool // in ListRefunds: it gave nothing back (releases.go)
}

// IntentStatus is Stripe's status of a PaymentIntent.
type IntentStatus string

// The statuses of a PaymentIntent.
const (
	IntentRequiresPaymentMethod IntentStatus = "requires_payment_method"
	IntentRequiresConfirmation  IntentStatus = "requires_confirmation"
	IntentRequiresAction        IntentStatus = "requires_action"
	IntentProcessing            IntentStatus = "processing"
	IntentRequiresCapture       IntentStatus = "requires_capture" // the money is reserved
	IntentSucceeded             IntentStatus = "succeeded"
	IntentCanceled              IntentStatus = "canceled"
	// IntentRequiresReauthorization is an intent whose money was reserved, and is not any more.
	IntentRequiresReauthorization IntentStatus = "requires_reauthorization"
)

// NewRefund is a refund to be made. Nothing in it changes between two attempts.
type NewRefund struct {
	IntentID                               string
	AmountMinor                            int64
	Reason                                 *string
	TenantID, OrderID, PaymentID, RefundID string // its metadata, by which it is found again
}

// Effect says whether a call took effect at Stripe.
type Effect int

const (
	// Unknown: it may have happened. Never stored as an answer, never a failure.
	Unknown Effect = iota
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

// CodeKeyReused is the failure code of a call whose key Stripe knows with other parameters. Ours always have the
// same, so this database has forgotten an earlier call: it was restored from a copy, or shares its Stripe account
// with another.
const CodeKeyReused = "provider_key_reused"

// ErrorIdempotency is the error code that is recorded of such a call: the type of Stripe's error, which has no code.
const ErrorIdempotency = "idempotency_error"

// keyReused replaces Stripe's text, which names another intent and advises another key: with that the
// customer would be charged a second time.
const keyReused = "The payment provider knows this Idempotency-Key from an earlier request, which this service does " +
	"not have; its database may have been restored from a backup. That request may have moved money. This one has " +
	"not. Ask the operator, who finds the earlier one in the provider's dashboard by the key, before you try again."

// Outcome is the outcome of one attempt.
type Outcome struct {
	Effect      Effect
	Intent      Intent  // of Done, as the answer showed it
	Refund      Refund  // likewise
	Failure     Failure // of Refused
	Declined    bool    // of Refused: by the issuer, not by Stripe or us
	ErrorCached bool    // of Unknown: an error that Stripe stored and repeats under the key from now on

	HTTPStatus int    // zero: no response
	ErrorCode  string // Stripe's
	Param      string // the parameter that Stripe complains about
	RequestID  string // Stripe's
	Replayed   bool
	// OriginalRequestID is the id of the first request that Stripe received under the key.
	OriginalRequestID string
	Err               error // for the log; holds nothing secret
}

// NoSuchIntent reports whether the account has no intent of the id that the call
// named: another account's key is in use, or Stripe has deleted its test data. Of
// a first confirm that is a definite no, and the order needs another intent. It
// says nothing of a confirm that was sent before.
func (o Outcome) NoSuchIntent() bool {
	return o.HTTPStatus == http.StatusNotFound && o.ErrorCode == "resource_missing" &&
		(o.Param == "" || o.Param == "intent" || o.Param == "id") // and not the payment method's
}

func (v Effect) String() string {
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
	panic("bug: an effect without a name")
}

// ObjectID is the id of the object that the call made or changed; empty if none is known.
func (o Outcome) ObjectID() string {
	if o.Refund.ID != "" {
		return o.Refund.ID
	}
	return o.Intent.ID
}

// Why describes, for the operator, an attempt that did not end the call.
func (o Outcome) Why() error {
	text := o.Effect.String() + ": no response"
	if o.HTTPStatus != 0 {
		text = fmt.Sprintf("%s: status %d", o.Effect, o.HTTPStatus)
	}
	for _, more := range []string{o.ErrorCode, errText(o.Err)} {
		if more != "" {
			text += ", " + more
		}
	}
	return errors.New(text)
}

// FromRead is the outcome of a call that was settled by reading the intent.
func FromRead(intent Intent) Outcome {
	return Outcome{Effect: Done, Intent: intent, HTTPStatus: http.StatusOK}
}

// Is reports whether r is the refund of the row at Stripe: the one whose id the row has or, as long as the row is
// pending and has none, one that names the row in its metadata. Metadata can be copied, so another refund that names
// the row is another refund, and so is one that appears after ours has failed.
func (r Refund) Is(row db.Refund) bool {
	if row.StripeRefundID != nil {
		return *row.StripeRefundID == r.ID
	}
	return row.ID == r.RefundID && row.Status == db.RefundStatusPending
}

// Returns reports whether r returns what the row says: its amount, in its currency.
func (r Refund) Returns(row db.Refund) bool {
	return r.AmountMinor == row.AmountMinor && r.Currency == row.Currency
}
