package keyhistory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
)

const (
	refused = "refused for good; nothing was done under this key"
	unended = "the key is finished and what it made is not; an operator must look"
	unfound = "the key is finished and what it made is not in this database; an operator must look"
)

// builtIn reports whether the operation is one of payments' own.
func builtIn(operation string) bool {
	switch operation {
	case payments.CreateOrder, payments.CancelOrder, payments.CreatePayment, payments.CancelPayment,
		payments.CapturePayment, payments.CreateRefund, payments.RefundOrder, payments.CancelAbandonedIntent:
		return true
	case payments.RefundByOperator, payments.RefundOrphanedIntent: // part: operator
		return true // part: operator
	}
	return false
}

// verdictOf says in one sentence what the key did. A key that was answered with a success
// was not refused, so if nothing shows what it did, that is said instead.
func verdictOf(row db.KeyHistoryKeyRow, m made, calls []Call) string {
	verdict := verdictOn(row, m, calls)
	if verdict == refused && row.AnswerStatus != nil && *row.AnswerStatus < http.StatusMultipleChoices {
		return unfound
	}
	return verdict
}

func verdictOn(row db.KeyHistoryKeyRow, m made, calls []Call) string {
	switch {
	case !m.known:
		return unknownVerdict(row, calls)
	case row.FinishedAt == nil:
		return unfinishedVerdict(row, m, calls)
	case m.Finished != nil:
		return m.Finished(m.payment)
	case !builtIn(row.Operation):
		return "finished; the operation " + row.Operation + " does not say what it did"
	case row.Operation == payments.RefundOrphanedIntent: // part: operator
		return orphanRefundVerdict(calls) // part: operator
	case row.Operation == payments.CancelAbandonedIntent:
		return "a PaymentIntent that no payment uses was canceled, or had ended by itself"
	case row.Operation == payments.CapturePayment && m.payment != nil:
		return captureVerdict(row, m.payment, calls)
	case row.AnswerStatus != nil && *row.AnswerStatus == http.StatusConflict:
		return refused
	case m.refund != nil:
		return refundVerdict(m)
	case m.payment != nil && row.Operation == payments.CreatePayment:
		return paymentVerdict(m)
	case m.payment != nil && m.payment.Status == db.PaymentStatusCanceled:
		if expiredUncaptured(m.payment) {
			return expiredVerdict
		}
		return "the payment was canceled, no money taken" + releasedNote(m.payment)
	case m.order != nil && row.Operation == payments.CreateOrder:
		return "one order was made"
	case m.order != nil && m.order.Status == db.OrderStatusCanceled:
		return "the order was canceled"
	}
	return refused // Its answer has expired, and what it asked for was not done.
}

// unknownVerdict is the verdict about an operation that this program does not have: one
// of another version, or one that was not registered. What it did with money is not known.
func unknownVerdict(row db.KeyHistoryKeyRow, calls []Call) string {
	verdict := "unknown to this service: the operation " + row.Operation + " is not registered"
	if row.FinishedAt == nil {
		verdict += ", and its work is not finished"
	}
	if len(calls) > 0 {
		return verdict + "; it has called Stripe, so money may have moved"
	}
	return verdict + "; whether money has moved is not known here"
}

// unfinishedVerdict is the verdict about unfinished work: whether money may have moved,
// and when it is tried again.
func unfinishedVerdict(row db.KeyHistoryKeyRow, m made, calls []Call) string {
	what := "not finished, no money has moved"
	moves := append([]string{string(stripe.OpConfirm), string(stripe.OpCapture), string(stripe.OpRefund)},
		m.MovesMoney...)
	unknown := slices.ContainsFunc(calls, func(c Call) bool {
		return slices.Contains(moves,
			c.Operation) && (c.Outcome == db.StripeOutcomeUnknown || c.Outcome == db.StripeOutcomeSent)
	})
	switch {
	case m.payment != nil && m.payment.Status == db.PaymentStatusRequiresAction:
		what = "waits for the customer, no money taken yet"
	case unknown:
		what = "unknown whether the money has moved"
	case m.refund != nil && m.refund.StripeRefundID != nil:
		what = "Stripe has the refund and has not decided yet"
	case row.Operation == payments.CapturePayment:
		what = "not captured yet, nothing was taken under this key"
	case m.payment != nil && m.payment.Status == db.PaymentStatusAuthorized: // Others may have captured it at Stripe.
		what = "not finished, the authorization is being canceled and nothing was taken under this key"
	}
	switch {
	case row.Held:
		return what + ": a process is working on it"
	case row.ParkedAt != nil:
		return what + ": parked, an operator must look"
	}
	return what + ": the completer looks again at " + row.NextAttemptAt.UTC().Format(time.RFC3339)
}

func paymentVerdict(m made) string {
	p := m.payment
	switch p.Status {
	case db.PaymentStatusSucceeded:
		return ChargedOnce(p)
	case db.PaymentStatusFailed:
		if postgres.Deref(p.FailureCode) == stripe.CodeKeyReused {
			return "not charged; Stripe knows the key from another payment that is not in this database; an operator must look"
		}
		if p.FailureDeclineCode != nil {
			return "declined (" + *p.FailureDeclineCode + "), no money taken"
		}
		return "failed (" + postgres.Deref(p.FailureCode) + "), no money taken"
	case db.PaymentStatusCanceled:
		if expiredUncaptured(p) {
			return expiredVerdict
		}
		return "canceled, no money taken" + releasedNote(p)
	case db.PaymentStatusAuthorized:
		return authorizedVerdict(p)
	case db.PaymentStatusProcessing, db.PaymentStatusRequiresAction:
	}
	return unended
}

