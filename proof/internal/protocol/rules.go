package protocol

import "fmt"

// Rule is a rule of the protocol that the model can do without.
type Rule uint32

// The rules.
const (
	OutcomeLookup Rule = 1 << iota
	CloseFirst
	OwedIsRetried
	Adoption
	LateIsRefunded
	Fence
	OneKeyPerCall
	OneLivePayment
	ResendCutoff
	CancelWaits
	CancelIntentFirst
	DoubtStays
	Completer
	Reserve
	IntentBeforeEffect
	SeenVersion
	CommitKnown
	InDoubtIsNotAbsent
	SearchBeforeNext
	OneHolder
	CaptureKeepsOrder
	CancelDefers
	HolderEnds
	CaptureIsRead
	HoldIsReleased
	AuthorizedIsRead
	AmountIsCompared
	CaptureDoubt
	OtherKind
	LostLifeFirst
)

// Left is a rule as it can be left out, with what then breaks.
type Left struct {
	Rule   Rule
	Name   string // of -without
	What   string
	Places []string // in the code: file#function, file#query or file#name
	Breaks Invariant
	Scope  string // in which it is shortest found
}

// Rules are all rules that can be left out.
var Rules = []Left{
	{OutcomeLookup, "outcome-lookup", "a request that was overtaken looks for the outcome with time of its own",
		[]string{"internal/http/idempotency.go#lookup", "internal/http/idempotency.go#outcome",
			"internal/http/idempotency.go#truthful"},
		I23, "a payment"},
	{CloseFirst, "close-first", "a payment whose secret is out fails only with its intent canceled first",
		[]string{"internal/payments/payment_resume.go#abandon", "db/schema.sql#secret_ends_with_its_payment"},
		I25, "a payment"},
	{Adoption, "adoption", "what was paid on the intent of a payment that has ended is adopted",
		[]string{"internal/payments/repair_adopt.go#adoptAs", "internal/payments/webhook.go#applyIntentSeen",
			"internal/reconcile/confirmable.go#scanConfirmable"},
		I24, "a restore"},
	{OwedIsRetried, "owed", "an automatic refund that was refused or came back is owed, and tried again",
		[]string{"internal/payments/refund_owed.go#recordOwed", "db/queries/refunds_owed.sql#RefundOwe",
			"db/schema.sql#owed_is_not_forgotten"},
		I28, "late money"},
	{LateIsRefunded, "late-refund", "money that comes for a canceled order is refunded",
		[]string{"internal/payments/refund_owed.go#RefundRest"},
		I28, "late money"},
	{Fence, "fence", "every write of a holder carries its token",
		[]string{"db/queries/idempotency_keys.sql#KeyLockFenced", "db/queries/payments.sql#PaymentFinish",
			"db/queries/stripe_calls.sql#StripeCallRecordAttempt"},
		I9, "a payment"},
	{OneKeyPerCall, "one-stripe-key", "every attempt of a call carries the same Stripe key",
		[]string{"internal/calls/calls.go#MakeRecorded"},
		I1, "two refunds"},
	{OneLivePayment, "one-live-payment", "an order has one payment that has not failed",
		[]string{"db/queries/payments.sql#PaymentBegin", "db/schema.sql#one_live_payment_per_order"},
		I1, "two payments"},
	{ResendCutoff, "resend-cutoff", "a call is not sent again after twelve hours",
		[]string{"internal/calls/calls.go#ResendWithin", "db/queries/stripe_calls.sql#StripeCallRecordAttempt",
			"db/schema.sql#stripe_key_not_resent_after_24h"},
		I13, "a payment"},
	{CancelIntentFirst, "cancel-intent-first", "a cancel of an order cancels its intent before the order",
		[]string{"internal/payments/cancel.go#runOrder"},
		I25, "a payment and a cancel"},
	{DoubtStays, "sticky-doubt", "once an attempt is in doubt, a refusal of a later one proves nothing",
		[]string{"db/queries/stripe_calls.sql#StripeCallRecordAttempt", "internal/stripe/classify.go#effect"},
		I14, "a payment"},
	{Completer, "completer", "what has no holder is taken over and finished",
		[]string{"internal/idempotency/completer.go#RunOnce", "db/queries/idempotency_keys.sql#KeyTakeOverDue"},
		I5, "a payment"},
	{Reserve, "reserve", "a refund takes its amount from what is left, under the payment's row lock",
		[]string{"db/queries/refunds.sql#PaymentReserveRefund", "internal/payments/refund_begin.go#refundable"},
		I8, "two refunds"},
	{IntentBeforeEffect, "intent-before-effect", "a call is recorded in a commit before it is sent",
		[]string{"internal/calls/calls.go#Attempt", "internal/calls/calls.go#Insert"},
		I12, "a payment"},
	{SeenVersion, "seen-version", "a status is written only over the one that was read",
		[]string{"db/queries/payments.sql#PaymentFinish", "db/queries/payments.sql#PaymentSettle"},
		I11, "a payment and a cancel"},
	{CommitKnown, "commit-known", "an answer is sent once its commit is known",
		[]string{"internal/idempotency/phase.go#durably", "internal/idempotency/phase.go#readBack"},
		I20, "a payment"},
	{InDoubtIsNotAbsent, "commit-in-doubt", "a first commit whose response was lost is not taken for none",
		[]string{"internal/idempotency/begin.go#begin", "internal/http/idempotency.go#truthful"},
		I23, "a payment"},
	{SearchBeforeNext, "search-before-next",
		"after a stored error of a request that is not recorded, an intent is searched for before another is made",
		[]string{"internal/payments/payment_resume.go#makeAnother", "internal/calls/calls.go#BeganHere",
			"internal/payments/repair_find_intent.go#recoverIntent"},
		I1, "a restore"},
	{OtherKind, "other-kind",
		"an intent that is captured in the other way is canceled, or holds the order's money, before another is made",
		[]string{"internal/payments/repair_find_intent.go#choose", "internal/payments/repair_find_intent.go#endOther",
			"internal/payments/payment_resume.go#createUnanswered"},
		I1, "a restore and both kinds of capture"},
	{LostLifeFirst, "lost-life-first",
		"after a restore a payment first accounts for what the lost life has made at Stripe for its order",
		[]string{"internal/payments/repair_find_intent.go#accountForLostLife"},
		I1, "a restore and both kinds of capture"},
	{CancelWaits, "cancel-waits", "an order is not canceled while a confirm is in flight",
		[]string{"internal/payments/cancel.go#beginOrder"},
		I14, "a payment and a cancel"},
	{OneHolder, "one-holder", "one capture or cancel at a time works on an authorization",
		[]string{"internal/payments/capture.go#HoldAuthorization", "db/queries/payments.sql#PaymentCaptureBegin",
			"db/schema.sql#authorization_has_one_end"},
		I26, "two captures"},
	{CaptureKeepsOrder, "capture-keeps-order", "a capture and a cancel of the order exclude each other",
		[]string{"internal/payments/cancel.go#beginOrder", "internal/payments/capture.go#beginHolding"},
		I26, "a capture and a cancel of the order"},
	{CancelDefers, "cancel-defers", "a cancel that a capture has overtaken leaves the end of the authorization to that",
		[]string{"internal/payments/cancel.go#runPayment", "internal/payments/cancel.go#finishPayment"},
		I26, "a cancel before a capture"},
	{HolderEnds, "holder-ends", "while a capture or cancel works on an authorization, no other records how that ended",
		[]string{"internal/payments/authorization.go#authorizationSeen"},
		I26, "a capture"},
	{CaptureIsRead, "capture-is-read", "what a capture has done is read from its intent",
		[]string{"internal/payments/capture.go#Capture"},
		I26, "a capture"},
	{CaptureDoubt, "capture-doubt", "while an attempt of a capture is in doubt, only what settles that one refuses it",
		[]string{"internal/payments/capture.go#Capture", "internal/stripe/classify.go#effect"},
		I26, "a capture"},
	{HoldIsReleased, "hold-is-released", "a capture that took nothing lets others work on the authorization",
		[]string{"internal/payments/capture.go#abortHolding", "db/queries/payments.sql#PaymentCaptureAbort"},
		I26, "a capture"},
	{AuthorizedIsRead, "authorized-is-read", "the intent of an authorized payment is read until it has ended",
		[]string{"internal/payments/authorization.go#AuthorizationEnded",
			"internal/reconcile/confirmable.go#scanConfirmable"},
		I26, "a capture"},
	{AmountIsCompared, "amount-is-compared", "a capture answers 200 only if what was captured is its amount",
		[]string{"internal/payments/capture.go#FinishCapture"},
		I26, "a capture"},
}

// Names are the names of the rules.
func Names() []string {
	names := make([]string, len(Rules))
	for i, r := range Rules {
		names[i] = r.Name
	}
	return names
}

// Named is the rule of a name.
func Named(name string) (Left, error) {
	for _, r := range Rules {
		if r.Name == name {
			return r, nil
		}
	}
	return Left{}, fmt.Errorf("there is no rule %q", name)
}

// Without explores the scope in which a rule is missed, until an invariant is broken.
func (l Left) Without() (Result, error) {
	for _, s := range Scopes {
		if s.Name == l.Scope {
			m, err := New(s, l.Rule)
			if err != nil {
				return Result{}, err
			}
			return Explore(m, 0), nil
		}
	}
	return Result{}, fmt.Errorf("there is no scope %q", l.Scope)
}

// WithoutEach explores the protocol without each of its rules.
func WithoutEach() ([]Result, error) {
	results := make([]Result, len(Rules))
	for i, rule := range Rules {
		var err error
		if results[i], err = rule.Without(); err != nil {
			return nil, err
		}
	}
	return results, nil
}
