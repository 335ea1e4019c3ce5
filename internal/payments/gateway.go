package payments

import (
	"context"

	"example.com/payonce/internal/stripe"
)

// Gateway is what this package needs from a payment provider; stripe.Client is it for
// Stripe. Every method makes one attempt, with one deadline, and no retries behind its caller's back.
// Two are sent again while the first request hangs, because they may be: a read of an intent, and the creation of one
// whose earlier attempt is in doubt.
type Gateway interface {
	// Ready reports whether a new payment of a tenant may be begun: stripe.ErrUnavailable if the provider is away, a
	// stripe.QueueFullError if too many of the tenant's calls wait for it. What was begun before goes on either way. The
	// caller calls recorded when the payment is recorded, or could not be.
	Ready(ctx context.Context, tenantID string) (recorded func(), err error)
	// CreateIntent makes a PaymentIntent, unconfirmed: no money moves.
	CreateIntent(ctx context.Context, call stripe.Call, intent stripe.NewIntent) stripe.Outcome
	// ConfirmIntent moves the money.
	ConfirmIntent(ctx context.Context, call stripe.Call, intentID, paymentMethod string) stripe.Outcome
	// CaptureIntent takes what a confirm has reserved, or a part of it.
	CaptureIntent(ctx context.Context, call stripe.Call, intentID string, amountMinor int64) stripe.Outcome
	// CancelIntent makes sure that no money can move any more.
	CancelIntent(ctx context.Context, call stripe.Call, intentID string) stripe.Outcome
	// GetIntent reads an intent, for a tenant or stripe.NoTenant. stripe.ErrNoSuchObject: the account has no such intent.
	GetIntent(ctx context.Context, tenantID, intentID string) (stripe.Intent, error)
	// IntentOf is the PaymentIntent of an object that a thin event names by its type and id, empty if it is of none.
	// stripe.ErrNoSuchObject: the account has no such object.
	IntentOf(ctx context.Context, kind, id string) (string, error)
	// CreateRefund gives money back.
	CreateRefund(ctx context.Context, call stripe.Call, refund stripe.NewRefund) stripe.Outcome
	// RefundsOf lists every refund of an intent, for a tenant or stripe.NoTenant, without what was released of an
	// authorization.
	RefundsOf(ctx context.Context, tenantID, intentID string) ([]stripe.Refund, error)
	// ListIntents and ListRefunds list what was created in a window, newest first, one page at a time.
	ListIntents(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Intent], error)
	ListRefunds(ctx context.Context, w stripe.Window) (stripe.Page[stripe.Refund], error)
	// SearchIntents finds an order's intents by their metadata, however old. Its
	// results may be an hour old, and not every account has it. It is a shortcut:
	// what it does not show is looked for in ListIntents.
	SearchIntents(ctx context.Context, tenantID, orderID string) ([]stripe.Intent, error)
}