const expiredVerdict = "the authorization expired before it was captured, no money taken"

// expiredUncaptured reports whether the authorization of a payment that was canceled had expired.
func expiredUncaptured(p *db.Payment) bool {
	return postgres.Deref(p.FailureCode) == payments.AuthorizationExpired
}

// releasedNote says what was reserved on the card of a payment that was canceled, because the customer may still see it.
func releasedNote(p *db.Payment) string {
	if !compare.IsReleased(*p) {
		return ""
	}
	return "; " + money.Format(p.AmountMinor, p.Currency) + " was reserved on the card and then released"
}

// authorizedVerdict is the verdict about a payment whose money is reserved. While a capture works on it the money may
// have moved.
func authorizedVerdict(p *db.Payment) string {
	held := money.Format(p.AmountMinor, p.Currency) + " authorized"
	switch {
	case p.CapturingMinor != nil:
		return held + "; a capture of " + money.Format(*p.CapturingMinor, p.Currency) +
			" is not finished, so the money may have moved"
	case p.CapturingKey != nil:
		return held + ", nothing taken yet; it is being canceled"
	}
	return held + ", nothing taken yet; it expires at " + p.CaptureBefore.UTC().Format(time.RFC3339)
}

// captureVerdict is the verdict about a capture that has ended. Its call says whether it has taken something: others may
// have captured the payment too. One without a call was refused when it was to begin.
func captureVerdict(row db.KeyHistoryKeyRow, p *db.Payment, calls []Call) string {
	i := slices.IndexFunc(calls, func(c Call) bool {
		return c.StripeKey == row.TenantID+":"+row.Key+":"+string(stripe.OpCapture)
	})
	switch {
	case i < 0:
		return refused
	case calls[i].Outcome == db.StripeOutcomeDone && p.Status == db.PaymentStatusSucceeded:
		return ChargedOnce(p)
	case calls[i].Outcome != db.StripeOutcomeRefused:
		return unended
	case expiredUncaptured(p):
		return expiredVerdict
	case p.Status == db.PaymentStatusCanceled:
		return "not captured: the authorization was canceled, no money taken"
	case p.Status == db.PaymentStatusSucceeded:
		return "not captured under this key, but by another request or at Stripe: " + ChargedOnce(p)
	}
	return "not captured (" + cmp.Or(postgres.Deref(calls[i].ErrorCode), "refused") + "), nothing was taken under this key"
}

// ChargedOnce is the verdict about a payment that succeeded.
func ChargedOnce(p *db.Payment) string {
	object := postgres.Deref(p.ChargeID)
	if object == "" {
		object = postgres.Deref(p.IntentID)
	}
	verdict, paid := "charged once, "+object, p.AmountMinor
	if p.CapturedMinor != nil {
		paid = *p.CapturedMinor
	}
	if paid < p.AmountMinor {
		verdict += fmt.Sprintf(", %s of %s authorized", money.Format(paid, p.Currency),
			money.Format(p.AmountMinor, p.Currency))
	}
	switch p.AmountRefundedMinor {
	case 0:
	case paid:
		verdict += ", and refunded"
	default:
		verdict += fmt.Sprintf(", and %s of %s refunded", money.Format(p.AmountRefundedMinor, p.Currency),
			money.Format(paid, p.Currency))
	}
	if p.AmountDisputedMinor > 0 {
		verdict += "; " + money.Format(p.AmountDisputedMinor, p.Currency) + " withdrawn by the bank in a dispute"
	}
	return verdict
}

func refundVerdict(m made) string {
	r := m.refund
	switch r.Status {
	case db.RefundStatusSucceeded:
		return "refunded once, " + postgres.Deref(r.StripeRefundID)
	case db.RefundStatusFailed:
		return "not refunded (" + postgres.Deref(r.FailureCode) + "), the amount can be refunded again"
	case db.RefundStatusCanceled:
		return "the refund was canceled, the amount can be refunded again"
	case db.RefundStatusPending:
	}
	return unended
}

// OfCharge describes the keys of an operation that is registered with payments.
func OfCharge(operation payments.Registered) Describe {
	return func(ctx context.Context, q *db.Queries, tenantID, id string) (Made, error) {
		c, err := operation.Charge(ctx, q, tenantID, id)
		if errors.Is(err, payments.ErrNotFound) {
			return Made{Finished: func(*db.Payment) string { return refused }}, nil
		}
		if err != nil {
			return Made{}, err
		}
		m := Made{OrderID: c.OrderID, StripeKeys: c.StripeKeys, MovesMoney: []string{c.Operation}}
		if c.IntentID != "" {
			m.IntentIDs = []string{c.IntentID}
		}
		m.Finished = func(*db.Payment) string {
			switch c.Status {
			case compare.ChargeSucceeded:
				return "charged once, " + c.IntentID
			case compare.ChargeFailed:
				return "failed (" + c.FailureCode + "), no money taken"
			case compare.ChargePending:
			}
			return unended
		}
		return m, nil
	}
}
