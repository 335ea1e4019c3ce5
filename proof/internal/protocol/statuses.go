package protocol

import (
	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
)

// point is a recovery point of the code.
type point uint8

const (
	noPoint point = iota
	paymentRecorded
	intentRecorded
	actionRequired
	cancelBegun
	refundRecorded
	cancelAbandonedBegun
	captureRecorded
	finished
)

// pointNames are the recovery points as the table of keys has them. TestRecoveryPoints compares them with the code's.
var pointNames = [...]string{
	paymentRecorded: payments.PaymentRecorded, intentRecorded: payments.IntentRecorded,
	actionRequired: payments.ActionRequired, cancelBegun: "cancel_begun", refundRecorded: "refund_recorded",
	cancelAbandonedBegun: "cancel_abandoned_begun", captureRecorded: "capture_recorded",
	finished: idempotency.Finished,
}

// status is one of a payment, an order or a refund: an index into the list of its enum.
type status uint8

// The statuses of payments.
const (
	noPayment status = iota
	processing
	requiresAction
	authorized
	succeeded
	failed
	canceled
)

var paymentStatuses = [...]db.PaymentStatus{
	processing: db.PaymentStatusProcessing, requiresAction: db.PaymentStatusRequiresAction,
	authorized: db.PaymentStatusAuthorized,
	succeeded:  db.PaymentStatusSucceeded, failed: db.PaymentStatusFailed, canceled: db.PaymentStatusCanceled,
}

// The statuses of the order.
const (
	noOrder status = iota
	orderOpen
	orderAuthorized
	orderPaid
	orderCanceled
	orderPartlyRefunded
	orderRefunded
)

var orderStatuses = [...]db.OrderStatus{
	orderOpen: db.OrderStatusOpen, orderAuthorized: db.OrderStatusAuthorized, orderPaid: db.OrderStatusPaid,
	orderCanceled:       db.OrderStatusCanceled,
	orderPartlyRefunded: db.OrderStatusPartiallyRefunded, orderRefunded: db.OrderStatusRefunded,
}

// The statuses of refunds, here and at Stripe.
const (
	noRefund status = iota
	refundPending
	refundSucceeded
	refundFailed
	refundCanceled
)

var refundStatuses = [...]db.RefundStatus{
	refundPending: db.RefundStatusPending, refundSucceeded: db.RefundStatusSucceeded,
	refundFailed: db.RefundStatusFailed, refundCanceled: db.RefundStatusCanceled,
}

// intentStatus is one of an intent at Stripe.
type intentStatus uint8

const (
	noIntent intentStatus = iota
	unconfirmed
	needsMethod
	needsAction
	inProcess
	held
	paid
	closed
)

var intentStatuses = [...]stripe.IntentStatus{
	unconfirmed: stripe.IntentRequiresConfirmation, needsMethod: stripe.IntentRequiresPaymentMethod,
	needsAction: stripe.IntentRequiresAction, inProcess: stripe.IntentProcessing,
	held: stripe.IntentRequiresCapture, paid: stripe.IntentSucceeded, closed: stripe.IntentCanceled,
}

// outcome of a call, as stripe_calls has it.
type outcome uint8

const (
	notCalled outcome = iota
	callSent
	callDone
	callRefused
	callNotExecuted
	callUnknown
)

var outcomes = [...]db.StripeOutcome{
	callSent: db.StripeOutcomeSent, callDone: db.StripeOutcomeDone, callRefused: db.StripeOutcomeRefused,
	callNotExecuted: db.StripeOutcomeNotExecuted, callUnknown: db.StripeOutcomeUnknown,
}
