package payments

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/payonce/db"
)

// verdictOf says in one sentence what happened in effect.
func verdictOf(row db.KeyHistoryKeyRow, m made, calls []StoryCall) string {
	switch {
	case row.FinishedAt == nil:
		return unfinishedVerdict(row, m, calls)
	case row.AnswerStatus != nil && *row.AnswerStatus == http.StatusConflict && m.checkout == nil && row.Operation != RefundGhost:
		return "refused for good; nothing was done under this key"
	case m.checkout != nil:
		return checkoutVerdict(m)
	case m.refund != nil:
		return refundVerdict(m)
	case row.Operation == RefundGhost:
		return ghostVerdict(calls)
	case m.payment != nil && row.Operation == CreatePayment:
		return paymentVerdict(m)
	case m.payment != nil && m.payment.Status == db.PaymentStatusCanceled:
		return "the payment was canceled, no money taken"
	case m.order != nil && row.Operation == CreateOrder:
		return "one order was made"
	case m.order != nil && m.order.Status == db.OrderStatusCanceled:
		return "the order was canceled"
	}
	return "refused for good; nothing was done under this key" // Its answer has expired, and what it asked for was not done.
}

// unfinishedVerdict is the verdict about unfinished work: whether money may have moved,
// and who looks when.
func unfinishedVerdict(row db.KeyHistoryKeyRow, m made, calls []StoryCall) string {
	what := "not finished, no money has moved"
	unknown := slices.ContainsFunc(calls, func(c StoryCall) bool {
		return (c.Operation == string(opConfirm) || c.Operation == string(opRefund)) && (c.Outcome == db.StripeOutcomeUnknown || c.Outcome == db.StripeOutcomeSent)
	})
	switch {
	case m.payment != nil && m.payment.Status == db.PaymentStatusRequiresAction:
		what = "waits for the customer, no money taken yet"
	case unknown:
		what = "unknown whether the money has moved"
	case m.refund != nil && m.refund.StripeRefundID != nil:
		what = "Stripe has the refund and has not decided yet"
	}
	switch {
	case row.Held:
		return what + ": somebody is working on it"
	case row.ParkedAt != nil:
		return what + ": given up, a person must look"
	}
	return what + ": the completer looks again at " + row.NextAttemptAt.UTC().Format(time.RFC3339)
}

func paymentVerdict(m made) string {
	p := m.payment
	switch p.Status {
	case db.PaymentStatusSucceeded:
		return charged(p)
	case db.PaymentStatusFailed:
		if p.FailureDeclineCode != nil {
			return "declined (" + *p.FailureDeclineCode + "), no money taken"
		}
		return "failed (" + deref(p.FailureCode) + "), no money taken"
	case db.PaymentStatusCanceled:
		return "canceled, no money taken"
	case db.PaymentStatusProcessing, db.PaymentStatusRequiresAction:
	}
	return "the key is finished and its payment is not; a person must look"
}

func charged(p *db.Payment) string {
	object := deref(p.ChargeID)
	if object == "" {
		object = deref(p.IntentID)
	}
	verdict := "charged once, " + object
	switch p.AmountRefundedMinor {
	case 0:
	case p.AmountMinor:
		verdict += ", and refunded"
	default:
		verdict += fmt.Sprintf(", and %d of %d %s refunded", p.AmountRefundedMinor, p.AmountMinor, p.Currency)
	}
	return verdict
}

func refundVerdict(m made) string {
	r := m.refund
	switch r.Status {
	case db.RefundStatusSucceeded:
		return "refunded once, " + deref(r.StripeRefundID)
	case db.RefundStatusFailed:
		return "not refunded (" + deref(r.FailureCode) + "), the amount can be refunded again"
	case db.RefundStatusCanceled:
		return "the refund was canceled, the amount can be refunded again"
	case db.RefundStatusPending:
	}
	return "the key is finished and its refund is not; a person must look"
}

func ghostVerdict(calls []StoryCall) string {
	for _, c := range calls {
		switch {
		case c.Outcome == db.StripeOutcomeDone:
			return "given back once, " + deref(c.ObjectID)
		case c.Outcome == db.StripeOutcomeRefused:
			return "not given back (" + deref(c.ErrorCode) + "); the money is still at Stripe"
		}
	}
	return "the key is finished and its refund is not; a person must look"
}

func checkoutVerdict(m made) string {
	switch m.checkout.Status {
	case db.CheckoutStatusCompleted:
		if m.payment != nil {
			return "completed, " + charged(m.payment)
		}
	case db.CheckoutStatusCompensated:
		if m.payment != nil && m.payment.Status == db.PaymentStatusSucceeded {
			return "compensated, " + charged(m.payment)
		}
		return "compensated (" + deref(m.checkout.FailureCode) + "), no money taken"
	case db.CheckoutStatusProcessing:
	}
	return "the key is finished and its checkout is not; a person must look"
}
